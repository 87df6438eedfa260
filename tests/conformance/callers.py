"""Every kind of connection that a producer may hold, behind one face.

A story is written once, as a coroutine function that is given a :class:`Caller`.
Stories about synchronous kinds run without an event loop (Django refuses one).
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import outbox
from tests.conformance.django_rig import django_connection

NEW_SQLITE = sys.version_info >= (3, 12)


class Caller(Protocol):
    """A producer with a transaction of its own."""

    connection: Any

    async def execute(self, sql: str) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def savepoint(self) -> None: ...
    async def rollback_to_savepoint(self) -> None: ...
    async def enqueue(self, message: outbox.Email, **options: Any) -> outbox.Enqueued: ...
    async def find(self, key: str) -> outbox.Delivery | None: ...
    async def cancel(self, key: str) -> Any: ...


class _Synchronous:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def enqueue(self, message: outbox.Email, **options: Any) -> outbox.Enqueued:
        return outbox.enqueue(self.connection, message, **options)

    async def find(self, key: str) -> outbox.Delivery | None:
        return outbox.find(self.connection, key)

    async def cancel(self, key: str) -> Any:
        return outbox.cancel(self.connection, key)


class _Driver(_Synchronous):
    """sqlite3 and psycopg, in transactions that begin by themselves or by BEGIN."""

    def __init__(self, connection: Any, *, begin: str | None = None) -> None:
        super().__init__(connection)
        self._begin = begin

    async def execute(self, sql: str) -> None:
        if self._begin and not self.connection.in_transaction:
            self.connection.execute(self._begin)
        self.connection.execute(sql)

    async def commit(self) -> None:
        await self._end("COMMIT")

    async def rollback(self) -> None:
        await self._end("ROLLBACK")

    async def savepoint(self) -> None:
        self.connection.execute("SAVEPOINT host")

    async def rollback_to_savepoint(self) -> None:
        self.connection.execute("ROLLBACK TO SAVEPOINT host")

    async def _end(self, how: str) -> None:
        if self._begin:
            if self.connection.in_transaction:
                self.connection.execute(how)
        else:
            getattr(self.connection, how.lower())()


class _Block(_Synchronous):
    """A transaction that is a ``with`` block: psycopg's and Django's."""

    def __init__(
        self, connection: Any, block: Callable[[], Any], execute: Callable[[str], Any]
    ) -> None:
        super().__init__(connection)
        self._block = block
        self._execute = execute
        self._open: list[Any] = []

    async def execute(self, sql: str) -> None:
        if not self._open:
            await self.savepoint()
        self._execute(sql)

    async def savepoint(self) -> None:
        block = self._block()
        block.__enter__()
        self._open.append(block)

    async def commit(self) -> None:
        while self._open:
            self._open.pop().__exit__(None, None, None)

    async def rollback(self) -> None:
        while self._open:
            await self.rollback_to_savepoint()

    async def rollback_to_savepoint(self) -> None:
        reason = psycopg.Rollback()
        self._open.pop().__exit__(type(reason), reason, None)


class _SQLAlchemy(_Synchronous):
    _nested: Any = None

    async def execute(self, sql: str) -> None:
        self.connection.execute(text(sql))

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def savepoint(self) -> None:
        self._nested = self.connection.begin_nested()

    async def rollback_to_savepoint(self) -> None:
        self._nested.rollback()


class _Asynchronous:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def enqueue(self, message: outbox.Email, **options: Any) -> outbox.Enqueued:
        return await outbox.enqueue_async(self.connection, message, **options)

    async def find(self, key: str) -> outbox.Delivery | None:
        return await outbox.find_async(self.connection, key)

    async def cancel(self, key: str) -> Any:
        return await outbox.cancel_async(self.connection, key)


class _AsyncDriver(_Asynchronous):
    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def savepoint(self) -> None:
        await self.connection.execute("SAVEPOINT host")

    async def rollback_to_savepoint(self) -> None:
        await self.connection.execute("ROLLBACK TO SAVEPOINT host")


class _AsyncBlock(_AsyncDriver):
    _block: Any = None

    async def execute(self, sql: str) -> None:
        if self._block is None:
            self._block = self.connection.transaction()
            await self._block.__aenter__()
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self._leave(None)

    async def rollback(self) -> None:
        await self._leave(psycopg.Rollback())

    async def _leave(self, reason: Exception | None) -> None:
        block, self._block = self._block, None
        if block is not None:
            await block.__aexit__(reason and type(reason), reason, None)


class _AsyncSQLAlchemy(_Asynchronous):
    _nested: Any = None

    async def execute(self, sql: str) -> None:
        await self.connection.execute(text(sql))

    async def savepoint(self) -> None:
        self._nested = await self.connection.begin_nested()

    async def rollback_to_savepoint(self) -> None:
        await self._nested.rollback()


# --------------------------------------------------------------------------- #
# The kinds
# --------------------------------------------------------------------------- #

Opened = AbstractAsyncContextManager[Caller]


@dataclass(frozen=True)
class Kind:
    """One kind of connection; ``open`` takes the URL of a migrated database."""

    name: str
    database: str
    open: Callable[[str], Opened] = field(repr=False)
    asynchronous: bool = False
    available: bool = True

    def __str__(self) -> str:
        return self.name


def _dict_row(cursor: Any, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _sqlite3(
    *, begin: str | None = None, change: Callable[[Any], None] | None = None, **options: Any
) -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), **options)
        if change:
            change(connection)
        try:
            yield _Driver(connection, begin=begin)
        finally:
            connection.close()

    return opened


def _psycopg(
    *, pipeline: bool = False, block: bool = False, **options: Any
) -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        with psycopg.connect(url, **options) as connection:
            caller: Caller = (
                _Block(connection, connection.transaction, connection.execute)
                if block
                else _Driver(connection)
            )
            if not pipeline:
                yield caller
                return
            with connection.pipeline():
                yield caller

    return opened


def _django() -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        with django_connection(url) as connection:
            from django.db import transaction

            def execute(sql: str) -> None:
                with connection.cursor() as cursor:
                    cursor.execute(sql)

            yield _Block(connection, lambda: transaction.atomic(using=connection.alias), execute)

    return opened


def sqlalchemy_url(url: str, *, asynchronous: bool = False) -> str:
    """``url`` with the driver's name in it."""
    if url.startswith("sqlite"):
        return url.replace("sqlite:", "sqlite+aiosqlite:") if asynchronous else url
    return url.replace("postgresql:", "postgresql+psycopg:")


