"""Doubt is settled by evidence: a whole dispatcher with a provider that can be asked again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from outbox import Attachment, Email, enqueue
from providers.contract import (
    Absent,
    Accepted,
    Capabilities,
    Duplicate,
    Found,
    InDoubt,
    InFlight,
    KeyMismatch,
    Outcome,
    Rejected,
    Throttled,
    Unavailable,
)
from providers.memory import BeforeMark, MemoryProvider
from tests.conformance.bench import Bench, opened
from tests.conformance.runs import drain
from tests.rows import add_attempt

KEYED = Capabilities(means=("replay",), replay="same_response", key_retention=86400.0, events=True)
ASKED = Capabilities(
    means=("look_up",), look_up="by_message_id", index_lag=0.0, look_up_retention=86400.0
)
LOST = InDoubt("the answer was lost")


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


def rounds(bench: Bench, url: str, provider: MemoryProvider, times: int = 1) -> None:
    """One round so often; before each, everything that waits has come due."""
    for _ in range(times):
        bench.due_now()
        drain(url, {"main": provider}, mode="once")


def state(bench: Bench) -> tuple[str, str | None]:
    [row] = bench.sql("SELECT state, reason FROM outbox_deliveries")
    return row.state, row.reason


def kinds(bench: Bench) -> list[tuple[str, str]]:
    rows = bench.sql("SELECT kind, outcome FROM outbox_attempts ORDER BY number")
    return [(row.kind, row.outcome) for row in rows]


def test_a_replay_sends_the_kept_bytes_under_the_same_key(bench: Bench, database_url: str) -> None:
    """B3, B74: after a restart too, what is replayed is what was sent."""
    files = [Attachment("a.bin", bytes(range(256)) * 20)]
    mail = Email(to="ana@example.org", text="x", attachments=files)
    bench.do(lambda c: enqueue(c, mail, key="k"))
    provider = MemoryProvider(script=[LOST], capabilities=KEYED)
    rounds(bench, database_url, provider, 2)
    first, second = provider.sent
    assert second.kept is not None
    assert second.kept == repr(first).encode()
    assert second.idempotency_key == first.idempotency_key
    assert state(bench) == ("accepted", None)
    assert kinds(bench) == [("send", "in_doubt"), ("replay", "accepted")]
    assert bench.evidence(1) == [("replay", "taken")]


def test_a_kept_request_goes_when_the_delivery_is_settled(bench: Bench, database_url: str) -> None:
    """N7: kept from the first mark until the end, and only by accounts that replay."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST], capabilities=KEYED)
    rounds(bench, database_url, provider)
    assert bench.sql("SELECT count(*) FROM outbox_requests")[0][0] == 1
    rounds(bench, database_url, provider)
    assert bench.sql("SELECT count(*) FROM outbox_requests")[0][0] == 0


@pytest.mark.parametrize(
    "outcome",
    [Throttled(0.01), Unavailable("refused"), InFlight(0.01), Rejected("no", "422"), LOST],
)
def test_a_refused_replay_leaves_the_doubt(
    bench: Bench, database_url: str, outcome: Outcome
) -> None:
    """A1: whatever the second attempt was told, the first one may have been taken."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST, outcome], capabilities=KEYED)
    rounds(bench, database_url, provider, 2)
    assert state(bench) == ("in_doubt", None)
    bench.sql(
        "UPDATE outbox_accounts SET paused_until = '2026-01-01T00:00:00.000Z' "
        "WHERE paused_until IS NOT NULL"
    )
    rounds(bench, database_url, provider)
    assert state(bench) == ("accepted", None)


def test_a_replay_that_never_started_is_still_in_doubt(bench: Bench, database_url: str) -> None:
    """A2: an attempt that ended before its mark says nothing about the one before."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST, BeforeMark(Unavailable("refused"))], capabilities=KEYED)
    rounds(bench, database_url, provider, 2)
    assert state(bench) == ("in_doubt", None)


