"""The operators' verbs on both databases: what they write, and what their guards keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from dispatcher import operator_verbs
from dispatcher.verb_facts import subject_of
from dispatcher.verb_report import Kind
from dispatcher.verb_subjects import Act, Wish
from dispatcher.verbs import Decision, Doing, Why, decide
from outbox import cancel
from outbox.errors import RetryTransaction
from outbox.records import Refused
from outbox.records_verbs import Change
from outbox.reports import Filter, Summary
from outbox.states import FailedReason, State
from outbox.store import queries, verb_writes, verbs
from outbox.store.reads import database_now
from providers.contract import Accepted, Rejected, Unavailable
from providers.memory import MemoryProvider
from tests.conformance.bench import Bench, opened
from tests.conformance.desk import LOST, Desk, done, locking
from tests.conformance.runs import drain

FAILED = Filter(states=(State.FAILED,))
SOON = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


@pytest.fixture
def desk(bench: Bench, database_url: str) -> Desk:
    return Desk(bench, database_url, "resend")


def exhausted(desk: Desk, count: int) -> None:
    """Deliveries that failed because every try did."""
    for i in range(count):
        desk.bench.enqueue(f"k{i}")
    desk.bench.sql(
        "UPDATE outbox_deliveries SET state = 'failed', reason = 'exhausted', attempts = 50, "
        "finished_at = updated_at, window_started_at = updated_at"
    )
    desk.bench.sql("UPDATE outbox_recipients SET result = 'failed'")


# --------------------------------------------------------------------------- #
# Preview and deed
# --------------------------------------------------------------------------- #


def test_a_preview_changes_nothing(desk: Desk) -> None:
    """The preview counts what would be done and what not, and writes nothing, not even audit."""
    exhausted(desk, 2)
    desk.bench.enqueue("open")
    before = desk.bench.sql("SELECT * FROM outbox_deliveries ORDER BY id")
    report = desk.preview(Act.RETRY, Filter(accounts=("main", "")))
    assert (done(report), report.rows(Kind.LEFT), report.rows(Kind.REFUSED)) == (2, 1, 0)
    assert report.acted is False
    assert desk.bench.sql("SELECT * FROM outbox_deliveries ORDER BY id") == before
    assert desk.audit() == []


def test_a_retry_has_the_same_key_and_a_new_budget(desk: Desk) -> None:
    """What failed is pending again under its own key, and its record says who did it and why."""
    exhausted(desk, 1)
    report = desk.act(Act.RETRY, "k0")
    assert (done(report), report.acted, report.subject) == (1, True, "k0")
    row = desk.bench.row(1)
    assert (row.state, row.attempts, row.window_started_at) == ("pending", 0, None)
    assert (row.finished_at, row.reason) == (None, None)
    provider = MemoryProvider()
    drain(desk.url, {"main": provider})
    assert desk.states() == {"k0": "accepted"}
    assert provider.sent[0].idempotency_key == desk.bench.row(1).public_id
    [entry] = desk.audit()
    assert (entry.actor, entry.action, entry.subject) == ("eve@desk", "retry", "k0")
    assert entry.operator_note == "because"
    assert json.loads(entry.before) == {"state": "failed"}
    assert json.loads(entry.after) == {"state": "pending"}


def test_repeating_a_verb_does_nothing_more(desk: Desk) -> None:
    """B91: the second time nothing qualifies any more, and nothing is recorded."""
    exhausted(desk, 3)
    assert done(desk.act(Act.RETRY, FAILED)) == 3
    written = len(desk.audit())
    assert done(desk.act(Act.RETRY, FAILED)) == 0
    report = desk.act(Act.RETRY, "k0")
    assert (done(report), report.rows(Kind.LEFT)) == (0, 1)
    assert len(desk.audit()) == written == 4


def test_a_filter_is_worked_through_in_pages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a few rows: every row once, each with its audit row, and one for each page."""
    monkeypatch.setattr(verbs, "BATCH", 3)
    exhausted(desk, 7)
    assert done(desk.preview(Act.RETRY, FAILED)) == 7
    report = desk.act(Act.RETRY, FAILED)
    assert done(report) == 7
    assert set(desk.states().values()) == {"pending"}
    entries = desk.audit()
    assert sorted(e.subject for e in entries if e.subject.startswith("k")) == [
        f"k{i}" for i in range(7)
    ]
    pages = [json.loads(e.after) for e in entries if e.subject == "--state failed"]
    assert [each["deliveries"] for each in pages] == [3, 3, 1]


