"""What an attempt's end means for its delivery. Pure: the rules of the state diagram.

Each function maps (row as read under lock, what happened, policy, now, a random
number) to one frozen :class:`~outbox.records.Settlement` or
:class:`~outbox.records.Ending`. Nobody else assembles them.

Two rules shape everything here. *An outcome settles only its own attempt*: for
a recipient who is in doubt already, only proof of acceptance (or a mismatch)
says anything; "refused" or "come back later" leaves the doubt where it was.
*The delivery's state is a fold over its recipients*: a good address is never
sent to again because of a bad one beside it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from dispatcher.answers import (
    counts,
    due,
    end,
    given_up,
    last_error,
    pause,
    reason,
    standing,
    telling,
)
from dispatcher.backoff import RetryPolicy, exhausted
from outbox.records import (
    AttemptEnd,
    Fact,
    OpenAttempt,
    RecipientRow,
    RecipientUpdate,
    Settlement,
    Standing,
)
from outbox.states import (
    AttemptOutcome,
    CancelledReason,
    EvidenceKind,
    FailedReason,
    HeldReason,
    Phase,
    RecipientResult,
    State,
    StopRequest,
    Verdict,
    fold,
)
from outbox.texts import cleaned
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

CRASHES_ALONE = 3
"""Crashes in a row while claimed alone after which a row is held."""


def settle(
    attempt: OpenAttempt, result: Result, policy: RetryPolicy, *, now: datetime, jitter: float
) -> Settlement:
    """The decision about an attempt that a provider has answered (or not).

    ``now`` is the database's instant; ``jitter`` is uniform in [0, 1).
    """
    answered = _answered(attempt, result)
    outcomes = {r.position: result.recipients.get(r.address, result.outcome) for r in answered}
    settled = _counted(attempt, next(filter(counts, outcomes.values()), None), now)
    over = given_up(attempt, result.outcome, now)
    counted = settled.attempts > attempt.attempts
    if counted and exhausted(policy, settled.attempts, _elapsed(settled, now)):
        over = FailedReason.EXHAUSTED
    updates = tuple(_recipient(r, outcomes[r.position]) for r in answered)
    if over is not None:
        updates = tuple(_given_up(update) for update in updates)
    told = telling(result.outcome, outcomes.values())
    decided = replace(
        settled,
        end=end(replace(result, outcome=told)),
        recipients=updates,
        last_error=last_error(outcomes.values()),
        pause=pause(attempt, result.outcome, policy, now, jitter),
        fact=_fact(attempt, told),
        standing=standing(result.outcome),
    )
    decided = replace(decided, due_at=due(decided, result.outcome, policy, now, jitter))
    return _with_state(decided, over)


def _fact(attempt: OpenAttempt, outcome: Outcome) -> Fact | None:
    """An accepted replay proves something about the attempts before it."""
    doubted = any(r.result is RecipientResult.IN_DOUBT for r in _carried(attempt))
    if doubted and isinstance(outcome, Accepted):
        return Fact(EvidenceKind.REPLAY, Verdict.TAKEN)
    return None


def invalid(attempt: OpenAttempt, problem: str) -> Settlement:
    """The message cannot be made into mail: it fails alone, naming the field.

    Doubt about an earlier attempt is not settled by that, and cannot be any more: held.
    """
    text = cleaned(problem)
    updates = _open(attempt, RecipientResult.FAILED, reason=text)
    updates += _doubtful(attempt, RecipientResult.HELD, reason=text)
    decided = replace(
        _unsettled(attempt),
        end=AttemptEnd(AttemptOutcome.REJECTED, reason=text),
        recipients=updates,
        last_error=text,
    )
    return _with_state(decided, FailedReason.INVALID_MESSAGE, HeldReason.NO_EVIDENCE)


def withheld(attempt: OpenAttempt, reason: str) -> Settlement:
    """The attempt ended before a complete message could leave; nothing was taken.

    ``reason`` is that of :class:`providers.contract.Withheld`.
    """
    late = reason == "too_late"
    outcome = AttemptOutcome.TOO_LATE if late else AttemptOutcome.NOT_STARTED
    decided = replace(_unsettled(attempt), end=AttemptEnd(outcome, reason=reason))
    if late:
        decided = replace(decided, recipients=_open(attempt, RecipientResult.EXPIRED))
    return _with_state(decided)


def looked_up(attempt: OpenAttempt, finding: Finding, *, counts: bool, now: datetime) -> Settlement:
    """The decision about an attempt that only asked. ``counts``: "not found", asked when it
    was, proves that nothing was taken; then the recipients are open again."""
    ground = _unsettled(attempt)
    match finding:
        case Found(message_id):
            found = AttemptEnd(AttemptOutcome.ACCEPTED, provider_message_id=cleaned(message_id))
            updates = tuple(
                RecipientUpdate(
                    r.position, RecipientResult.ACCEPTED, provider_message_id=cleaned(message_id)
                )
                for r in _carried(attempt)
            )
            fact = Fact(EvidenceKind.LOOK_UP, Verdict.TAKEN)
            return _with_state(
                replace(ground, end=found, recipients=updates, fact=fact, standing=Standing.WORKS)
            )
        case Absent() if counts:
            absent = AttemptEnd(AttemptOutcome.UNAVAILABLE, reason="look-up: not there")
            late = attempt.send_before is not None and attempt.send_before <= now
            result = RecipientResult.EXPIRED if late else RecipientResult.PENDING
            fact = Fact(EvidenceKind.LOOK_UP, Verdict.NOT_TAKEN)
            ended = replace(ground, end=absent, recipients=_all(attempt, result), due_at=now)
            return _with_state(replace(ended, fact=fact, standing=Standing.WORKS))
        case Absent():
            words = "look-up: not there, which proves nothing yet"
        case Unknown(reason):
            words = cleaned(f"look-up: {reason}") or "look-up"
        case _:
            assert_never(finding)
    unsure = AttemptEnd(AttemptOutcome.IN_DOUBT, reason=words)
    fact = Fact(EvidenceKind.LOOK_UP, Verdict.UNKNOWN)
    return _with_state(replace(ground, end=unsure, due_at=now, fact=fact))


def lapsed(attempt: OpenAttempt) -> Settlement:
    """The lease ran out under its owner: read by phase. The crash is counted."""
    crashes = attempt.crashes + 1
    alone = attempt.crashes_alone + int(attempt.alone)
    if alone >= CRASHES_ALONE:
        return _crashed_alone(attempt, crashes, alone)
    if attempt.phase is not Phase.TRANSMITTING:
        end = AttemptEnd(AttemptOutcome.NOT_STARTED, reason="lease lapsed before transmitting")
        decided = replace(_unsettled(attempt), end=end, crashes=crashes, crashes_alone=alone)
        return _with_state(decided)
    end = AttemptEnd(AttemptOutcome.LOST, reason="lease lapsed while transmitting")
    decided = replace(
        _unsettled(attempt),
        end=end,
        crashes=crashes,
        crashes_alone=alone,
        recipients=_all(attempt, RecipientResult.IN_DOUBT, reason=end.reason),
        last_error="the dispatcher was lost while transmitting; how much left is not known",
    )
    return _with_state(decided)


def _crashed_alone(attempt: OpenAttempt, crashes: int, alone: int) -> Settlement:
    """Three dispatchers in a row were lost with nothing else in hand: it is this row."""
    transmitting = attempt.phase is Phase.TRANSMITTING
    outcome = AttemptOutcome.LOST if transmitting else AttemptOutcome.NOT_STARTED
    words = f"its dispatcher was lost {alone} times in a row while it was sent alone"
    decided = replace(
        _unsettled(attempt),
        end=AttemptEnd(outcome, reason=words),
        crashes=crashes,
        crashes_alone=alone,
        recipients=_all(attempt, RecipientResult.HELD, reason=words),
        last_error=words,
    )
    ended = _with_state(decided, None, HeldReason.CRASHED_ALONE)
    if transmitting and ended.state is State.HELD:
        return replace(ended, held_from=State.IN_DOUBT)
    before = attempt.claimed_from if attempt.claimed_from is State.IN_DOUBT else State.PENDING
    return replace(ended, held_from=before) if ended.state is State.HELD else ended


# --------------------------------------------------------------------------- #
# Recipients
# --------------------------------------------------------------------------- #


_OPEN = frozenset({RecipientResult.PENDING, RecipientResult.IN_DOUBT})


def _carried(attempt: OpenAttempt) -> list[RecipientRow]:
    """The recipients this attempt was for."""
    wanted = set(attempt.attempt_recipients)
    return [r for r in attempt.recipients if r.position in wanted]


def _answered(attempt: OpenAttempt, result: Result) -> list[RecipientRow]:
    """Whom an answer is about: those the attempt carried, and those who were refused before
    its mark and so are not in it (SMTP: RCPT)."""
    wanted = set(attempt.attempt_recipients)
    return [
        r
        for r in attempt.recipients
        if r.position in wanted or (r.address in result.recipients and r.result in _OPEN)
    ]


def _all(
    attempt: OpenAttempt, result: RecipientResult, reason: str | None = None
) -> tuple[RecipientUpdate, ...]:
    return tuple(RecipientUpdate(r.position, result, reason=reason) for r in _carried(attempt))


def _open(
    attempt: OpenAttempt, result: RecipientResult, reason: str | None = None
) -> tuple[RecipientUpdate, ...]:
    """Only those carried for whom nothing is in doubt."""
    pending = {r.position for r in attempt.recipients if r.result is RecipientResult.PENDING}
    return tuple(u for u in _all(attempt, result, reason) if u.position in pending)


def _doubtful(
    attempt: OpenAttempt, result: RecipientResult, reason: str | None = None
) -> tuple[RecipientUpdate, ...]:
    """Only those carried who were in doubt before."""
    doubted = {r.position for r in attempt.recipients if r.result is RecipientResult.IN_DOUBT}
    return tuple(u for u in _all(attempt, result, reason) if u.position in doubted)


def _recipient(recipient: RecipientRow, outcome: Outcome) -> RecipientUpdate:
    """What one address becomes; one that is in doubt stays so without proof of acceptance."""
    doubted = recipient.result is RecipientResult.IN_DOUBT
    back = RecipientResult.IN_DOUBT if doubted else RecipientResult.PENDING

    def becomes(
        result: RecipientResult, *, code: str | None = None, provider_id: str | None = None
    ) -> RecipientUpdate:
        return RecipientUpdate(
            recipient.position, result, cleaned(code or None, 64), reason(outcome),
            cleaned(provider_id),
        )  # fmt: skip

    match outcome:
        case Accepted(message_id):
            return becomes(RecipientResult.ACCEPTED, provider_id=message_id)
        case Rejected(_, code):
            return becomes(back if doubted else RecipientResult.FAILED, code=code)
        case Unavailable(_, code):
            return becomes(back, code=code)
        case Throttled() | AccountBlocked():
            return becomes(back)
        case Duplicate() | InDoubt() | InFlight():
            return becomes(RecipientResult.IN_DOUBT)
        case KeyMismatch():
            return becomes(RecipientResult.HELD)
        case _:
            assert_never(outcome)


def _given_up(update: RecipientUpdate) -> RecipientUpdate:
    pending = update.result is RecipientResult.PENDING
    return replace(update, result=RecipientResult.FAILED) if pending else update


def _after(settlement: Settlement) -> dict[int, RecipientResult]:
    results = {r.position: r.result for r in settlement.attempt.recipients}
    return results | {u.position: u.result for u in settlement.recipients}


# --------------------------------------------------------------------------- #
# The delivery
# --------------------------------------------------------------------------- #


def _unsettled(attempt: OpenAttempt) -> Settlement:
    """Back to where it was claimed from, due when it was: the ground of every decision.

    Any settle resets the count of crashes.
    """
    return Settlement(
        attempt=attempt,
        end=AttemptEnd(AttemptOutcome.NOT_STARTED),
        state=attempt.claimed_from,
        recipients=(),
        due_at=attempt.due_at,
        attempts=attempt.attempts,
        crashes=0,
        window_started_at=attempt.window_started_at,
        window_paused=attempt.window_paused,
    )


def _counted(attempt: OpenAttempt, counts: Outcome | None, now: datetime) -> Settlement:
    """With this attempt charged to the budget, if it counts; the first one opens the window."""
    ground = _unsettled(attempt)
    if counts is None:
        return ground
    if attempt.window_started_at is None:
        ground = replace(ground, window_started_at=now, window_paused=attempt.account_paused)
    return replace(ground, attempts=attempt.attempts + 1)


def _with_state(
    decided: Settlement,
    failed: FailedReason | None = None,
    held: HeldReason = HeldReason.OPERATOR,
) -> Settlement:
    """Fold the recipients into the state, then carry out what was asked of a row in flight."""
    known = _after(decided)
    if not known:
        return decided
    unstopped = fold(known.values())
    decided = _stopped(decided)
    state = fold(_after(decided).values())
    reason: str | None = None
    held_from: State | None = None
    if state is State.HELD:
        mismatch = decided.end.outcome is AttemptOutcome.KEY_MISMATCH
        reason = HeldReason.KEY_MISMATCH if mismatch else held
        held_from = State.PENDING if unstopped is State.PENDING else State.IN_DOUBT
    elif state is State.FAILED:
        reason = failed or FailedReason.REJECTED
    elif state is State.CANCELLED:
        reason = CancelledReason.PRODUCER
    return replace(decided, state=state, reason=reason, held_from=held_from)


def _stopped(decided: Settlement) -> Settlement:
    """``stop_requested``: what is open is cancelled or held; what is in doubt is held."""
    request = decided.attempt.stop_requested
    if request is None:
        return decided
    results = _after(decided)
    if RecipientResult.IN_DOUBT in results.values():
        moves = {
            RecipientResult.IN_DOUBT: RecipientResult.HELD,
            RecipientResult.PENDING: RecipientResult.HELD,
        }
    elif request is StopRequest.CANCEL:
        moves = {RecipientResult.PENDING: RecipientResult.CANCELLED}
    else:
        moves = {RecipientResult.PENDING: RecipientResult.HELD}
    known = {update.position: update for update in decided.recipients}
    updates = tuple(
        replace(known.get(position, RecipientUpdate(position, result)), result=moves[result])
        for position, result in results.items()
        if result in moves
    )
    moved = {update.position for update in updates}
    kept = tuple(update for update in decided.recipients if update.position not in moved)
    return replace(decided, recipients=kept + updates)


def _elapsed(settlement: Settlement, now: datetime) -> timedelta:
    """How much of the retry window is used: pauses of the account since its start do not count."""
    if settlement.window_started_at is None:
        return timedelta()
    paused = max(0.0, settlement.attempt.account_paused - settlement.window_paused)
    return now - settlement.window_started_at - timedelta(seconds=paused)