def test_a_duplicate_settles_where_it_is_documented_to(bench: Bench, database_url: str) -> None:
    """A21: proof where the adapter says so; else the next means, and the key is left alone."""
    bench.enqueue()
    proof = replace(KEYED, replay="duplicate_error", duplicate_is_proof=True)
    rounds(bench, database_url, MemoryProvider(script=[LOST, Duplicate()], capabilities=proof), 2)
    assert state(bench) == ("accepted", None)
    bench.enqueue("k2")
    asked = replace(
        ASKED, means=("replay", "look_up"), replay="duplicate_error", key_retention=86400.0
    )
    provider = MemoryProvider(
        script=[LOST, Duplicate()], findings=[Found("m-1")], capabilities=asked
    )
    rounds(bench, database_url, provider, 3)
    rows = bench.sql(
        "SELECT kind, outcome FROM outbox_attempts WHERE delivery_id = 2 ORDER BY number"
    )
    assert [tuple(row) for row in rows] == [
        ("send", "in_doubt"),
        ("replay", "duplicate"),
        ("look_up", "accepted"),
    ]


def test_a_look_up_that_was_given_back_is_asked_again(bench: Bench, database_url: str) -> None:
    """Only a look-up that was made counts as one: a stop in between costs no proof."""
    id_ = bench.enqueue()
    provider = MemoryProvider(script=[LOST], findings=[Found("m-1")], capabilities=ASKED)
    rounds(bench, database_url, provider)
    _long_ago(bench)
    bench.do(lambda c: add_attempt(c, id_, 2, kind="look_up", outcome="not_started"))
    rounds(bench, database_url, provider)
    assert len(provider.asked) == 1
    assert state(bench) == ("accepted", None)


def test_a_mismatch_is_held(bench: Bench, database_url: str) -> None:
    """B72: the provider has this key with another body; no new key by itself."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST, KeyMismatch("other body")], capabilities=KEYED)
    rounds(bench, database_url, provider, 4)
    assert state(bench) == ("held", "key_mismatch")
    assert len(provider.sent) == 2


def test_replays_end_with_the_budget(bench: Bench, database_url: str) -> None:
    """An exhausted budget in doubt is held, never failed."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST] * 9, capabilities=KEYED)
    rounds(bench, database_url, provider, 6)
    assert len(provider.sent) == 4
    bench.sql(
        "UPDATE outbox_attempts SET finished_at = '2026-01-01T00:00:00.000Z', "
        "transmitting_at = '2026-01-01T00:00:00.000Z'"
    )
    rounds(bench, database_url, provider)
    assert state(bench) == ("held", "exhausted_in_doubt")


def test_a_key_past_its_retention_is_not_used(bench: Bench, database_url: str) -> None:
    """A replay has to end while the provider still knows the key."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST], capabilities=KEYED)
    rounds(bench, database_url, provider)
    bench.sql("UPDATE outbox_deliveries SET first_transmitted_at = '2026-01-01T00:00:00.000Z'")
    rounds(bench, database_url, provider, 2)
    assert len(provider.sent) == 1
    assert state(bench) == ("in_doubt", None)


def test_a_changed_account_is_not_asked(bench: Bench, database_url: str) -> None:
    """A13: another key scope knows nothing; the row waits for events, then for a person."""
    bench.enqueue()
    rounds(bench, database_url, MemoryProvider(script=[LOST], capabilities=KEYED, identity="old"))
    provider = MemoryProvider(capabilities=KEYED, identity="new")
    rounds(bench, database_url, provider, 2)
    assert provider.sent == []
    assert state(bench) == ("in_doubt", None)
    bench.sql(
        "UPDATE outbox_attempts SET finished_at = '2026-01-01T00:00:00.000Z', "
        "transmitting_at = '2026-01-01T00:00:00.000Z'"
    )
    rounds(bench, database_url, provider)
    assert state(bench) == ("held", "account_changed")


def test_a_look_up_that_finds_it_settles_the_doubt(bench: Bench, database_url: str) -> None:
    """Found: accepted, with the provider's id, and nothing is sent."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST], capabilities=ASKED, findings=[Found("id-9")])
    rounds(bench, database_url, provider, 2)
    assert state(bench) == ("accepted", None)
    assert bench.evidence(1) == [("look_up", "taken")]
    [row] = bench.sql("SELECT provider_message_id FROM outbox_recipients")
    assert row.provider_message_id == "id-9"
    assert provider.asked[0].message_id == provider.sent[0].message_id
    assert len(provider.sent) == 1


