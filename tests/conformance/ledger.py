"""What stands in a database, seen from outside any producer's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import Engine, create_engine

import outbox

_TABLES = (
    "outbox_deliveries",
    "outbox_recipients",
    "outbox_delivery_blobs",
    "outbox_blobs",
    "invoices",
)


@dataclass(frozen=True)
class Counts:
    """Rows of the outbox, and of the application's own table beside it."""

    deliveries: int = 0
    recipients: int = 0
    links: int = 0
    blobs: int = 0
    invoices: int = 0


NOTHING = Counts()


@contextmanager
def raw(url: str) -> Iterator[Any]:
    """A driver's connection that commits each statement."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as lite:
            yield lite
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            yield connection


def sqlalchemy_url(url: str, *, asynchronous: bool = False) -> str:
    """``url`` with the driver's name in it."""
    if url.startswith("sqlite"):
        return url.replace("sqlite:", "sqlite+aiosqlite:") if asynchronous else url
    return url.replace("postgresql:", "postgresql+psycopg:")


@contextmanager
def engine_at(url: str, **options: Any) -> Iterator[Engine]:
    """An engine of the application's own, disposed of at the end."""
    engine = create_engine(sqlalchemy_url(url), **options)
    try:
        yield engine
    finally:
        engine.dispose()


def rows(url: str, sql: str) -> Sequence[tuple[Any, ...]]:
    """The rows of one query, on a connection of its own."""
    with raw(url) as connection:
        return list(connection.execute(sql).fetchall())


def change(url: str, *statements: str) -> None:
    """Run statements, each committed by itself, on a connection of their own."""
    with raw(url) as connection:
        for sql in statements:
            connection.execute(sql)


def counts(url: str) -> Counts:
    """What is committed."""
    parts = ", ".join(f"(SELECT count(*) FROM {table})" for table in _TABLES)
    return Counts(*rows(url, f"SELECT {parts}")[0])


def with_invoices(url: str) -> str:
    """The application's own table, made beside ours."""
    change(url, "CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
    return url


def mail(
    text: str = "Hello", *, to: str = "ana@example.org", files: Sequence[Any] = ()
) -> outbox.Email:
    """A small message, with these contents attached."""
    return outbox.Email(
        to=to,
        subject="Your report",
        text=text,
        attachments=[
            outbox.Attachment(f"{n}.bin", content) for n, content in enumerate(files, start=1)
        ],
    )


def one_mail(url: str, key: str = "invoice:7:owner", **options: Any) -> outbox.Enqueued:
    """Enqueue one message on a connection of its own, committed."""
    message = options.pop("message", None) or mail()
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as lite:
            return outbox.enqueue(lite, message, key=key, own_transaction=True, **options)
    with psycopg.connect(url) as connection:
        return outbox.enqueue(connection, message, key=key, own_transaction=True, **options)
