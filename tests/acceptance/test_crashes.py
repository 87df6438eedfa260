"""Dispatchers that are killed or stand still while they hold deliveries."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.accounts import forget_leases, resend, smtp
from tests.acceptance.fleet import PATIENCE, Fleet, Process
from tests.acceptance.sinks import HeldSink, Stub
from tests.conformance.ledger import change, rows


def attempts(fleet: Fleet, key: str) -> list[tuple[str, str | None]]:
    found = rows(
        fleet.url,
        "SELECT phase, outcome FROM outbox_attempts a JOIN outbox_deliveries d "
        f"ON d.id = a.delivery_id WHERE delivery_key = '{key}' ORDER BY number",
    )
    return [(str(phase), outcome) for phase, outcome in found]


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def state(fleet: Fleet, key: str) -> str:
    [found] = fleet.one(f"SELECT state FROM outbox_deliveries WHERE delivery_key = '{key}'")
    return str(found)


def evidence(fleet: Fleet) -> list[tuple[str, int, str]]:
    found = rows(
        fleet.url,
        "SELECT delivery_key, attempt, verdict FROM outbox_evidence e JOIN outbox_deliveries d "
        "ON d.id = e.delivery_id ORDER BY delivery_key, attempt",
    )
    return [(str(key), int(attempt), str(verdict)) for key, attempt, verdict in found]


# -- killed ------------------------------------------------------------------- #


@pytest.mark.parametrize("registry", ["its row stays", "its row is gone"])
def test_killed_before_transmitting_the_row_is_taken_again(
    database_url: str, tmp_path: Path, registry: str
) -> None:
    """B29: no byte had left, so the next dispatcher sends; who is registered plays no part."""
    with HeldSink("rcpt") as sink, Fleet(tmp_path, database_url, smtp(sink), lease="5s") as fleet:
        fleet.enqueue_keys(["k"])
        first = fleet.start()
        sink.wait_until_held()
        first.kill()
        if registry == "its row is gone":
            change(fleet.url, "DELETE FROM outbox_dispatchers")
        # The same host, at once: it must not look like the owner of the lease.
        second = fleet.start("--drain")
        assert second.wait() == 0
        assert attempts(fleet, "k") == [("settled", "not_started"), ("settled", "accepted")]
        assert len(sink.taken) == 1
        owners = rows(fleet.url, "SELECT count(DISTINCT owner) FROM outbox_attempts")
        assert owners == [(2,)]


def test_killed_while_transmitting_the_row_is_doubtful_and_stays_unsent(
    database_url: str, tmp_path: Path
) -> None:
    """B29: bytes may have left, so nobody sends it again; the other rows go on."""
    with HeldSink("dot") as sink, Fleet(tmp_path, database_url, smtp(sink), lease="5s") as fleet:
        fleet.enqueue_keys(["lost"])
        first = fleet.start()
        sink.wait_until_held()
        assert attempts(fleet, "lost") == [("transmitting", None)]
        first.kill()
        forget_leases(fleet.url)
        fleet.enqueue_keys(["other"])
        assert fleet.start("--drain").wait() == 1
        assert fleet.start("--drain").wait() == 1
        assert attempts(fleet, "lost") == [("settled", "lost")]
        # This server can prove nothing, so a person has to decide.
        assert fleet.states == {"held": 1, "accepted": 1}
        assert [each.recipients for each in sink.taken] == [("ana@example.org",)]
        assert sink.count("DATA") == 2


def test_all_dispatchers_are_gone_for_long_and_one_comes_back(
    database_url: str, tmp_path: Path
) -> None:
    """B29: leases that lapsed long ago are found by whoever comes first."""
    with HeldSink("rcpt") as sink, Fleet(tmp_path, database_url, smtp(sink), lease="5s") as fleet:
        fleet.enqueue(5)
        first = fleet.start()
        sink.wait_until_held()
        first.kill()
        forget_leases(fleet.url)
        assert fleet.start("--drain").wait() == 0
        assert fleet.states == {"accepted": 5}
        assert len(sink.taken) == 5


# -- standing still ----------------------------------------------------------- #


def frozen_past_its_lease(fleet: Fleet, frozen: Process, expected: dict[str, int]) -> None:
    """Stop a dispatcher that holds rows, and let another one do what can be done."""
    fleet.freeze(frozen)
    fleet.start("--drain").wait()
    assert fleet.states == expected


def test_frozen_before_its_mark_a_dispatcher_sends_nothing_when_it_wakes(
    database_url: str, tmp_path: Path
) -> None:
    """B27: the lease lapsed while it stood still, another one sent; its mark is refused."""
    with HeldSink("rcpt") as sink, Fleet(tmp_path, database_url, smtp(sink), lease="5s") as fleet:
        fleet.enqueue_keys(["k"])
        frozen = fleet.start()
        sink.wait_until_held()
        frozen_past_its_lease(fleet, frozen, {"accepted": 1})
        before = rows(fleet.url, "SELECT * FROM outbox_deliveries")
        # The reply to RCPT arrives, and the dispatcher wakes up.
        sink.go_on()
        frozen.signal(signal.SIGCONT)
        sink.wait_for(lambda: sink.count("RSET"), PATIENCE)
        assert frozen.terminate() == 0
        assert rows(fleet.url, "SELECT * FROM outbox_deliveries") == before
        assert attempts(fleet, "k") == [("settled", "not_started"), ("settled", "accepted")]
        assert (sink.count("DATA"), len(sink.taken)) == (1, 1)
        assert not any("-> pending" in line for line in frozen.log)


def test_frozen_after_its_mark_a_dispatcher_does_not_begin_to_send(
    database_url: str, tmp_path: Path
) -> None:
    """B27: between the mark and the first byte it stood still past its lease: nothing leaves."""
    with HeldSink("data") as sink, Fleet(tmp_path, database_url, smtp(sink), lease="5s") as fleet:
        fleet.enqueue_keys(["k"])
        frozen = fleet.start()
        sink.wait_until_held()
        frozen_past_its_lease(fleet, frozen, {"held": 1})
        sink.go_on()
        frozen.signal(signal.SIGCONT)
        frozen.wait_for_line("lost its lease")
        assert frozen.terminate() == 0
        assert sink.taken == []
        # The row waits for a person by now; what the dispatcher knows is kept for that.
        assert state(fleet, "k") == "held"
        assert evidence(fleet) == [("k", 1, "not_taken")]


def test_frozen_with_an_answer_on_its_way_a_dispatcher_keeps_it_as_evidence(
    database_url: str, tmp_path: Path
) -> None:
    """B27: the answer came too late to decide; it is kept, and no second message is counted.

    A second row waited for the only connection; another dispatcher sends that one.
    """
    with (
        Stub("gated", "ok") as stub,
        Fleet(tmp_path, database_url, resend(stub, connections=1), lease="5s") as fleet,
    ):
        fleet.enqueue_keys(["answered", "waiting"])
        frozen = fleet.start()
        [first] = stub.wait_for(1)
        frozen_past_its_lease(fleet, frozen, {"accepted": 2})
        stub.open_gate()
        frozen.signal(signal.SIGCONT)
        frozen.wait_for_line("lost its lease")
        assert frozen.terminate() == 0
        # The row in doubt was asked for again: the same key and bytes, and the same answer.
        assert len(stub.received) == 3
        assert len({request.key for request in stub.received}) == 2
        assert len({request.sha256 for request in stub.received}) == 2
        assert first.key in {request.key for request in stub.received[1:]}
        assert ("answered", 1, "taken") in evidence(fleet)
        copies = rows(fleet.url, "SELECT state, copies FROM outbox_deliveries")
        assert [tuple(row) for row in copies] == [("accepted", 1), ("accepted", 1)]


def test_a_slow_send_keeps_its_lease(database_url: str, tmp_path: Path) -> None:
    """B27: while a healthy dispatcher waits for a slow answer, renewing keeps others away."""
    with (
        Stub("slowok:7") as stub,
        Fleet(tmp_path, database_url, resend(stub), lease="5s") as fleet,
    ):
        fleet.enqueue_keys(["k"])
        slow = fleet.start()
        stub.wait_for(1)
        # It drains: it ends when nothing is being sent by anybody, after the lease's first end.
        assert fleet.start("--drain").wait() == 0
        assert len(stub.received) == 1
        assert attempts(fleet, "k") == [("settled", "accepted")]
        assert slow.terminate() == 0


def test_a_dispatcher_does_not_give_up_what_it_works_on_itself(
    database_url: str, tmp_path: Path
) -> None:
    """B40: its lease lapsed (the database was away), nobody else took the row: its answer counts."""
    with (
        Stub("gated") as stub,
        Fleet(tmp_path, database_url, resend(stub)) as fleet,
    ):
        fleet.enqueue_keys(["k"])
        dispatcher = fleet.start()
        stub.wait_for(1)
        forget_leases(fleet.url)
        # Something else for its sweep, so that we see when it has swept.
        fleet.enqueue_keys(["late"], send_after=tomorrow())
        change(
            fleet.url,
            "UPDATE outbox_deliveries SET send_before = '2026-01-01T00:00:00.000Z', "
            "send_after = '2025-12-31T00:00:00.000Z' "
            "WHERE delivery_key = 'late'",
        )
        fleet.until(lambda: state(fleet, "late") == "expired")
        stub.open_gate()
        fleet.until(lambda: state(fleet, "k") == "accepted")
        assert dispatcher.terminate() == 0
