"""Every connection to the test's database: where its time comes from, and where it can die.

A job may use whatever connection it likes, and so do we: engines, sessions, ``sqlite3`` as it
comes, Django's, in threads and in event loops. All of them end in ``sqlite3.connect``. While a
kit is open, that function gives connections of a class of ours for the kit's file, and for
all other files what it always gives.

*Time.* Each connection takes ``strftime`` from the kit's clock (:mod:`outbox.testing.clock`).

*Death.* To run a statement, ``sqlite3`` calls the connection with its text
(``Connection.__call__``) and keeps what comes back; with a cache of no statements it does so
each time. There the run's statements are counted, and there it is killed, by an exception
that no ``except Exception`` catches. A real kill would not run the ``finally`` and ``with``
blocks that this one passes. So from then on the database is out of reach for all of them:
each statement dies like the first, and only a rollback is done, which is what SQLite does for
a process that is gone. What was committed stays, leases included; nothing else does. A
connection that was being opened then has nobody to close it; it goes without a warning.

*Speed.* A test has nothing to lose in a power failure, so these connections do not wait for
the disk.
"""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from sqlite3 import dbapi2
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, cast
from urllib.parse import unquote, urlsplit

from outbox.testing.clock import Clock
from outbox.testing.points import CrashPoint, Kind, Route, kind_of

_POSITIONS: Final = (
    "timeout", "detect_types", "isolation_level", "check_same_thread", "factory",
    "cached_statements", "uri",
)  # fmt: skip
"""The parameters of ``sqlite3.connect`` behind the file, in their order."""

_DURABLE: Final = re.compile(r"(?i)\s*PRAGMA\s+synchronous\s*=")
_NOT_DURABLE: Final = "PRAGMA synchronous = OFF"

_LEVEL: Final[Any] = vars(sqlite3.Connection)["isolation_level"]

_BEAT: Final = "beat of "
"""How the threads that renew leases are called; they are not part of what a job does."""


class Killed(BaseException):
    """The process was killed here. Not an Exception: a job's code cannot handle its own end."""