def _sqlalchemy(make: Callable[[Any], Any], *, prepared: bool = False) -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_engine(sqlalchemy_url(url))
        if prepared:
            outbox.prepare_sqlite(engine)
        connection = make(engine)
        try:
            yield _SQLAlchemy(connection)
        finally:
            connection.close()
            engine.dispose()

    return opened


def _sqlalchemy_async(
    make: Callable[[Any], Awaitable[Any]], *, prepared: bool = False
) -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(sqlalchemy_url(url, asynchronous=True))
        if prepared:
            outbox.prepare_sqlite(engine.sync_engine)
        connection = await make(engine)
        try:
            yield _AsyncSQLAlchemy(connection)
        finally:
            await connection.close()
            await engine.dispose()

    return opened


def _psycopg_async(*, block: bool = False, **options: Any) -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        async with await psycopg.AsyncConnection.connect(url, **options) as connection:
            yield _AsyncBlock(connection) if block else _AsyncDriver(connection)

    return opened


async def _async_session(engine: Any) -> AsyncSession:
    return AsyncSession(engine)


async def _async_connection(engine: Any) -> AsyncConnection:
    connection: AsyncConnection = await engine.connect()
    return connection


def _scoped(engine: Any) -> scoped_session[Session]:
    return scoped_session(sessionmaker(engine))


