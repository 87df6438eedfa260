"""Every kind of connection that a producer may hold.

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
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import outbox
from tests.conformance import psycopg2_rig
from tests.conformance.callers import (
    AsyncBlock,
    AsyncDriver,
    AsyncSqlAlchemy,
    Block,
    Caller,
    Driver,
    SqlAlchemy,
)
from tests.conformance.django_rig import django_connection
from tests.conformance.ledger import engine_at, sqlalchemy_url

NEW_SQLITE = sys.version_info >= (3, 12)

Opened = AbstractAsyncContextManager[Caller]


@dataclass(frozen=True)
class Kind:
    """One kind of connection; ``open`` takes the URL of a migrated database."""

    name: str
    database: str
    open: Callable[[str], Opened] = field(repr=False)
    asynchronous: bool = False
    available: bool = True
    savepoints: bool = True

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
            yield Driver(connection, begin=begin)
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
                Block(connection, connection.transaction, connection.execute)
                if block
                else Driver(connection)
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

            yield Block(connection, lambda: transaction.atomic(using=connection.alias), execute)

    return opened


def _sqlalchemy(make: Callable[[Any], Any], *, prepared: bool = False) -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        with engine_at(url) as engine:
            if prepared:
                outbox.prepare_sqlite(engine)
            connection = make(engine)
            try:
                yield SqlAlchemy(connection)
            finally:
                connection.close()

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
            yield AsyncSqlAlchemy(connection)
        finally:
            await connection.close()
            await engine.dispose()

    return opened


def _psycopg_async(*, block: bool = False, **options: Any) -> Callable[[str], Opened]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        async with await psycopg.AsyncConnection.connect(url, **options) as connection:
            yield AsyncBlock(connection) if block else AsyncDriver(connection)

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
    Kind("psycopg2", _PG, psycopg2_rig.opened()),
    Kind("psycopg2-autocommit-begin", _PG, psycopg2_rig.opened(autocommit=True)),
    Kind("session-sqlite", _LITE, _sqlalchemy(Session), savepoints=False),
    Kind("session-sqlite-prepared", _LITE, _sqlalchemy(Session, prepared=True)),
    Kind("session-postgresql", _PG, _sqlalchemy(Session)),
    Kind("scoped-session", _LITE, _sqlalchemy(_scoped, prepared=True)),
    Kind("connection-sqlite", _LITE, _sqlalchemy(lambda e: e.connect()), savepoints=False),
    Kind("connection-prepared", _LITE, _sqlalchemy(lambda e: e.connect(), prepared=True)),
    Kind("connection-postgresql", _PG, _sqlalchemy(lambda engine: engine.connect())),
    Kind("django-sqlite", _LITE, _django()),
    Kind("django-postgresql", _PG, _django()),
    Kind(
        "async-session-sqlite",
        _LITE,
        _sqlalchemy_async(_async_session),
        asynchronous=True,
        savepoints=False,
    ),
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