def test_a_row_that_changed_since_the_preview_is_judged_anew(desk: Desk) -> None:
    """Between preview and deed one row was retried, another cancelled: only the rest is done."""
    exhausted(desk, 3)
    assert done(desk.preview(Act.RETRY, FAILED)) == 3
    desk.act(Act.RETRY, "k0")
    desk.bench.sql(
        "UPDATE outbox_deliveries SET state = 'cancelled', reason = 'operator' "
        "WHERE delivery_key = 'k1'"
    )
    assert done(desk.act(Act.RETRY, FAILED)) == 1
    assert desk.states() == {"k0": "pending", "k1": "cancelled", "k2": "pending"}


def test_a_row_is_not_taken_for_another_reason_than_the_filter_found_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that leaves the filter between the page and its lock is left alone."""
    exhausted(desk, 1)
    read = queries.deliveries

    def and_then_changed(connection: Connection, wanted: Filter, **more: Any) -> list[Summary]:
        page = read(connection, wanted, **more)
        return [replace(each, reason="rejected") for each in page]

    monkeypatch.setattr(queries, "deliveries", and_then_changed)
    report = desk.act(Act.RETRY, FAILED)
    assert [(g.why, g.rows) for g in report.groups] == [(Why.CHANGED, 1)]
    assert desk.states() == {"k0": "failed"}


def test_two_operators_at_once(desk: Desk) -> None:
    """B91: the same verb from four sides at once: each delivery is done by one of them."""
    exhausted(desk, 40)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: desk.act(Act.RETRY, FAILED), range(4)))
    assert sum(map(done, reports)) == 40
    provider = MemoryProvider()
    drain(desk.url, {"main": provider})
    assert len(provider.sent) == len({m.correlation for m in provider.sent}) == 40
    subjects = [e.subject for e in desk.audit() if e.subject.startswith("k")]
    assert sorted(subjects) == sorted(f"k{i}" for i in range(40))


# --------------------------------------------------------------------------- #
# Guards
# --------------------------------------------------------------------------- #


def decided(desk: Desk, act: Act, key: str) -> Change:
    """A decision about a row, as it is read now."""

    def work(connection: Connection) -> Decision:
        at = database_now(connection)
        [ids] = [queries.matching(connection, key)]
        [row] = verbs.subjects(connection, ids, at=at, locked=False)
        return decide(Wish(act), subject_of(row, desk.config, at), at)

    decision = desk.bench.do(work)
    assert isinstance(decision, Doing), decision
    return decision.change


def applied(desk: Desk, change: Change) -> int:
    return len(
        desk.bench.do(
            lambda c: verb_writes.apply(
                c, [change], action="retry", actor="eve", note="late", at=database_now(c)
            )
        ).changed
    )


@pytest.mark.parametrize(
    "between",
    [
        "lease_token = lease_token + 1",
        "state = 'cancelled', reason = 'operator'",
        "superseded_by = 2",
    ],
)
@pytest.mark.parametrize("act", [Act.RETRY, Act.SEND_AGAIN])
def test_a_stale_decision_writes_nothing(desk: Desk, act: Act, between: str) -> None:
    """Invariant 4: state, token and successor are named again in the write itself."""
    exhausted(desk, 2)
    change = decided(desk, act, "k0")
    desk.bench.sql(f"UPDATE outbox_deliveries SET {between} WHERE delivery_key = 'k0'")
    before = desk.bench.sql("SELECT * FROM outbox_deliveries ORDER BY id")
    assert applied(desk, change) == 0
    assert desk.bench.sql("SELECT * FROM outbox_deliveries ORDER BY id") == before
    assert desk.audit() == []
    results = desk.bench.sql("SELECT DISTINCT result FROM outbox_recipients")
    assert [row.result for row in results] == ["failed"]


def test_a_stop_is_asked_of_the_owner_that_was_seen(desk: Desk) -> None:
    """A7: a row that another dispatcher has taken meanwhile is not told by an old decision."""
    desk.bench.enqueue()
    [claimed] = desk.bench.claim()
    change = decided(desk, Act.CANCEL, "k")
    desk.bench.sql("UPDATE outbox_deliveries SET lease_owner = 'b'")
    assert applied(desk, change) == 0
    assert desk.bench.row(claimed.id).stop_requested is None


def test_a_cancel_stops_what_is_claimed(desk: Desk) -> None:
    """A7, B93: the mark of a row that was cancelled is refused; its settle cancels it."""
    desk.bench.enqueue()
    [claimed] = desk.bench.claim()
    report = desk.act(Act.CANCEL, "k")
    assert [group.effect for group in report.groups] == ["cancel_asked"]
    assert desk.bench.row(claimed.id).state == "sending"
    assert desk.bench.mark(claimed) == Refused("stopped")
    assert desk.bench.settle(claimed, Unavailable("not sent"))
    assert desk.states() == {"k": "cancelled"}


def test_a_hold_in_flight_does_not_undo_an_acceptance(desk: Desk) -> None:
    """A7: it takes effect if it is not taken; what was taken is accepted."""
    desk.bench.enqueue()
    [claimed] = desk.bench.claim()
    desk.bench.mark(claimed)
    desk.act(Act.HOLD, "k")
    desk.bench.settle(claimed, Accepted("1"))
    assert desk.states() == {"k": "accepted"}


def test_a_producer_and_an_operator_cancel_once(desk: Desk) -> None:
    """Two who cancel the same delivery count one cancelled delivery."""
    desk.bench.enqueue()
    desk.bench.do(lambda c: cancel(c, "k"))
    assert done(desk.act(Act.CANCEL, "k")) == 0
    rows = desk.bench.sql("SELECT value FROM outbox_tallies WHERE labels LIKE '%cancelled'")
    assert [row.value for row in rows] == [1]


def test_a_locked_row_is_waited_for_and_then_given_up(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator yields to whoever holds a row, tries again, and says so when it stays locked."""
    monkeypatch.setattr(operator_verbs, "TRIES", 2)
    with opened(postgres_url) as bench:
        desk = Desk(bench, postgres_url)
        bench.enqueue()
        with locking(bench, "k"), pytest.raises(RetryTransaction, match="locked"):
            desk.act(Act.CANCEL, "k")
        assert desk.states() == {"k": "pending"}
        assert done(desk.act(Act.CANCEL, "k")) == 1


