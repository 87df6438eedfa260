"""What the dispatcher's own connections insist on: a mark is only as good as its commit (A20)."""

from __future__ import annotations

import socket
import sys

import pytest
from sqlalchemy import text

from outbox.database import open_async_engine, open_engine
from tests.conformance.ledger import change


def _asked(url: str, statement: str) -> object:
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            return connection.execute(text(statement)).scalar()
    finally:
        engine.dispose()


async def _asked_async(url: str, statement: str) -> object:
    engine = open_async_engine(url)
    try:
        async with engine.connect() as connection:
            return (await connection.execute(text(statement))).scalar()
    finally:
        await engine.dispose()


async def test_commits_on_sqlite_reach_the_disk(sqlite_url: str) -> None:
    """With WAL and NORMAL a mark could vanish at a power loss, and the message leave again."""
    full = 2  # sqlite.org/pragma.html#pragma_synchronous
    assert _asked(sqlite_url, "PRAGMA synchronous") == full
    assert await _asked_async(sqlite_url, "PRAGMA synchronous") == full
    assert _asked(sqlite_url, "PRAGMA journal_mode") == "wal"


@pytest.mark.parametrize("setting", ["off", "local"])
async def test_commits_on_postgresql_wait_for_the_log(postgres_url: str, setting: str) -> None:
    """A database that is set to answer before its log is written is overruled, for our sessions;
    any setting that waits is the administrator's to choose."""
    name = postgres_url.rpartition("/")[2]
    change(postgres_url, f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
    expected = "on" if setting == "off" else setting
    assert _asked(postgres_url, "SHOW synchronous_commit") == expected
    assert await _asked_async(postgres_url, "SHOW synchronous_commit") == expected


@pytest.mark.skipif(sys.platform != "linux", reason="the option's name is Linux's")
def test_a_connection_that_was_cut_silently_is_noticed(postgres_url: str) -> None:
    """B40: nobody says that a firewall drops the packets; the kernel gives up after half a minute."""
    engine = open_engine(postgres_url)
    try:
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            with socket.fromfd(driver.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy:
                unanswered = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                assert 0 < unanswered <= 30_000
                assert copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                idle = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                every = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
                count = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
                assert idle + every * count <= 30
    finally:
        engine.dispose()


def test_the_urls_own_settings_of_the_connection_win(postgres_url: str) -> None:
    """What an administrator says in the URL is not overruled."""
    engine = open_engine(f"{postgres_url}?tcp_user_timeout=5000&application_name=mine")
    try:
        with engine.connect() as connection:
            assert connection.execute(text("SHOW application_name")).scalar() == "mine"
            driver = connection.connection.driver_connection
            assert driver is not None
            assert driver.info.get_parameters()["tcp_user_timeout"] == "5000"
    finally:
        engine.dispose()
