"""What an answer says of its account, and endings that nothing refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dispatcher import decide, endings
from dispatcher.answers import given_up, proven, standing
from dispatcher.backoff import RetryPolicy
from outbox.records import DoubtRow, Standing
from outbox.states import FailedReason, HeldReason, Phase, State
from providers.contract import (
    Absent,
    Accepted,
    AccountBlocked,
    Duplicate,
    Finding,
    Found,
    InDoubt,
    InFlight,
    KeyMismatch,
    Outcome,
    Rejected,
    Result,
    Throttled,
    Unavailable,
    Unknown,
)
from tests.unit.dispatcher.rows import NOW, attempt, people

LATER = Unavailable("greylisted", "451")


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Accepted(), Standing.WORKS),
        (Rejected("no"), Standing.WORKS),
        (Duplicate(), Standing.WORKS),
        (KeyMismatch(), Standing.WORKS),
        (Unavailable("greylisted", "451"), Standing.WORKS),
        (Unavailable("closing", "421"), Standing.TROUBLED),
        (Unavailable("refused"), Standing.TROUBLED),
        (InDoubt("503"), Standing.TROUBLED),
        (InFlight(), Standing.TROUBLED),
        (Unavailable("pool", counted=False), Standing.SILENT),
        (Throttled(), Standing.SILENT),
        (AccountBlocked("quota", "x"), Standing.SILENT),
    ],
)
def test_what_an_answer_says_of_its_account(outcome: Outcome, says: Standing) -> None:
    """A17: trouble is counted alike; a busy mailbox and a full pool are none."""
    assert standing(outcome) is says


@pytest.mark.parametrize(
    ("outcome", "row", "reason"),
    [
        (Throttled(), {"throttled_since": NOW - timedelta(hours=23)}, None),
        (Throttled(), {"throttled_since": NOW - timedelta(hours=24)}, FailedReason.THROTTLED),
        (Throttled(), {}, None),
        (AccountBlocked("sender_domain", "x", "d"), {"blocks": 1}, None),
        (
            AccountBlocked("sender_domain", "x", "d"),
            {"blocks": 2},
            FailedReason.SENDER_NOT_ALLOWED,
        ),
        (AccountBlocked("credentials", "x"), {"blocks": 99}, None),
    ],
)
def test_what_uses_no_budget_ends_all_the_same(
    outcome: Outcome, row: dict[str, object], reason: FailedReason | None
) -> None:
    """N5: neither throttling nor a refused sender keeps a delivery pending for ever."""
    assert given_up(attempt(**row), outcome, NOW) is reason
    decision = decide.settle(attempt(**row), Result(outcome), RetryPolicy(), now=NOW, jitter=0.5)
    assert (decision.reason == reason) if reason else decision.state is State.PENDING


def test_a_documented_duplicate_is_an_acceptance() -> None:
    """A21: for the whole message and for one recipient; nothing else is touched."""
    told = Result(Duplicate("known"), {"a@example.org": Duplicate(), "b@example.org": LATER}, 409)
    assert proven(told) == Result(
        Accepted(replayed=True),
        {"a@example.org": Accepted(replayed=True), "b@example.org": LATER},
        409,
    )


@pytest.mark.parametrize("outcome", [InFlight(), Duplicate()])
def test_what_the_provider_has_already_is_repeated_less_and_less_often(outcome: Outcome) -> None:
    """Neither uses the budget, so the distance grows with the attempts that there were."""
    waits = [
        decide.settle(
            attempt(number=number, claimed_from=State.IN_DOUBT),
            Result(outcome), RetryPolicy(), now=NOW, jitter=0.5,
        ).due_at - NOW
        for number in (2, 3, 4, 20)
    ]  # fmt: skip
    assert waits == sorted(set(waits))
    assert waits[-1] == timedelta(minutes=30)


def test_in_flight_waits_at_least_as_long_as_it_was_told() -> None:
    """``Retry-After`` of a key that is in use is obeyed, up to an hour."""
    for told, least in ((90.0, 90), (1e9, 3600), (-5.0, 0)):
        decision = decide.settle(
            attempt(), Result(InFlight(told)), RetryPolicy(), now=NOW, jitter=0.0
        )
        assert decision.due_at == NOW + timedelta(seconds=least)


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.TRANSMITTING])
def test_the_third_crash_alone_holds(phase: Phase) -> None:
    """N10: held with its own reason, out of doubt where bytes may have left."""
    row = attempt(phase=phase, alone=True, crashes_alone=2)
    decision = decide.lapsed(row)
    before = State.IN_DOUBT if phase is Phase.TRANSMITTING else State.PENDING
    assert (decision.state, decision.reason, decision.held_from) == (
        State.HELD,
        HeldReason.CRASHED_ALONE,
        before,
    )


def test_a_crash_in_company_is_no_crash_alone() -> None:
    """A19: the count alone grows only for attempts that were claimed alone."""
    assert decide.lapsed(attempt(phase=Phase.CLAIMED, crashes_alone=2)).state is State.PENDING
    assert decide.lapsed(attempt(phase=Phase.CLAIMED)).crashes_alone == 0


@pytest.mark.parametrize(
    ("finding", "counts", "late", "state"),
    [
        (Found("id"), False, False, State.ACCEPTED),
        (Absent(), True, False, State.PENDING),
        (Absent(), True, True, State.EXPIRED),
        (Absent(), False, False, State.IN_DOUBT),
        (Unknown("500"), True, False, State.IN_DOUBT),
    ],
)
def test_what_a_look_up_proves(finding: Finding, state: State, *, counts: bool, late: bool) -> None:
    """A4: found settles; absent only when it counts; an error never."""
    row = attempt("in_doubt", send_before=NOW if late else None, claimed_from=State.IN_DOUBT)
    assert decide.looked_up(row, finding, counts=counts, now=NOW).state is state


def test_an_unusable_message_leaves_older_doubt_to_a_person() -> None:
    """What cannot be rendered any more says nothing about what was sent before."""
    decision = decide.invalid(attempt("in_doubt"), "request: the kept request is gone")
    assert (decision.state, decision.reason, decision.held_from) == (
        State.HELD,
        HeldReason.NO_EVIDENCE,
        State.IN_DOUBT,
    )


def test_too_late_for_a_replay_is_still_doubt() -> None:
    """A replay that was withheld changes nothing about the attempt before it."""
    decision = decide.withheld(attempt("in_doubt", claimed_from=State.IN_DOUBT), "too_late")
    assert decision.state is State.IN_DOUBT


def doubt_row(*results: str) -> DoubtRow:
    return DoubtRow(
        1, "k", "p", "{}", None, "main", people(*results), (), 0, None, 0, 0, None, 0.0, 0.0,
        None, None, NOW, NOW, None, NOW,
    )  # fmt: skip


def test_refuted_doubt_opens_the_recipients_again() -> None:
    """Every attempt proved not taken: pending, or expired past ``send_before``."""
    assert endings.refuted(doubt_row("in_doubt", "accepted"), NOW).state is State.PENDING


def test_held_doubt_keeps_where_it_came_from() -> None:
    """A hold out of doubt is not a hold out of pending."""
    ending = endings.held(doubt_row("in_doubt", "pending"), HeldReason.NO_EVIDENCE)
    assert (ending.state, ending.held_from, ending.before) == (
        State.HELD,
        State.IN_DOUBT,
        State.IN_DOUBT,
    )
    assert [u.position for u in ending.recipients] == [0]
