"""The rules of the state diagram, as pure decisions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dispatcher import decide, endings
from dispatcher.backoff import RetryPolicy
from outbox.records import Idle, Settlement
from outbox.states import (
    AttemptOutcome,
    PauseReason,
    Phase,
    RecipientResult,
    State,
    StopRequest,
    fold,
)
from providers.contract import (
    Accepted,
    AccountBlocked,
    Duplicate,
    InDoubt,
    InFlight,
    KeyMismatch,
    Outcome,
    Rejected,
    Result,
    Throttled,
    Unavailable,
)
from tests.unit.dispatcher.rows import NOW, attempt, people

POLICY = RetryPolicy(attempts=3, window=timedelta(hours=1))

FIRST: list[tuple[Outcome, State, AttemptOutcome]] = [
    (Accepted("id-1"), State.ACCEPTED, AttemptOutcome.ACCEPTED),
    (Duplicate("seen"), State.IN_DOUBT, AttemptOutcome.DUPLICATE),
    (Rejected("no such mailbox", "550"), State.FAILED, AttemptOutcome.REJECTED),
    (Throttled(30.0), State.PENDING, AttemptOutcome.THROTTLED),
    (Unavailable("connection refused"), State.PENDING, AttemptOutcome.UNAVAILABLE),
    (AccountBlocked("credentials", "401"), State.PENDING, AttemptOutcome.ACCOUNT_BLOCKED),
    (InDoubt("no answer"), State.IN_DOUBT, AttemptOutcome.IN_DOUBT),
    (InFlight(2.0), State.IN_DOUBT, AttemptOutcome.IN_FLIGHT),
    (KeyMismatch("other body"), State.HELD, AttemptOutcome.KEY_MISMATCH),
]


def settled(outcome: Outcome, *results: str, jitter: float = 0.5, **changes: object) -> Settlement:
    return decide.settle(
        attempt(*results, **changes), Result(outcome), POLICY, now=NOW, jitter=jitter
    )


@pytest.mark.parametrize(("outcome", "state", "ending"), FIRST)
def test_each_outcome_leads_to_its_state(
    outcome: Outcome, state: State, ending: AttemptOutcome
) -> None:
    """A delivery without other doubt goes where the table of outcomes says."""
    decision = settled(outcome)
    assert (decision.state, decision.end.outcome) == (state, ending)


@pytest.mark.parametrize(
    "outcome",
    [
        Throttled(30.0),
        Unavailable("refused"),
        AccountBlocked("credentials", "401"),
        InFlight(2.0),
        Rejected("no", "422"),
    ],
)
def test_an_outcome_settles_only_its_own_attempt(outcome: Outcome) -> None:
    """A1: a refused replay says nothing about the attempt that is in doubt."""
    assert settled(outcome, "in_doubt", claimed_from=State.IN_DOUBT).state is State.IN_DOUBT


def test_acceptance_of_a_replay_settles_the_doubt() -> None:
    """Only proof of acceptance moves a recipient out of doubt."""
    assert settled(Accepted("x"), "in_doubt").state is State.ACCEPTED


def test_recipients_are_settled_one_by_one() -> None:
    """A9, B35: accepted, refused for good and refused for now stand side by side."""
    result = Result(
        Accepted("q1"),
        recipients={
            "r1@example.org": Rejected("unknown", "550"),
            "r2@example.org": Unavailable("greylisted", "451"),
        },
    )
    row = attempt("pending", "pending", "pending")
    decision = decide.settle(row, result, POLICY, now=NOW, jitter=0.5)
    results = {u.position: (u.result.value, u.code) for u in decision.recipients}
    assert results == {0: ("accepted", None), 1: ("failed", "550"), 2: ("pending", "451")}
    assert decision.state is State.PENDING
    assert decision.attempts == 1


def test_the_last_open_recipient_leaves_the_delivery_accepted() -> None:
    """A delivery with one taken recipient is accepted when the others have failed."""
    decision = settled(Rejected("unknown", "550"), "accepted", "pending")
    assert decision.state is State.ACCEPTED
    assert decision.reason is None


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (Unavailable("refused"), True),
        (InDoubt("read time-out"), True),
        (Unavailable("pool", counted=False), False),
        (Throttled(1.0), False),
        (AccountBlocked("quota", "daily"), False),
        (InFlight(1.0), False),
    ],
)
def test_only_unavailable_and_in_doubt_use_the_budget(outcome: Outcome, *, counts: bool) -> None:
    """B19, B43: throttling, blocks and waits inside this process cost no attempt."""
    decision = settled(outcome)
    assert decision.attempts == int(counts)
    assert (decision.window_started_at is not None) == counts


def test_the_attempt_cap_ends_in_failed_exhausted() -> None:
    """The budget's last counted attempt fails the delivery, with its reason."""
    decision = settled(Unavailable("refused"), attempts=2, window_started_at=NOW)
    assert (decision.state, decision.reason) == (State.FAILED, "exhausted")
    assert decision.recipients[0].result is RecipientResult.FAILED