def test_absence_counts_only_when_asked_late_enough(bench: Bench, database_url: str) -> None:
    """A4: asked early, "not found" proves nothing; asked late, the message goes again."""
    bench.enqueue()
    provider = MemoryProvider(script=[LOST], capabilities=ASKED, findings=[Absent(), Absent()])
    rounds(bench, database_url, provider, 3)
    assert (state(bench), len(provider.sent)) == (("in_doubt", None), 1)
    for column in ("finished_at", "transmitting_at", "started_at"):
        bench.sql(f"UPDATE outbox_attempts SET {column} = '2026-01-01T00:00:00.000Z'")
    bench.sql("UPDATE outbox_deliveries SET first_transmitted_at = updated_at")
    rounds(bench, database_url, provider)
    assert ("look_up", "not_taken") in bench.evidence(1)
    rounds(bench, database_url, provider)
    assert (state(bench), len(provider.sent)) == (("accepted", None), 2)


def test_a_late_refusal_of_the_first_attempt_settles_it(bench: Bench, database_url: str) -> None:
    """A stale worker's answer proves what it proves: the row is open again."""
    bench.enqueue()
    [claimed] = bench.claim("gone")
    bench.mark(claimed, "gone")
    bench.lapse()
    bench.sweep()
    bench.settle(claimed, Unavailable("refused after all"))
    assert state(bench) == ("in_doubt", None)
    provider = MemoryProvider()
    rounds(bench, database_url, provider, 2)
    assert (state(bench), len(provider.sent)) == (("accepted", None), 1)


def test_send_again_buys_one_transmission(bench: Bench, database_url: str) -> None:
    """A8: with nothing to prove it the policy sends once more, and says so on the row."""
    bench.enqueue(when_unsure="send_again")
    provider = MemoryProvider(script=[LOST, LOST, LOST])
    rounds(bench, database_url, provider, 2)
    assert (state(bench), len(provider.sent)) == (("in_doubt", None), 1)
    _long_ago(bench)
    rounds(bench, database_url, provider, 1)
    [row] = bench.sql("SELECT extra_transmission FROM outbox_deliveries")
    assert (row.extra_transmission, len(provider.sent)) == ("send_again", 2)
    _long_ago(bench)
    rounds(bench, database_url, provider, 2)
    assert (state(bench), len(provider.sent)) == (("held", "no_evidence"), 2)


def _long_ago(bench: Bench) -> None:
    bench.sql(
        "UPDATE outbox_attempts SET finished_at = '2026-01-01T00:00:00.000Z', "
        "transmitting_at = '2026-01-01T00:00:00.000Z', deadline_at = NULL"
    )


def test_nothing_is_replayed_after_send_before(bench: Bench, database_url: str) -> None:
    """B2: a replay may be the first transmission; past the deadline nothing transmits."""
    from datetime import UTC, datetime

    bench.enqueue(send_before=datetime.now(UTC) + timedelta(hours=1))
    provider = MemoryProvider(script=[LOST], capabilities=KEYED)
    rounds(bench, database_url, provider)
    bench.sql(
        "UPDATE outbox_deliveries SET send_after = '2026-01-01T00:00:00.000Z', "
        "send_before = '2026-01-02T00:00:00.000Z'"
    )
    rounds(bench, database_url, provider, 2)
    assert (state(bench), len(provider.sent)) == (("in_doubt", None), 1)


def test_a_killed_sender_is_settled_by_replay(bench: Bench, database_url: str) -> None:
    """B23: a lease that lapsed while transmitting is doubt like any other."""
    bench.enqueue()
    provider = MemoryProvider(script=[Accepted("first")], capabilities=KEYED)
    drain(database_url, {"main": provider}, mode="once")
    bench.sql("UPDATE outbox_recipients SET result = 'pending'")
    bench.sql("UPDATE outbox_deliveries SET state='pending', finished_at=NULL, copies=0")
    rounds(bench, database_url, provider)
    assert state(bench) == ("accepted", None)
