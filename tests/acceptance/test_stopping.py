"""SIGTERM at any moment: what is on its way finishes, the rest goes back, nothing is lost."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.accounts import forget_leases, resend, smtp
from tests.acceptance.fleet import PATIENCE, Fleet
from tests.acceptance.sinks import Stub
from tests.conformance.ledger import rows
from tests.servers.smtp import SmtpServer


def leased(fleet: Fleet) -> int:
    """How many rows are under a lease."""
    [(count,)] = rows(
        fleet.url,
        "SELECT count(*) FROM outbox_deliveries "
        "WHERE lease_owner IS NOT NULL OR lease_expires_at IS NOT NULL OR state = 'sending'",
    )
    return int(count)


def keys(stub: Stub) -> list[str]:
    """The keys of what was sent; a request that broke off before its body was no request."""
    return [request.key or "" for request in stub.received if request.whole]


def test_sigterm_lets_what_is_on_its_way_finish_and_begins_nothing_more(
    database_url: str, tmp_path: Path
) -> None:
    """B32: four requests are open; they are accepted, the other sixteen stay pending, exit 0."""
    with (
        Stub("gated") as stub,
        Fleet(tmp_path, database_url, resend(stub), concurrency=4) as fleet,
    ):
        fleet.enqueue(20)
        dispatcher = fleet.start()
        stub.wait_for(4)
        dispatcher.signal(signal.SIGTERM)
        dispatcher.wait_for_line("stopping")
        stub.open_gate()
        assert dispatcher.wait() == 0
        assert len(set(keys(stub))) == len(keys(stub)) == 4
        assert fleet.states == {"accepted": 4, "pending": 16}
        assert rows(fleet.url, "SELECT count(*) FROM outbox_attempts") == [(4,)]
        assert leased(fleet) == 0
        assert rows(fleet.url, "SELECT owner FROM outbox_dispatchers") == []


@pytest.mark.parametrize("kind", ["http", "smtp"])
def test_sigterm_gives_rows_back_that_wait_for_a_connection(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    """B32: what was claimed and has not begun is released at once, not when a send has ended."""
    stub, sink = Stub("gated"), SmtpServer(steps={"dot": ("hang",)})
    account = {
        "http": resend(stub, connections=2, timeouts={"pool": "5m"}),
        "smtp": smtp(sink, connections=2),
    }[kind]
    with stub, sink, Fleet(tmp_path, database_url, account, concurrency=20) as fleet:
        fleet.enqueue(20)
        dispatcher = fleet.start()
        if kind == "http":
            stub.wait_for(2)
        else:
            sink.wait_for(lambda: len(sink.taken) == 2, PATIENCE)
        fleet.until(lambda: leased(fleet) == 20)
        dispatcher.signal(signal.SIGTERM)
        # The two are still open: nobody has answered them.
        fleet.until(lambda: leased(fleet) == 2)
        assert fleet.states == {"sending": 2, "pending": 18}
        dispatcher.signal(signal.SIGTERM)
        assert dispatcher.wait() == 0
        assert fleet.states == {"in_doubt": 2, "pending": 18}
        assert leased(fleet) == 0


def test_what_does_not_finish_within_the_grace_period_is_in_doubt(
    database_url: str, tmp_path: Path
) -> None:
    """The grace period ends a send that hangs; its row says why it is in doubt, and exit is 0."""
    with (
        Stub("hang") as stub,
        Fleet(tmp_path, database_url, resend(stub), grace="100ms") as fleet,
    ):
        fleet.enqueue(1)
        dispatcher = fleet.start()
        stub.wait_for(1)
        assert dispatcher.terminate() == 0
        [(state, error)] = rows(fleet.url, "SELECT state, last_error FROM outbox_deliveries")
        assert state == "in_doubt"
        assert "grace period" in str(error)
        assert leased(fleet) == 0


def test_sigterm_and_then_sigkill_loses_nothing(database_url: str, tmp_path: Path) -> None:
    """B32: killed inside the grace period; after a restart every message has one key, none is lost."""
    with (
        Stub("gated*4", "ok") as stub,
        Fleet(tmp_path, database_url, resend(stub), concurrency=4) as fleet,
    ):
        fleet.enqueue(20)
        dispatcher = fleet.start()
        stub.wait_for(4)
        dispatcher.signal(signal.SIGTERM)
        dispatcher.wait_for_line("stopping")
        dispatcher.signal(signal.SIGKILL)
        assert dispatcher.wait() == -signal.SIGKILL
        forget_leases(fleet.url)
        assert fleet.start("--drain").wait() == 0
        assert fleet.states == {"accepted": 20}
        # The four that were open are asked for again under their keys, with the same bytes.
        assert sorted(Counter(keys(stub)).values()) == [1] * 16 + [2] * 4
        assert len({request.sha256 for request in stub.received}) == 20


def test_sigterm_at_any_moment_of_claiming_and_sending(database_url: str, tmp_path: Path) -> None:
    """B32: stopped after each of the first requests in turn, ten times: no lease, no doubt stays."""
    with (
        Stub("slowok:0.02") as stub,
        Fleet(tmp_path, database_url, resend(stub), concurrency=4) as fleet,
    ):
        names = fleet.enqueue(100)
        for moment in range(10):
            dispatcher = fleet.start()
            before = len(stub.received)
            dispatcher.wait_for_line("dispatching")
            stub.wait_for(before + moment)
            assert dispatcher.terminate() == 0
            sent = len(keys(stub))
            assert leased(fleet) == 0
            assert fleet.states["accepted"] == sent
            assert fleet.states["pending"] == len(names) - sent
        assert fleet.start("--drain").wait() == 0
        assert len(set(keys(stub))) == len(keys(stub)) == len(names)
        assert fleet.states == {"accepted": len(names)}
