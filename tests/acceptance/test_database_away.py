"""PostgreSQL is away for a while: a dispatcher waits without burning the machine, and goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outbox.migrations import migrate
from tests.acceptance.matrix import KeyProvider, configuration, enqueue, start, until_settled
from tests.acceptance.zygote import Forked, Zygote
from tests.conformance.ledger import rows
from tests.long_forms import LONG
from tests.postgres import Server
from tests.servers.resend import ResendServer

AWAY = 30.0 if LONG else 2.0
"""Seconds for which the server is stopped."""


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    with Zygote(tmp_path) as zygote:
        yield zygote


def _cpu(process: Forked) -> float:
    """Seconds of processor time used so far (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_an_outage_costs_little_and_nothing_waits_afterwards(
    zygote: Zygote, own_postgres: Server, tmp_path: Path
) -> None:
    """B40: sessions cut, then the server stopped: less than a fifth of one processor meanwhile, the
    log says it, and what is enqueued afterwards is sent by the same process."""
    migrate(own_postgres.url)
    with ResendServer() as server:
        config = configuration(tmp_path, {"main": KeyProvider(server).toml})
        process = start(zygote, own_postgres.url, config)
        process.wait_until_ready()
        with psycopg.connect(own_postgres.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        own_postgres.stop()
        process.wait_for_line("the database is away")
        used, began = _cpu(process), time.monotonic()
        time.sleep(AWAY)  # how much is used in a time cannot be seen without the time
        share = (_cpu(process) - used) / (time.monotonic() - began)
        own_postgres.start()
        enqueue(own_postgres.url, ["after"])
        until_settled(own_postgres.url, ["after"], process)
        assert process.terminate() == 0, process.said
        assert share < 0.2
        assert len(server.accepted) == 1


def test_an_answer_that_comes_during_an_outage_is_written_after_it(
    zygote: Zygote, own_postgres: Server, tmp_path: Path
) -> None:
    """B40: the result is kept and written when the database is back; nothing is sent again."""
    migrate(own_postgres.url)
    with ResendServer("emulated:gated") as server:
        config = configuration(tmp_path, {"main": KeyProvider(server).toml})
        enqueue(own_postgres.url, ["k"])
        process = start(zygote, own_postgres.url, config)
        server.wait_for_accepted(1)
        own_postgres.stop()
        server.open_gate()
        process.wait_for_line("the database is away")
        own_postgres.start()
        until_settled(own_postgres.url, ["k"], process)
        assert process.terminate() == 0, process.said
        assert len(server.received) == 1
    assert rows(own_postgres.url, "SELECT state, last_attempt FROM outbox_deliveries") == [
        ("accepted", 1)
    ]
