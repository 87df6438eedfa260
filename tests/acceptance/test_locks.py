"""What holds no lock: a send that hangs, and many processes on one SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import outbox
from tests.acceptance.accounts import resend, smtp
from tests.acceptance.fleet import Fleet
from tests.acceptance.sinks import Stub
from tests.conformance.ledger import change, rows
from tests.servers.smtp import SmtpServer


def test_while_a_send_hangs_everybody_else_may_write_and_ask(
    sqlite_url: str, tmp_path: Path
) -> None:
    """B38: an application's write, a cancel and the command line answer before the provider does."""
    change(sqlite_url, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with Stub("gated") as stub, Fleet(tmp_path, sqlite_url, resend(stub)) as fleet:
        fleet.enqueue_keys(["k"])
        dispatcher = fleet.start()
        stub.wait_for(1)
        path = sqlite_url.removeprefix("sqlite:///")
        # A second is all that each of these waits for a lock.
        with closing(sqlite3.connect(path, isolation_level=None, timeout=1.0)) as application:
            application.execute("INSERT INTO orders VALUES (1)")
            with outbox.transaction(application):
                application.execute("INSERT INTO orders VALUES (2)")
                asked = outbox.cancel(application, "k")
        assert isinstance(asked, outbox.Requested)
        status = fleet.postroom("status", "--json")
        shown = fleet.postroom("deliveries", "show", "k", "--json")
        assert (status.code, shown.code) == (0, 0)
        assert shown.json["state"] == "sending"
        # The provider has not answered yet.
        assert fleet.states == {"sending": 1}
        stub.open_gate()
        fleet.until(lambda: fleet.states == {"accepted": 1})
        assert dispatcher.terminate() == 0
        assert len(stub.received) == 1


def test_while_a_send_hangs_no_session_has_a_transaction_open(
    postgres_url: str, tmp_path: Path
) -> None:
    """B38: of the transactions that began before the request left, none is open while it hangs."""
    with Stub("gated") as stub, Fleet(tmp_path, postgres_url, resend(stub)) as fleet:
        fleet.enqueue_keys(["k"])
        dispatcher = fleet.start()
        stub.wait_for(1)
        fleet.until(
            lambda: (
                rows(
                    postgres_url,
                    "SELECT count(*) FROM pg_stat_activity, outbox_attempts "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                    "AND xact_start <= transmitting_at",
                )
                == [(0,)]
            )
        )
        asked = fleet.postroom("deliveries", "show", "k", "--json")
        assert (asked.code, asked.json["state"]) == (0, "sending")
        assert fleet.states == {"sending": 1}
        stub.open_gate()
        fleet.until(lambda: fleet.states == {"accepted": 1})
        assert dispatcher.terminate() == 0


PRODUCER = """
import sqlite3
import sys

import outbox
from tests.acceptance.fleet import small

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = sqlite3.connect(path, isolation_level=None, timeout=30)
for number in range(count):
    key = f"{name}:{number}"
    with outbox.transaction(connection):
        # Read, then write: with a deferred BEGIN this fails at once when somebody else committed.
        connection.execute("SELECT count(*) FROM orders").fetchone()
        connection.execute("INSERT INTO orders (name) VALUES (?)", (key,))
        done = outbox.enqueue(connection, small(key), key=key)
    print(done.key, flush=True)
"""


def test_many_processes_on_one_sqlite_file_never_meet_a_lock(
    sqlite_url: str, tmp_path: Path
) -> None:
    """B39: four producers, four dispatchers and somebody who looks: all succeed, all is sent."""
    change(sqlite_url, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    path, count = sqlite_url.removeprefix("sqlite:///"), 100
    with SmtpServer() as sink, Fleet(tmp_path, sqlite_url, smtp(sink)) as fleet:
        dispatchers = fleet.start_many(4)
        producers = [fleet.run(PRODUCER, path, f"p{n}", str(count)) for n in range(4)]
        looked = 0
        while any(producer.running for producer in producers) or not looked:
            listed = fleet.postroom("deliveries", "list", "--json")
            assert (listed.code, listed.err) == (0, "")
            looked += 1
        assert [producer.wait() for producer in producers] == [0, 0, 0, 0]
        succeeded = {key for producer in producers for key in producer.out}
        assert len(succeeded) == 4 * count
        fleet.until(lambda: fleet.states == {"accepted": 4 * count})
        assert {each.terminate() for each in dispatchers} == {0}
        keys = {
            str(key) for (key,) in rows(sqlite_url, "SELECT delivery_key FROM outbox_deliveries")
        }
        assert keys == succeeded
        assert rows(sqlite_url, "SELECT count(*) FROM orders") == [(4 * count,)]
        assert len(sink.taken) == 4 * count
        locked = [line for each in fleet.processes for line in each.log if "locked" in line]
        assert locked == []