def test_doubt_is_never_exhausted_into_failed() -> None:
    """A spent budget says nothing about a message that may have been taken."""
    assert settled(InDoubt("no answer"), attempts=2, window_started_at=NOW).state is State.IN_DOUBT


def test_the_window_ends_the_trying() -> None:
    """Attempts left do not help once the retry window is over."""
    decision = settled(Unavailable("refused"), window_started_at=NOW - timedelta(hours=1))
    assert (decision.state, decision.reason) == (State.FAILED, "exhausted")


def test_the_window_stands_still_while_the_account_is_paused() -> None:
    """B19: of two hours since the window began, ninety minutes of pause do not count."""
    decision = settled(
        Unavailable("refused"),
        window_started_at=NOW - timedelta(hours=2),
        window_paused=100.0,
        account_paused=100.0 + 90 * 60,
    )
    assert decision.state is State.PENDING


def test_a_throttled_account_is_paused_as_long_as_it_was_told() -> None:
    """``Retry-After`` holds for the account, and the row comes due with it."""
    decision = settled(Throttled(120.0, "slow down"))
    assert decision.pause is not None
    assert decision.pause.until == NOW + timedelta(seconds=120)
    assert decision.pause.reason is PauseReason.THROTTLED
    assert decision.due_at >= decision.pause.until


@pytest.mark.parametrize(
    ("told", "waits"),
    [(0.0, 1.0), (-5.0, 1.0), (1.5, 1.5), (99999999999.0, 3600.0), (float("inf"), 3600.0)],
)
def test_pauses_are_bounded(told: float, waits: float) -> None:
    """B75: a wait that is past gives no tight loop, a huge one is capped at an hour."""
    decision = settled(Throttled(told))
    assert decision.pause is not None
    assert decision.pause.until - NOW == timedelta(seconds=waits)


def test_a_block_pauses_longer_each_time() -> None:
    """Without a hint, an account that stays blocked is asked less and less often."""
    blocked = AccountBlocked("credentials", "401")
    waits = []
    for failures in (0, 1, 2, 50):
        pause = settled(blocked, account_failures=failures).pause
        assert pause is not None
        waits.append((pause.until - NOW).total_seconds())
    assert waits == [60, 120, 240, 3600]


@pytest.mark.parametrize("jitter", [0.0, 0.25, 0.999])
def test_backoff_is_spread_over_the_whole_bound(jitter: float) -> None:
    """Full jitter: uniform between nothing and the exponential bound."""
    decision = settled(Unavailable("refused"), jitter=jitter, attempts=1)
    assert decision.due_at == NOW + timedelta(seconds=10) * jitter


def test_any_settle_resets_the_crashes() -> None:
    """A row that was settled has not crashed its dispatcher."""
    assert settled(Unavailable("refused")).crashes == 0


@pytest.mark.parametrize(
    ("request_", "outcome", "state", "reason", "before"),
    [
        (StopRequest.CANCEL, Unavailable("refused"), State.CANCELLED, "producer", None),
        (StopRequest.HOLD, Unavailable("refused"), State.HELD, "operator", State.PENDING),
        (StopRequest.CANCEL, InDoubt("no answer"), State.HELD, "operator", State.IN_DOUBT),
        (StopRequest.HOLD, InDoubt("no answer"), State.HELD, "operator", State.IN_DOUBT),
        (StopRequest.CANCEL, Accepted("x"), State.ACCEPTED, None, None),
        (StopRequest.CANCEL, Rejected("no"), State.FAILED, "rejected", None),
    ],
)
def test_a_request_to_stop_is_carried_out_at_the_settle(
    request_: StopRequest, outcome: Outcome, state: State, reason: str | None, before: State | None
) -> None:
    """N15: cancel and hold take effect if it was not taken; doubt is held."""
    decision = settled(outcome, stop_requested=request_)
    assert (decision.state, decision.reason, decision.held_from) == (state, reason, before)


