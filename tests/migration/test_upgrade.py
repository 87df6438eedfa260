"""From the schema before this one, with a hundred thousand rows in it and producers at work (B41)."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import text

from outbox import migrations
from tests.conformance.ledger import engine_at, raw, rows
from tests.migration.test_migrations import processes

ROWS = 100_000
EARLIER = "0001"

_NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) ",
    "postgresql": "WITH n(i) AS (SELECT generate_series(1, {rows})) ",
}
_FILL = (
    "INSERT INTO outbox_deliveries (delivery_key, message, account, state, finished_at) "
    "{numbers} SELECT 'old:' || i, '{{\"to\": [\"ana@example.org\"]}}', 'main', "
    "CASE WHEN i % 10 = 0 THEN 'pending' ELSE 'accepted' END, "
    "CASE WHEN i % 10 = 0 THEN NULL ELSE '2026-01-01T00:00:00.000Z'{cast} END FROM n"
)


@pytest.fixture
def earlier_url(empty_database_url: str) -> str:
    """A database at the revision before, with many finished rows and some that wait."""
    dialect = empty_database_url.partition(":")[0]
    cast = "::timestamptz" if dialect == "postgresql" else ""
    with engine_at(empty_database_url) as engine, engine.begin() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context) as op:
            migrations.upgrade(op, to=EARLIER)
        numbers = _NUMBERS[dialect].format(rows=ROWS)
        connection.execute(text(_FILL.format(numbers=numbers, cast=cast)))
    return empty_database_url


class Producer(threading.Thread):
    """Enqueues by plain SQL, a transaction each, as a job of the earlier release would."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.enqueued = 0
        self.enough = threading.Event()
        self.failed: list[Exception] = []

    def run(self) -> None:
        try:
            with raw(self.url) as connection:
                if self.url.startswith("sqlite"):
                    connection.execute("PRAGMA busy_timeout = 60000")
                while not self.enough.is_set():
                    connection.execute(
                        "INSERT INTO outbox_deliveries (delivery_key, message) VALUES "
                        f"('new:{self.enqueued}', '{{\"to\": [\"ana@example.org\"]}}')"
                    )
                    self.enqueued += 1
        except Exception as error:  # noqa: BLE001  (whatever it is, the test says it)
            self.failed.append(error)

    def has_enqueued(self, more: int) -> None:
        wanted = self.enqueued + more
        while self.enqueued < wanted and not self.failed:
            time.sleep(0.005)


def test_an_upgrade_with_many_rows_and_producers_at_work(earlier_url: str) -> None:
    """One process is killed in the middle and six go on at once: every row is there, whoever wrote
    it, and no producer saw an error."""
    producer = Producer(earlier_url)
    producer.start()
    try:
        producer.has_enqueued(20)
        killed = processes(1, earlier_url, kill_before=6)
        assert killed == [f"status {int(signal.SIGKILL)}"]
        assert rows(earlier_url, "SELECT version_num FROM outbox_schema_version") == [(EARLIER,)]
        said = processes(6, earlier_url)
        head = repr(migrations.HEAD)
        assert said == [repr(EARLIER)] + [head] * 5 + ["status 0"] * 6
        producer.has_enqueued(20)
    finally:
        producer.enough.set()
        producer.join()
    assert producer.failed == []
    [(count, waiting)] = rows(
        earlier_url,
        "SELECT count(*), sum(CASE WHEN state = 'pending' THEN 1 ELSE 0 END) FROM outbox_deliveries",
    )
    assert (count, waiting) == (ROWS + producer.enqueued, ROWS // 10 + producer.enqueued)
    assert rows(earlier_url, "SELECT version_num FROM outbox_schema_version") == [
        (migrations.HEAD,)
    ]