class Watch:
    """What happens on all connections to one database."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self.file = os.path.realpath(file)
        self.clock = clock
        self.durable = False
        """Whether new connections may wait for the disk."""
        self._course: Course | None = None
        self._counting = threading.Lock()
        self._numbers = itertools.count(1)
        self._connections: weakref.WeakSet[Watched] = weakref.WeakSet()

    @contextmanager
    def running(self, crash_at: str | None) -> Iterator[Course]:
        """Count the statements of the run that the block performs, and kill it at that point."""
        if self._course is not None:
            raise RuntimeError("a run is going on already; one at a time can be watched")
        course = self._course = Course(crash_at)
        before = weakref.WeakSet(self._connections)
        try:
            yield course
        finally:
            self._course = None
            if course.died is not None:
                self._bury(before)

    @property
    def dead(self) -> bool:
        """Whether the run that goes on has been killed."""
        return self._course is not None and self._course.died is not None

    def statement(self, connection: Watched, text: str) -> None:
        """A statement is about to be run. Raises Killed if it must not."""
        course = self._course
        if course is None or (kind := kind_of(text)) is Kind.SETTING:
            return
        if kind is Kind.ROLLBACK:
            course.route.rolled_back(connection.number)
        elif threading.current_thread().name.startswith(_BEAT):
            if course.died is not None:
                # A plain error: what the threads of a process do that is gone, nobody sees.
                raise sqlite3.OperationalError("this process was killed")
        else:
            with self._counting:
                course.step(connection.number, text)

    def joined(self, connection: Watched) -> int:
        """A new connection; its number."""
        self._connections.add(connection)
        return next(self._numbers)

    def _bury(self, before: weakref.WeakSet[Watched]) -> None:
        """The connections of a process that is gone hold no lock; ``before``: those that were open
        when it began, and may live on."""
        for connection in list(self._connections):
            connection.orphaned = connection not in before
            # Another thread's connection cannot be asked; its own block has rolled it back.
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.rollback()


class Course:
    """The statements of one run as they come, and where it is to end."""

    def __init__(self, crash_at: str | None) -> None:
        self.route = Route()
        self.crash_at = crash_at
        self.died: CrashPoint | None = None

    @property
    def points(self) -> list[CrashPoint]:
        """The points it has come to."""
        return self.route.points

    def step(self, connection: int, text: str) -> None:
        """Raises Killed where it is to end, and from then on."""
        if self.died is None:
            self._come_to(self.route.before(connection, text))
        if self.died is not None:
            raise Killed(f"killed at {self.died}")

    def end(self) -> None:
        """The run has ended by itself."""
        if self.died is None:
            self._come_to(self.route.end())

    def _come_to(self, point: CrashPoint) -> None:
        if self.crash_at is not None and point.is_called(self.crash_at):
            self.died = point


class Watched(sqlite3.Connection):
    """A connection that tells :class:`Watch` what it is about to do."""

    watch: ClassVar[Watch]
    number: int = 0
    orphaned: bool = False
    """Whether the process that opened it was killed."""

    def __del__(self) -> None:
        # Python 3.13 warns of a connection that was never closed; a job that lives is warned.
        if not (self.orphaned or self.watch.dead):
            getattr(super(), "__del__", lambda: None)()

    def __call__(self, sql: str, /) -> Any:
        if isinstance(sql, str):
            self.watch.statement(self, sql)
            if not self.watch.durable and _DURABLE.match(sql):
                sql = _NOT_DURABLE
        return super().__call__(sql)

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        """As ``sqlite3`` does; the script counts as one statement."""
        self.watch.statement(self, sql_script)
        return super().executescript(sql_script)

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        """As ``sqlite3`` does."""
        if not isinstance(factory, type) or not issubclass(factory, sqlite3.Cursor):
            return super().cursor(factory)
        return super().cursor(_watched_cursor(factory))

    def commit(self) -> None:
        """As ``sqlite3`` does; a statement of its own if there is anything to commit."""
        if self._commits():
            self.watch.statement(self, "COMMIT")
        super().commit()

    def rollback(self) -> None:
        """As ``sqlite3`` does."""
        self.watch.statement(self, "ROLLBACK")
        super().rollback()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> Literal[False]:
        if kind is None and self._commits():
            self.watch.statement(self, "COMMIT")
        return super().__exit__(kind, error, trace)

    @property
    def isolation_level(self) -> Any:
        """As ``sqlite3`` has it: to set it to None commits."""
        return super().isolation_level

    @isolation_level.setter
    def isolation_level(self, level: Any) -> None:
        if level is None and self._commits():
            self.watch.statement(self, "COMMIT")
        _LEVEL.__set__(self, level)

    def __setattr__(self, name: str, value: Any) -> None:
        # Python 3.12: to set autocommit to True commits.
        if name == "autocommit" and value is True and self._commits():
            self.watch.statement(self, "COMMIT")
        super().__setattr__(name, value)

    def _commits(self) -> bool:
        """With ``autocommit=True`` (Python 3.12) ``commit()`` does nothing."""
        return self.in_transaction and getattr(self, "autocommit", None) is not True


class WatchedCursor(sqlite3.Cursor):
    """A cursor of such a connection. Its statements pass by the connection, scripts do not."""

    def executescript(self, sql_script: str, /) -> Any:
        """As ``sqlite3`` does; the script counts as one statement."""
        connection = cast(Watched, self.connection)
        connection.watch.statement(connection, sql_script)
        return super().executescript(sql_script)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Let ``sqlite3.connect`` give connections of ours for the watched file."""
    before: tuple[Any, Any] = sqlite3.connect, dbapi2.connect

    def connect(database: Any, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        given = {**dict(zip(_POSITIONS, args, strict=False)), **kwargs}
        if len(args) > len(_POSITIONS) or not _is(watch.file, database, given):
            elsewhere: sqlite3.Connection = before[0](database, *args, **kwargs)
            return elsewhere
        base = given.pop("factory", sqlite3.Connection)
        given |= {"factory": _watched(base, watch), "cached_statements": 0}
        return prepared(before[0](database, **given), watch)

    sqlite3.connect = dbapi2.connect = cast(Any, connect)
    try:
        yield
    finally:
        sqlite3.connect, dbapi2.connect = before


def prepared(connection: sqlite3.Connection, watch: Watch) -> sqlite3.Connection:
    """``connection`` with the clock's time, and without waiting for the disk."""
    connection.create_function("strftime", -1, watch.clock.strftime, deterministic=True)
    if isinstance(connection, Watched):
        connection.number = watch.joined(connection)
    if not watch.durable and not connection.in_transaction:  # with autocommit=False there is one
        connection.execute(_NOT_DURABLE).close()
    return connection


def _watched(base: Any, watch: Watch) -> type[sqlite3.Connection]:
    """The class of a connection that its maker wants to be a ``base``."""
    if not isinstance(base, type) or not issubclass(base, sqlite3.Connection):
        raise TypeError(
            "sqlite3.connect: with the testing kit, factory has to be a subclass of Connection"
        )
    bases = (Watched,) if base is sqlite3.Connection else (Watched, base)
    return type(f"Watched{base.__name__}", bases, {"watch": watch})


@cache
def _watched_cursor(base: type[sqlite3.Cursor]) -> type[sqlite3.Cursor]:
    bases = (WatchedCursor,) if base is sqlite3.Cursor else (WatchedCursor, base)
    return type(f"Watched{base.__name__}", bases, {})


def _is(file: str, database: Any, given: dict[str, Any]) -> bool:
    """Whether what is to be opened is this file."""
    try:
        path = os.fsdecode(database)
    except TypeError:
        return False
    if given.get("uri") and path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    return os.path.realpath(path) == file
