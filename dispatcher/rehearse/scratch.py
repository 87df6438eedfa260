"""The scratch database of a rehearsal: made with a random name, gone at the end, come what may.

PostgreSQL: a schema in the configured database. SQLite: a file in a folder of its own beside
the configured file, so that what the drills say about locks and flushes holds for the disk
that the real one is on; where that folder is not there yet or not ours to write, in the
system's folder for temporary files.

While the scratch is being dropped Ctrl-C and SIGTERM are ignored. A rehearsal that is killed
outright leaves its scratch behind; its name says what it is.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import DropSchema

from dispatcher.config import Config
from dispatcher.database_errors import first_line
from dispatcher.operator import sqlite_file
from dispatcher.rehearse import interruption
from outbox import migrations
from outbox.database import open_engine, parse_url
from outbox.errors import InvalidDatabase

PREFIX = "postroom_rehearsal_"
_LOCK_WAIT = "20s"


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where a rehearsal may write. ``folder`` holds what the fakes took."""

    url: str
    schema: str | None
    folder: Path

    @property
    def kind(self) -> str:
        """``postgresql`` or ``sqlite``."""
        return parse_url(self.url).get_backend_name()


@contextmanager
def opened(config: Config) -> Iterator[Scratch]:
    """A migrated scratch database on the configured server or disk.

    Raises ConfigError when the database's URL leads nowhere, and InvalidDatabase when the
    database is away or nothing may be created in it.
    """
    url = config.database_url()
    file = sqlite_file(url)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=None if file is None else _beside(file)))
    name = f"{PREFIX}{secrets.token_hex(6)}"
    if parse_url(url).get_backend_name() == "sqlite":
        file = folder / "scratch.db"
        scratch = Scratch(URL.create("sqlite", database=str(file)).render_as_string(), None, folder)
    else:
        scratch = Scratch(url, name, folder)
    made = True
    try:
        try:
            _migrate(scratch)
        except Exception:
            made = False  # it is one transaction: nothing of it is there
            raise
        yield scratch
    finally:
        with interruption.ignored():
            try:
                if made and scratch.schema is not None:
                    _drop(scratch.url, scratch.schema)
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def _beside(file: Path) -> Path | None:
    usable = file.parent.is_dir() and os.access(file.parent, os.W_OK | os.X_OK)
    return file.parent if usable else None


def _migrate(scratch: Scratch) -> None:
    try:
        migrations.migrate(scratch.url, schema=scratch.schema)
    except InvalidDatabase as error:
        if "permission denied" not in str(error):
            raise
        raise InvalidDatabase(
            "a rehearsal needs a scratch schema, and this role may not create one: "
            "GRANT CREATE ON DATABASE … TO …, or rehearse in another database"
        ) from error


def _drop(url: str, schema: str) -> None:
    """Drop the schema if it is there. A database that went away keeps it: then its name is said."""
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'"))
            connection.execute(DropSchema(schema, cascade=True, if_exists=True))
    except DBAPIError as error:
        raise InvalidDatabase(
            f'the scratch schema is still there: DROP SCHEMA "{schema}" CASCADE '
            f"({first_line(error)})"
        ) from error
    finally:
        engine.dispose()
