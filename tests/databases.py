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
from tests.spare import Template, disconnected

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
    """A database of its own; gone at the end, whoever is still connected."""
    server = session.server_url()
    if migrated and _spare:
        name = _spare.pop()
    else:
        template = _postgres_template(session, server) if migrated else "template1"
        name = session.prefix + token_hex(6)
        with _admin(server) as connection:
            _run(
                connection,
                "CREATE DATABASE {name} TEMPLATE {template}",
                name=name,
                template=template,
            )
    fresh = _look(named(server, name)) if migrated else None
    try:
        yield named(server, name)
    finally:
        if fresh is None or not _keep(session, server, name, fresh):
            with _admin(server) as connection:
                _run(connection, "DROP DATABASE IF EXISTS {name} WITH (FORCE)", name=name)


_spare: list[str] = []
"""Migrated databases that were used and are as new; this process's own."""

_looked: list[Template] = []


def _look(url: str) -> Template:
    """What every migrated database looks like before its first use."""
    if not _looked:
        with _admin(url) as connection:
            _looked.append(Template(connection))
    return _looked[0]


def _keep(session: Session, server: str, name: str, fresh: Template) -> bool:
    """Make a used database a spare one, under another name; False if it cannot be."""
    renamed = session.prefix + token_hex(6)
    with _admin(server) as connection:
        if not disconnected(connection, name):
            return False
        try:
            _run(
                connection, "ALTER DATABASE {name} RENAME TO {renamed}", name=name, renamed=renamed
            )
        except psycopg.Error:
            return False  # it is gone, or somebody is quicker than we are
    try:
        with _admin(named(server, renamed)) as connection:
            restored = fresh.restore(connection)
    except psycopg.Error:
        restored = False  # only a superuser may delete rows in any order
    if restored:
        _spare.append(renamed)
    else:
        with _admin(server) as connection:
            _run(connection, "DROP DATABASE IF EXISTS {name} WITH (FORCE)", name=renamed)
    return True


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
