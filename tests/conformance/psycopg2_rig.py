"""psycopg2's connections; where it is not installed, what stands in for it.

The stand-in has psycopg2's names (``psycopg2.extensions.connection``), its habits (parameters
are put into the text by the client, ``commit()`` does nothing in autocommit mode, errors carry
``pgcode``), and psycopg underneath.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType, TracebackType
from typing import Any, Self

import psycopg

from tests.conformance.callers import Caller, Synchronous

REAL = importlib.util.find_spec("psycopg2") is not None


class _Error(Exception):
    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.pgcode = cause.sqlstate


class _Cursor:
    def __init__(self, connection: _Connection) -> None:
        self._raw = psycopg.ClientCursor(connection.raw)

    def execute(self, sql: str, parameters: Any = None) -> None:
        try:
            self._raw.execute(sql.encode(), parameters)
        except psycopg.Error as error:
            raise _Error(error) from None

    def fetchall(self) -> Sequence[Any]:
        return self._raw.fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._raw.close()


class _Connection:
    def __init__(self, url: str) -> None:
        self.raw = psycopg.connect(url)

    @property
    def autocommit(self) -> bool:
        return self.raw.autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self.raw.autocommit = value

    @property
    def closed(self) -> int:
        return int(self.raw.closed)

    def get_transaction_status(self) -> int:
        return self.raw.info.transaction_status.value

    def cursor(self, cursor_factory: Callable[[Any], Any] | None = None) -> Any:
        return (cursor_factory or _Cursor)(self)

    def commit(self) -> None:
        if not self.autocommit:
            self.raw.commit()

    def rollback(self) -> None:
        if not self.autocommit:
            self.raw.rollback()

    def close(self) -> None:
        self.raw.close()


def connect(url: str) -> Any:
    """``psycopg2.connect(url)``."""
    if not REAL and "psycopg2" not in sys.modules:
        whole: Any = ModuleType("psycopg2")
        extensions: Any = ModuleType("psycopg2.extensions")
        extensions.connection, extensions.cursor = _Connection, _Cursor
        whole.extensions, whole.connect = extensions, _Connection
        sys.modules |= {"psycopg2": whole, "psycopg2.extensions": extensions}
    psycopg2: Any = importlib.import_module("psycopg2")
    return psycopg2.connect(url)


class _Cursors(Synchronous):
    """A producer that has a cursor for each statement; in autocommit mode it says BEGIN itself."""

    def __init__(self, connection: Any, *, begin: bool) -> None:
        super().__init__(connection)
        self._begin = begin

    def _run(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    async def execute(self, sql: str) -> None:
        if self._begin and not self.connection.get_transaction_status():
            self._run("BEGIN")
        self._run(sql)

    async def commit(self) -> None:
        self._end("commit")

    async def rollback(self) -> None:
        self._end("rollback")

    async def savepoint(self) -> None:
        self._run("SAVEPOINT host")

    async def rollback_to_savepoint(self) -> None:
        self._run("ROLLBACK TO SAVEPOINT host")

    def _end(self, how: str) -> None:
        if not self._begin:
            getattr(self.connection, how)()
        elif self.connection.get_transaction_status():
            self._run(how.upper())


def opened(*, autocommit: bool = False) -> Callable[[str], AbstractAsyncContextManager[Caller]]:
    """Opens a connection as a :class:`Caller`."""

    @asynccontextmanager
    async def opening(url: str) -> AsyncIterator[Caller]:
        connection = connect(url)
        connection.autocommit = autocommit
        try:
            yield _Cursors(connection, begin=autocommit)
        finally:
            connection.close()

    return opening
