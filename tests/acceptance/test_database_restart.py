"""PostgreSQL goes away under running dispatchers and comes back."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from outbox.migrations import migrate
from tests.acceptance.accounts import resend, smtp
from tests.acceptance.fleet import Fleet, Process
from tests.postgres import Server
from tests.servers.http import HttpServer
from tests.servers.smtp import SmtpServer

HOW = pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])


@pytest.fixture
def server(own_postgres: Server) -> Server:
    migrate(own_postgres.url)
    return own_postgres


def idle(dispatcher: Process, fleet: Fleet) -> None:
    """Return when a dispatcher has nothing to do and polls."""
    dispatcher.wait_for_line("dispatching")
    fleet.until(lambda: set(fleet.states) <= {"accepted"})


@HOW
def test_idle_dispatchers_go_on_after_a_restart(
    server: Server, tmp_path: Path, how: signal.Signals
) -> None:
    """B40: what is enqueued after the restart is sent by the dispatchers that were there before."""
    with SmtpServer() as sink, Fleet(tmp_path, server.url, smtp(sink)) as fleet:
        dispatchers = fleet.start_many(2)
        for each in dispatchers:
            idle(each, fleet)
        for round_number in range(2):
            server.restart(how)
            fleet.enqueue(10, f"round-{round_number}")
            fleet.until(lambda: fleet.states == {"accepted": 10 * (round_number + 1)})
        assert [each.running for each in dispatchers] == [True, True]
        assert [each.terminate() for each in dispatchers] == [0, 0]
        assert len(sink.taken) == 20


def test_dispatchers_whose_sessions_are_ended_go_on(server: Server, tmp_path: Path) -> None:
    """B40: pg_terminate_backend on every session costs nothing but a reconnection."""
    with SmtpServer() as sink, Fleet(tmp_path, server.url, smtp(sink)) as fleet:
        dispatcher = fleet.start()
        idle(dispatcher, fleet)
        for number in range(3):
            with psycopg.connect(server.url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            fleet.enqueue(5, f"round-{number}")
            fleet.until(lambda: fleet.states == {"accepted": 5 * (number + 1)})
        assert dispatcher.terminate() == 0
        assert len(sink.taken) == 15


@HOW
def test_an_answer_that_comes_while_the_database_is_away_is_kept(
    server: Server, tmp_path: Path, how: signal.Signals
) -> None:
    """B40: it is written when the database is back, and nothing is sent a second time."""
    with HttpServer("gated") as stub, Fleet(tmp_path, server.url, resend(stub)) as fleet:
        fleet.enqueue(10)
        dispatcher = fleet.start()
        stub.wait_for(10)
        server.stop(how)
        dispatcher.wait_for_line("the database is away") if False else None
        stub.open_gate()
        dispatcher.wait_for_line("the database is away")
        server.start()
        fleet.until(lambda: fleet.states == {"accepted": 10})
        assert len(stub.received) == 10
        assert dispatcher.terminate() == 0


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