def test_the_decision_agrees_with_the_fold() -> None:
    """The delivery's state is the fold of what its recipients become."""
    for outcome, _, _ in FIRST:
        decision = settled(outcome, "pending", "accepted", "failed")
        results = {r.position: r.result for r in decision.attempt.recipients}
        results |= {u.position: u.result for u in decision.recipients}
        assert decision.state is fold(results.values())


@pytest.mark.parametrize(
    ("phase", "before", "state", "outcome"),
    [
        (Phase.CLAIMED, "pending", State.PENDING, AttemptOutcome.NOT_STARTED),
        (Phase.CLAIMED, "in_doubt", State.IN_DOUBT, AttemptOutcome.NOT_STARTED),
        (Phase.TRANSMITTING, "pending", State.IN_DOUBT, AttemptOutcome.LOST),
        (Phase.TRANSMITTING, "in_doubt", State.IN_DOUBT, AttemptOutcome.LOST),
    ],
)
def test_a_lapsed_lease_is_read_by_phase(
    phase: Phase, before: str, state: State, outcome: AttemptOutcome
) -> None:
    """A2, B29: claimed goes back to where it came from, transmitting becomes doubt."""
    decision = decide.lapsed(attempt(before, phase=phase, claimed_from=State(before)))
    assert (decision.state, decision.end.outcome) == (state, outcome)
    assert decision.crashes == 3
    assert decision.attempts == 0


def test_a_lapsed_cancel_is_carried_out() -> None:
    """A cancel asked of a sender that died before the mark is final at recovery."""
    decision = decide.lapsed(attempt(phase=Phase.CLAIMED, stop_requested=StopRequest.CANCEL))
    assert (decision.state, decision.reason) == (State.CANCELLED, "producer")


@pytest.mark.parametrize(
    ("reason", "state", "outcome"),
    [
        ("stopped", State.PENDING, AttemptOutcome.NOT_STARTED),
        ("shutdown", State.PENDING, AttemptOutcome.NOT_STARTED),
        ("lease", State.PENDING, AttemptOutcome.NOT_STARTED),
        ("too_late", State.EXPIRED, AttemptOutcome.TOO_LATE),
    ],
)
def test_withheld_leaves_nothing_taken(reason: str, state: State, outcome: AttemptOutcome) -> None:
    """N4: what was stopped before a complete message left is not in doubt and costs nothing."""
    decision = decide.withheld(attempt(), reason)
    assert (decision.state, decision.end.outcome, decision.attempts) == (state, outcome, 0)
    assert decision.due_at == attempt().due_at


def test_an_unusable_message_fails_alone_with_its_reason() -> None:
    """B17: the field is named, and the row is not tried again."""
    decision = decide.invalid(attempt(), "subject: has half a surrogate pair \ud83d")
    assert (decision.state, decision.reason) == (State.FAILED, "invalid_message")
    assert "\ud83d" not in (decision.last_error or "")


def test_words_from_outside_are_made_fit_to_store() -> None:
    """A18: NUL and surrogates in a provider's reason never reach SQL."""
    decision = settled(Rejected("bad \x00 \ud83d \x1b[31m", "5\x0050"))
    assert not set("\x00\ud83d\x1b") & set(f"{decision.end.reason}{decision.recipients[0].code}")


def test_an_overdue_row_expires_and_keeps_what_was_taken() -> None:
    """``send_before`` ends the open recipients only."""
    row = Idle(1, State.PENDING, "main", people("pending"))
    assert endings.overdue(row).state is State.EXPIRED
    partly = Idle(1, State.PENDING, "main", people("accepted", "pending"))
    assert endings.overdue(partly).state is State.ACCEPTED


def test_an_unknown_account_holds_the_row() -> None:
    """A row that names an account nobody knows waits for a person, and says why."""
    ending = endings.unknown_account(Idle(1, State.PENDING, "typo", people("pending")))
    assert (ending.state, ending.reason, ending.held_from) == (
        State.HELD,
        "unknown_account",
        State.PENDING,
    )
    assert "typo" in (ending.last_error or "")
