"""PostgreSQL goes away under running dispatchers and comes back."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from outbox.migrations import migrate
from tests.acceptance.accounts import forget_leases, resend, smtp
from tests.acceptance.fleet import Fleet
from tests.acceptance.sinks import Stub
from tests.postgres import Server
from tests.servers.smtp import SmtpServer

HOW = pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])


@pytest.fixture
def server(own_postgres: Server) -> Server:
    migrate(own_postgres.url)
    return own_postgres


def accepted(fleet: Fleet, count: int) -> None:
    """Return when there are so many deliveries, all accepted."""
    fleet.until(lambda: fleet.states == {"accepted": count})


@HOW
def test_idle_dispatchers_go_on_after_a_restart(
    server: Server, tmp_path: Path, how: signal.Signals
) -> None:
    """B40: what is enqueued after the restart is sent by the dispatchers that were there before."""
    with SmtpServer() as sink, Fleet(tmp_path, server.url, smtp(sink)) as fleet:
        dispatchers = fleet.start_many(2)
        for each in dispatchers:
            each.wait_for_line("dispatching")
        for restarts in (1, 2):
            server.restart(how)
            fleet.enqueue(10, f"round-{restarts}")
            accepted(fleet, 10 * restarts)
        assert [each.running for each in dispatchers] == [True, True]
        assert [each.terminate() for each in dispatchers] == [0, 0]
        assert len(sink.taken) == 20


def test_dispatchers_whose_sessions_are_ended_go_on(server: Server, tmp_path: Path) -> None:
    """B40: pg_terminate_backend on every session costs nothing but a reconnection."""
    with SmtpServer() as sink, Fleet(tmp_path, server.url, smtp(sink)) as fleet:
        dispatcher = fleet.start()
        dispatcher.wait_for_line("dispatching")
        for rounds in (1, 2, 3):
            with psycopg.connect(server.url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            fleet.enqueue(5, f"round-{rounds}")
            accepted(fleet, 5 * rounds)
        assert dispatcher.terminate() == 0
        assert len(sink.taken) == 15


@HOW
def test_an_answer_that_comes_while_the_database_is_away_is_kept(
    server: Server, tmp_path: Path, how: signal.Signals
) -> None:
    """B40: it is written when the database is back, though the lease is over; nothing leaves twice."""
    with Stub("gated") as stub, Fleet(tmp_path, server.url, resend(stub)) as fleet:
        fleet.enqueue(10)
        dispatcher = fleet.start()
        stub.wait_for(10)
        forget_leases(fleet.url)
        server.stop(how)
        dispatcher.wait_for_line("the database is away")
        stub.open_gate()
        server.start()
        accepted(fleet, 10)
        assert len(stub.received) == 10
        assert dispatcher.terminate() == 0


def test_a_database_that_is_away_is_not_run_down(server: Server, tmp_path: Path) -> None:
    """B40: with results to write and leases to renew, it is asked a few times a second at most."""
    with (
        Stub("gated") as stub,
        Fleet(tmp_path, server.url, resend(stub), lease="5s", poll="1s") as fleet,
    ):
        fleet.enqueue(1)
        dispatcher = fleet.start()
        stub.wait_for(1)
        began = time.monotonic()
        server.stop()
        with knocking(port_of(server)) as knocks:
            # Renewing comes due after some ten of these.
            fleet.until(lambda: len(knocks) >= 30)
            assert len(knocks) <= 3 + 10 * (time.monotonic() - began)
        server.start()
        stub.open_gate()
        accepted(fleet, 1)
        assert dispatcher.terminate() == 0


IMPATIENT = """
import sys
import dispatcher.loop
from dispatcher.cli import main

dispatcher.loop.GIVE_UP_AFTER = 0.5
sys.argv = ["postroom", "dispatch", "--drain"]
main()
"""


def test_a_drain_that_loses_its_database_ends_with_a_send_still_open(
    server: Server, tmp_path: Path
) -> None:
    """It waits for the database for a while, then exits 3 with one line, and does not hang."""
    with Stub("gated") as stub, Fleet(tmp_path, server.url, resend(stub)) as fleet:
        fleet.enqueue(2)
        drain = fleet.run(IMPATIENT)
        stub.wait_for(2)
        server.stop()
        assert drain.wait() == 3
        assert drain.log[-1].startswith("postroom: the database cannot be used: ")


FORGETFUL = """
import sys
import dispatcher.loop
from dispatcher.cli import main
from sqlalchemy.exc import OperationalError

asked = dispatcher.loop.backlog
losses = [OperationalError("SELECT", {}, Exception("the connection is lost"))]


async def backlog(*arguments):
    if losses:
        raise losses.pop()
    return await asked(*arguments)


dispatcher.loop.backlog = backlog
sys.argv = ["postroom", "dispatch", "--drain"]
main()
"""


def test_a_drain_bears_a_loss_just_when_it_asks_what_is_left(
    sqlite_url: str, tmp_path: Path
) -> None:
    """The connection breaks at that very question, which nobody can time: it asks again."""
    with SmtpServer() as sink, Fleet(tmp_path, sqlite_url, smtp(sink)) as fleet:
        fleet.enqueue(3)
        drain = fleet.run(FORGETFUL)
        assert (drain.wait(), drain.out) == (0, ["nothing is left"])
        assert len(sink.taken) == 3


def port_of(server: Server) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port


@contextmanager
def knocking(port: int) -> Iterator[list[int]]:
    """Listen where the server was; how often anybody came is the length of the list."""
    knocks: list[int] = []
    with socket.create_server(("127.0.0.1", port)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, (_, peer) = listener.accept()
                    knocks.append(peer)
                    connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield knocks
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
