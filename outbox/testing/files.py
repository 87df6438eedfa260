"""The test's database: a file, migrated once for each process and copied for each test.

Why no database in memory: SQLite gives each connection its own, and a run has several, in
several threads (the one that claims, the one that renews the lease, the job's own). The mode
in which connections share one in memory locks tables instead of waiting, so that a test would
see errors that no production has. A file that nobody waits for to be written is as fast.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from outbox.migrations import migrate


@cache
def template() -> Path:
    """A migrated database to copy; made by the first call, gone when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-"))
    atexit.register(_remove, folder, os.getpid())
    path = folder / "template.db"
    migrate(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        # What is still in the write-ahead log would not be copied.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def _remove(folder: Path, maker: int) -> None:
    """A process that was forked off and ends is not the end of it."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def fresh(path: Path) -> None:
    """Make ``path`` a migrated database. Raises FileExistsError if something is there."""
    with path.open("xb") as file, template().open("rb") as source:
        shutil.copyfileobj(source, file)


def keep(path: Path, copy: Path) -> None:
    """Copy what is committed in the database ``path`` to a file of its own."""
    _copy(path, copy)


def bring_back(copy: Path, path: Path) -> None:
    """Make the database ``path`` what it was, also for those who have it open."""
    _copy(copy, path)


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as of, closing(sqlite3.connect(target)) as to:
        to.execute("PRAGMA synchronous = OFF").close()
        of.backup(to)