# --------------------------------------------------------------------------- #
# Doubt
# --------------------------------------------------------------------------- #


def test_a_retry_out_of_doubt_is_a_replay(desk: Desk) -> None:
    """A6: held out of doubt, inside the key's window: the kept bytes, the same key, accepted."""
    provider = desk.doubt()
    assert done(desk.act(Act.HOLD, "k")) == 1
    desk.rounds(provider)
    assert len(provider.sent) == 1
    desk.bench.sql("UPDATE outbox_deliveries SET attempts = 99")
    assert done(desk.act(Act.RETRY, "k")) == 1
    row = desk.bench.row(1)
    assert (row.state, row.held_from, row.attempts) == ("in_doubt", None, 0)
    desk.rounds(provider)
    first, second = provider.sent
    assert second.kept is not None
    assert first.idempotency_key == second.idempotency_key
    assert desk.states() == {"k": "accepted"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE outbox_deliveries SET first_transmitted_at = '2026-01-01T00:00:00.000Z'",
         Why.WINDOW_CLOSED),
        ("UPDATE outbox_accounts SET identity = 'memory:another'", Why.ACCOUNT_CHANGED),
        ("DELETE FROM outbox_requests", Why.REQUEST_GONE),
    ],
)  # fmt: skip
def test_no_replay_without_its_facts(desk: Desk, change: str, why: Why) -> None:
    """A6, A13: after the window, under another identity or without its bytes it is refused."""
    desk.doubt()
    desk.bench.sql(change)
    report = desk.act(Act.RETRY, "k")
    assert [(g.why, g.instead) for g in report.groups] == [(why, ("settle", "send-again"))]
    assert desk.states() == {"k": "in_doubt"}


