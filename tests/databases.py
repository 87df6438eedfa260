"""Databases for tests: a fresh one for each, copied from a migrated template."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.session import Session, locked

Admin = psycopg.Connection[tuple[Any, ...]]


def named(url: str, database: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@contextmanager
def _admin(url: str) -> Iterator[Admin]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def _run(connection: Admin, statement: LiteralString, **names: str) -> None:
    parts = {key: sql.Identifier(name) for key, name in names.items()}
    connection.execute(sql.SQL(statement).format(**parts))


@contextmanager
def fresh_postgres(session: Session, *, migrated: bool) -> Iterator[str]:
    """A database of its own; dropped at the end, whoever is still connected."""
    server = session.server_url()
    template = _postgres_template(session, server) if migrated else "template1"
    name = session.prefix + token_hex(6)
    with _admin(server) as connection:
        _run(connection, "CREATE DATABASE {name} TEMPLATE {template}", name=name, template=template)
    try:
        yield named(server, name)
    finally:
        with _admin(server) as connection:
            _run(connection, "DROP DATABASE IF EXISTS {name} WITH (FORCE)", name=name)


def _postgres_template(session: Session, server: str) -> str:
    name, made = session.prefix + "template", session.folder / "postgres-template.made"
    with locked(session.folder / "postgres-template.lock"):
        if not made.exists():
            with _admin(server) as connection:
                _run(connection, "DROP DATABASE IF EXISTS {name} WITH (FORCE)", name=name)
                _run(connection, "CREATE DATABASE {name}", name=name)
                _migrate(named(server, name))
                # A connection to a template makes the next copy of it fail.
                _run(connection, "ALTER DATABASE {name} ALLOW_CONNECTIONS false", name=name)
            made.touch()
    return name


def drop_all(server: str, prefix: str) -> None:
    """Drop every database whose name begins with ``prefix``."""
    with _admin(server) as connection:
        rows = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [prefix]
        )
        for (name,) in rows.fetchall():
            _run(connection, "DROP DATABASE IF EXISTS {name} WITH (FORCE)", name=name)


def sqlite_at(path: Path) -> str:
    """The URL of the SQLite file ``path``."""
    return f"sqlite:///{path}"


def fresh_sqlite(session: Session, path: Path) -> str:
    """Copy the migrated template to ``path``; the URL of the copy."""
    template = session.folder / "template.db"
    made = session.folder / "sqlite-template.made"
    with locked(session.folder / "sqlite-template.lock"):
        if not made.exists():
            template.unlink(missing_ok=True)
            _migrate(sqlite_at(template))
            # What is still in the write-ahead log would not be copied.
            with closing(sqlite3.connect(template)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            made.touch()
    shutil.copyfile(template, path)
    return sqlite_at(path)


def _migrate(url: str) -> None:
    from outbox.migrations import migrate

    migrate(url)