def _rows(connection: Any) -> None:
    connection.row_factory = sqlite3.Row


def _dicts(connection: Any) -> None:
    connection.row_factory = _dict_row


def _bytes(connection: Any) -> None:
    connection.text_factory = bytes


_LITE, _PG = "sqlite", "postgresql"
KINDS: tuple[Kind, ...] = (
    Kind("sqlite3", _LITE, _sqlite3()),
    Kind("sqlite3-deferred", _LITE, _sqlite3(isolation_level="DEFERRED")),
    Kind("sqlite3-immediate", _LITE, _sqlite3(isolation_level="IMMEDIATE")),
    Kind("sqlite3-begin", _LITE, _sqlite3(isolation_level=None, begin="BEGIN")),
    Kind("sqlite3-rows", _LITE, _sqlite3(change=_rows)),
    Kind("sqlite3-dicts", _LITE, _sqlite3(change=_dicts)),
    Kind("sqlite3-bytes", _LITE, _sqlite3(change=_bytes)),
    Kind("sqlite3-autocommit-off", _LITE, _sqlite3(autocommit=False), available=NEW_SQLITE),
    Kind(
        "sqlite3-autocommit-on-begin",
        _LITE,
        _sqlite3(autocommit=True, begin="BEGIN"),
        available=NEW_SQLITE,
    ),
    Kind("psycopg", _PG, _psycopg()),
    Kind("psycopg-autocommit-block", _PG, _psycopg(autocommit=True, block=True)),
    Kind("psycopg-dicts", _PG, _psycopg(row_factory=dict_row)),
    Kind("psycopg-pipeline", _PG, _psycopg(pipeline=True)),
    Kind("psycopg-pipeline-block", _PG, _psycopg(pipeline=True, autocommit=True, block=True)),
    Kind("session-sqlite", _LITE, _sqlalchemy(Session)),
    Kind("session-sqlite-prepared", _LITE, _sqlalchemy(Session, prepared=True)),
    Kind("session-postgresql", _PG, _sqlalchemy(Session)),
    Kind("scoped-session", _LITE, _sqlalchemy(_scoped, prepared=True)),
    Kind("connection-sqlite", _LITE, _sqlalchemy(lambda engine: engine.connect())),
    Kind("connection-prepared", _LITE, _sqlalchemy(lambda e: e.connect(), prepared=True)),
    Kind("connection-postgresql", _PG, _sqlalchemy(lambda engine: engine.connect())),
    Kind("django-sqlite", _LITE, _django()),
    Kind("django-postgresql", _PG, _django()),
    Kind("async-session-sqlite", _LITE, _sqlalchemy_async(_async_session), asynchronous=True),
    Kind(
        "async-session-prepared",
        _LITE,
        _sqlalchemy_async(_async_session, prepared=True),
        asynchronous=True,
    ),
    Kind("async-session-postgresql", _PG, _sqlalchemy_async(_async_session), asynchronous=True),
    Kind(
        "async-connection-prepared",
        _LITE,
        _sqlalchemy_async(_async_connection, prepared=True),
        asynchronous=True,
    ),
    Kind(
        "async-connection-postgresql", _PG, _sqlalchemy_async(_async_connection), asynchronous=True
    ),
    Kind("async-psycopg", _PG, _psycopg_async(), asynchronous=True),
    Kind(
        "async-psycopg-block", _PG, _psycopg_async(autocommit=True, block=True), asynchronous=True
    ),
)


def play(kind: Kind, url: str, story: Callable[[Caller], Coroutine[Any, Any, None]]) -> None:
    """Open a connection of this kind, tell the story, close it."""

    async def whole() -> None:
        async with kind.open(url) as caller:
            await story(caller)

    if kind.asynchronous:
        asyncio.run(whole())
        return
    steps = whole()
    try:
        steps.send(None)
    except StopIteration:
        return
    steps.close()
    raise AssertionError(f"{kind} waited for something")