def test_no_replay_where_the_provider_has_no_key(desk: Desk) -> None:
    """The configuration says what the provider offers; smtp, file and memory offer no replay."""
    desk.doubt()
    plain = Desk(desk.bench, desk.url, "memory")
    assert [g.why for g in plain.act(Act.RETRY, "k").groups] == [Why.NO_REPLAY]


def over(desk: Desk) -> None:
    """Everything that could still transmit has ended long ago."""
    old = "2026-01-01T00:00:00.000Z"
    desk.bench.sql(
        "UPDATE outbox_attempts SET transmitting_at = :old, finished_at = :old, deadline_at = :old",
        old=old,
    )


def test_not_accepted_waits_until_all_is_over(desk: Desk) -> None:
    """A6: said too early it is refused with the time; later it is pending under the same key."""
    provider = desk.doubt()
    desk.act(Act.HOLD, "k")
    [group] = desk.act(Act.SETTLE_NOT_ACCEPTED, "k").groups
    assert group.why is Why.STILL_LEAVING
    assert group.until is not None
    over(desk)
    report = desk.act(Act.SETTLE_NOT_ACCEPTED, "k")
    assert done(report) == 1
    assert report.risk == "ana@example.org may get a second copy."
    assert desk.bench.evidence(1) == [("operator", "not_taken")]
    [fact] = desk.bench.sql("SELECT attempt, detail FROM outbox_evidence")
    assert (fact.attempt, fact.detail) == (1, "eve@desk: because")
    desk.rounds(provider)
    first, second = provider.sent
    assert first.idempotency_key == second.idempotency_key
    assert second.kept is None
    assert desk.states() == {"k": "accepted"}


def test_a_refuted_attempt_is_not_found_in_doubt_again(desk: Desk) -> None:
    """The next doubt has its own history: the attempt that a person has refuted is no part of it."""
    provider = desk.doubt()
    over(desk)
    desk.act(Act.SETTLE_NOT_ACCEPTED, "k")
    provider.script.append(LOST)
    desk.rounds(provider)

    def doubted(connection: Connection) -> list[int]:
        at = database_now(connection)
        [row] = verbs.subjects(connection, [1], at=at, locked=False)
        return [attempt.number for attempt in row.history.doubted]

    assert desk.bench.do(doubted) == [2]


def test_settled_as_accepted_it_is_done(desk: Desk) -> None:
    """The person's word is kept as evidence with the name; the kept request goes; it is counted."""
    desk.doubt()
    assert done(desk.act(Act.SETTLE_ACCEPTED, "k")) == 1
    row = desk.bench.row(1)
    assert (row.state, row.copies, row.finished_at is None) == ("accepted", 1, False)
    assert desk.bench.evidence(1) == [("operator", "taken")]
    assert desk.bench.sql("SELECT count(*) FROM outbox_requests")[0][0] == 0
    [person] = desk.bench.sql("SELECT result, reason FROM outbox_recipients")
    assert (person.result, person.reason) == ("accepted", None)
    [tally] = desk.bench.sql("SELECT labels, value FROM outbox_tallies")
    assert (tally.labels, tally.value) == ("main accepted", 1)


def test_settled_as_unknown_it_is_closed(desk: Desk) -> None:
    """Closed for good: no dispatcher sends it or asks for it again."""
    provider = desk.doubt()
    assert done(desk.act(Act.SETTLE_UNKNOWN, "k")) == 1
    desk.rounds(provider, 2)
    assert len(provider.sent) == 1
    assert desk.states() == {"k": "unresolved"}
    assert desk.bench.evidence(1) == [("operator", "unknown")]


def test_cancelling_a_doubt_holds_it(desk: Desk) -> None:
    """A7: no more transmissions; what may have been taken waits for a person, and release undoes it."""
    provider = desk.doubt()
    assert done(desk.act(Act.CANCEL, "k")) == 1
    desk.rounds(provider, 2)
    row = desk.bench.row(1)
    assert (row.state, row.held_from, row.reason) == ("held", "in_doubt", "operator")
    assert len(provider.sent) == 1
    assert done(desk.act(Act.RELEASE, "k")) == 1
    desk.rounds(provider)
    assert desk.states() == {"k": "accepted"}
    assert len(provider.sent) == 2


