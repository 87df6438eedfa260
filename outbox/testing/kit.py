"""The kit: one outbox for one test."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, Unpack

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from outbox import clock as host
from outbox import connections
from outbox.database import open_engine, reading
from outbox.deliveries import Delivery
from outbox.testing import asserting, files, looking
from outbox.testing.clock import Clock
from outbox.testing.crashing import Crashing
from outbox.testing.matching import Wanted
from outbox.testing.outcome import RunRecord, records
from outbox.testing.watched import Watch, watching

URL_VARIABLE: Final = "POSTROOM_DATABASE__URL"
"""What says to a job which database is configured (:mod:`outbox.settings`)."""

Deliver: TypeAlias = Callable[[str], list[Any]]


class Postroom(Crashing):
    """An outbox for one test: a migrated SQLite database, a clock, and a look at both.

    While it is open, it is the configured database, ``outbox.now()`` is its clock's time, and
    whatever connects to its file is watched. One at a time.
    """

    def __init__(self, folder: Path, *, deliver: Deliver | None = None) -> None:
        """folder: where its file is to be, a folder that is there. deliver: how :meth:`deliver`
        delivers; the pytest fixture brings it along."""
        self.path: Path = folder / "postroom.db"
        """Its file."""
        self.url: str = f"sqlite:///{self.path}"
        """Its URL, for ``open_run(…, database=…)`` and engines of your own."""
        self.clock: Clock = Clock()
        """Its time."""
        self.engine: Engine = open_engine(self.url)
        """An SQLAlchemy engine on it; the place to make the tables of your application."""
        super().__init__(self.path, self.clock, Watch(self.path, self.clock))
        self._deliver = deliver
        self._open = ExitStack()

    def __enter__(self) -> Self:
        files.fresh(self.path)
        with ExitStack() as opened:
            opened.enter_context(watching(self._watch))
            opened.enter_context(host.taken_from(lambda: self.clock.now))
            opened.enter_context(_configured(self.url))
            opened.callback(self._forget)
            opened.callback(self.engine.dispose)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    # -- connections ------------------------------------------------------------------ #

    def session(self) -> Session:
        """A new SQLAlchemy session; closed at the end of the test at the latest."""
        return self._open.enter_context(Session(self.engine))

    def connection(self) -> sqlite3.Connection:
        """A new ``sqlite3`` connection as it comes; closed at the end of the test."""
        made = sqlite3.connect(self.path)
        self._open.callback(made.close)
        return made

    # -- what happened ---------------------------------------------------------------- #

    def enqueued(self) -> list[Delivery]:
        """What was enqueued and committed, in this order.

        Each has its ``key``, its ``message`` (attachments with their content), ``run_key``,
        ``account``, ``send_after``, ``send_before``, ``state`` and so on.
        """
        with reading(self.engine) as connection:
            return connections.run(connection, looking.deliveries, writes=False)

    def assert_enqueued(self, *, times: int | None = None, **wanted: Unpack[Wanted]) -> Delivery:
        """A delivery with these fields was enqueued and committed; it is returned.

        As :func:`outbox.testing.assert_enqueued`, on this database.
        """
        __tracebackhide__ = True
        return asserting.chosen(self.enqueued(), wanted, times=times)

    def nothing_enqueued(self) -> bool:
        """True. Raises AssertionError if anything was enqueued, and shows it."""
        __tracebackhide__ = True
        return asserting.none_of(self.enqueued())

    def runs(self) -> list[RunRecord]:
        """The runs of jobs, in the order in which they were made."""
        with reading(self.engine) as connection:
            return records(connection)

    def deliver(self) -> list[Any]:
        """Let a dispatcher send what is due, to nobody; the messages that would have left.

        The real dispatcher makes them, and settles the deliveries as accepted. Those for later
        stay where they are: move the clock first.

        Raises RuntimeError where no dispatcher was given.
        """
        if self._deliver is None:
            raise RuntimeError(
                "postroom.deliver() needs a dispatcher: use the pytest fixture, or "
                "Postroom(folder, deliver=dispatcher.memory_delivery.deliver)"
            )
        # A dispatcher insists on commits that last.
        self._watch.durable = True
        try:
            return self._deliver(self.url)
        finally:
            self._watch.durable = False


@contextmanager
def _configured(url: str) -> Iterator[None]:
    before = os.environ.get(URL_VARIABLE)
    os.environ[URL_VARIABLE] = url
    try:
        yield
    finally:
        if before is None:
            del os.environ[URL_VARIABLE]
        else:
            os.environ[URL_VARIABLE] = before