def test_hold_and_release(desk: Desk) -> None:
    """A held row is not sent, and goes on from where it was."""
    desk.bench.enqueue()
    provider = MemoryProvider()
    desk.act(Act.HOLD, "k")
    desk.rounds(provider)
    assert provider.sent == []
    desk.act(Act.RELEASE, "k")
    desk.rounds(provider)
    assert desk.states() == {"k": "accepted"}


# --------------------------------------------------------------------------- #
# Moving
# --------------------------------------------------------------------------- #


def test_what_never_left_is_moved(desk: Desk) -> None:
    """The other account sends it; what was refused by the first one after it had left is not moved."""
    desk.bench.enqueue("new", account="main")
    desk.bench.enqueue("unnamed")
    desk.bench.enqueue("left", account="main")
    desk.bench.sql("UPDATE outbox_deliveries SET priority = 5 WHERE delivery_key = 'left'")
    main = MemoryProvider("main", [Unavailable("450 later")])
    drain(desk.url, {"main": main}, mode="once", slots=1)
    report = desk.act(Act.MOVE, Filter(accounts=("main", "")), account="backup")
    assert (done(report), report.rows(Kind.REFUSED)) == (2, 1)
    [refused] = [g for g in report.groups if g.kind is Kind.REFUSED]
    assert (refused.why, refused.instead) == (
        Why.HAS_LEFT,
        ("cancel", "send-again --by backup"),
    )
    backup = MemoryProvider("backup")
    drain(desk.url, {"backup": backup})
    assert len(backup.sent) == 2
    assert desk.states() == {"new": "accepted", "unnamed": "accepted", "left": "pending"}
    assert json.loads(desk.audit()[0].after)["account"] == "backup"


def test_a_new_end_is_written(desk: Desk) -> None:
    """An expired delivery goes out again with the new send_before that was given."""
    desk.bench.enqueue("k", send_before=SOON)
    old = "2026-02-01T00:00:00.000Z"
    desk.bench.sql(
        "UPDATE outbox_deliveries SET send_after = '2026-01-01T00:00:00.000Z', send_before = :old",
        old=old,
    )
    drain(desk.url, {"main": MemoryProvider()})
    assert desk.states() == {"k": "expired"}
    assert done(desk.act(Act.RETRY, "k")) == 0
    assert done(desk.act(Act.RETRY, "k", send_before=SOON)) == 1
    drain(desk.url, {"main": MemoryProvider()})
    assert desk.states() == {"k": "accepted"}


def test_a_refused_address_is_retried_when_it_is_asked_for(desk: Desk) -> None:
    """--include rejected; the recipient's last answer stays until there is another."""
    desk.bench.enqueue()
    drain(desk.url, {"main": MemoryProvider(script=[Rejected("no such user", "550")])})
    assert done(desk.act(Act.RETRY, "k")) == 0
    include = frozenset({FailedReason.REJECTED})
    assert done(desk.act(Act.RETRY, "k", include=include)) == 1
    [person] = desk.bench.sql("SELECT result, code FROM outbox_recipients")
    assert (person.result, person.code) == ("pending", "550")


@pytest.mark.parametrize("reference", ["nothing", "~"])
def test_what_is_no_delivery_is_said(desk: Desk, reference: str) -> None:
    """A key that nobody knows is wrong usage, for a preview and for a deed."""
    with pytest.raises(operator_verbs.Unclear, match="no delivery"):
        desk.preview(Act.RETRY, reference)
    with pytest.raises(operator_verbs.Unclear, match="no delivery"):
        desk.act(Act.RETRY, reference)


def test_suggestions_are_what_applies(desk: Desk) -> None:
    """What is worth typing next, and from when on what has to wait is right."""
    desk.doubt()
    found = operator_verbs.suggestions(desk.config, 1)
    assert [each.act for each in found] == [
        Act.RETRY, Act.SETTLE_ACCEPTED, Act.SETTLE_NOT_ACCEPTED, Act.SETTLE_UNKNOWN, Act.HOLD,
    ]  # fmt: skip
    assert [each.act for each in found if each.until is not None] == [Act.SETTLE_NOT_ACCEPTED]
