"""What a row becomes by an operator's verb. Pure; :mod:`dispatcher.verbs` says when.

Every effect moves the recipients that it is about and folds the delivery's state anew, so
that a verb on a partly accepted delivery touches nobody who has it already. Nobody else
assembles a :class:`~outbox.records_verbs.Change`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from dispatcher.verb_subjects import Act, Subject, Wish
from outbox.records import RecipientUpdate
from outbox.records_verbs import Again, Change, OperatorFact
from outbox.states import (
    CancelledReason,
    FailedReason,
    HeldReason,
    RecipientResult,
    State,
    StopRequest,
    Verdict,
    fold,
)

_R = RecipientResult
Moves = Mapping[int, RecipientResult]


class Effect(StrEnum):
    """What happens to a row; ``dispatcher.verb_words`` has the words for people."""

    RETRIED = "retried"
    REPLAYED = "replayed"
    SETTLED_ACCEPTED = "settled_accepted"
    SETTLED_NOT_ACCEPTED = "settled_not_accepted"
    SETTLED_UNKNOWN = "settled_unknown"
    SENT_AGAIN = "sent_again"
    CLOSED_AND_SENT_AGAIN = "closed_and_sent_again"
    CANCELLED = "cancelled"
    CANCEL_ASKED = "cancel_asked"
    STOPPED_IN_DOUBT = "stopped_in_doubt"
    HELD = "held"
    HOLD_ASKED = "hold_asked"
    RELEASED = "released"
    RELEASED_IN_DOUBT = "released_in_doubt"
    MOVED = "moved"


def effect(which: Effect, subject: Subject, wish: Wish, now: datetime) -> Change:
    """The change that ``which`` makes of ``subject``. ``now`` is the database's instant."""
    return _EFFECTS[which](subject, wish, now)


def second_copies(subject: Subject, change: Change) -> frozenset[int]:
    """The positions of the recipients who may get a second copy by ``change``: those who
    have it, or may have it, and to whom it goes all the same."""
    if change.again is not None:
        had = subject.having(_R.ACCEPTED, _R.UNRESOLVED) - subject.dropped
        return (had | subject.doubtful) & frozenset(change.again.recipients)
    sent = {u.position for u in change.recipients if u.result is _R.PENDING}
    return subject.doubtful & sent


# --------------------------------------------------------------------------- #
# The effects
# --------------------------------------------------------------------------- #


def _retried(subject: Subject, wish: Wish, now: datetime) -> Change:
    again = {State.FAILED: [_R.FAILED], State.EXPIRED: [_R.EXPIRED], State.HELD: [_R.HELD]}
    which = again[subject.state]
    if FailedReason.REJECTED in wish.include:
        which = [*which, _R.FAILED]
    return _change(
        subject,
        _all(subject.having(*which), _R.PENDING),
        State.PENDING,
        due_at=max(now, subject.send_after),
        send_before=wish.send_before,
        refreshed=True,
    )


def _replayed(subject: Subject, wish: Wish, now: datetime) -> Change:
    return _change(
        subject,
        _back(subject),
        State.IN_DOUBT,
        due_at=now,
        send_before=wish.send_before,
        refreshed=True,
    )


def _settled_accepted(subject: Subject, wish: Wish, now: datetime) -> Change:
    del wish
    attempts = [a.number for a in _doubted(subject)]
    fact = OperatorFact(max(attempts, default=None), Verdict.TAKEN)
    moves = _all(subject.doubtful, _R.ACCEPTED)
    return _settled(subject, moves, State.ACCEPTED, now, (fact,))


def _settled_unknown(subject: Subject, wish: Wish, now: datetime) -> Change:
    del wish
    moves = _all(subject.doubtful, _R.UNRESOLVED)
    fact = OperatorFact(None, Verdict.UNKNOWN)
    return _settled(subject, moves, State.UNRESOLVED, now, (fact,))


def _settled_not_accepted(subject: Subject, wish: Wish, now: datetime) -> Change:
    """What was held beside the doubt goes on with it: a person has decided.

    One fact for each attempt: none of them may be found in doubt again.
    """
    del wish
    late = subject.send_before is not None and subject.send_before <= now
    result, otherwise = (_R.EXPIRED, State.EXPIRED) if late else (_R.PENDING, State.PENDING)
    moves = _all(subject.doubtful | subject.having(_R.HELD), result)
    attempts: list[int | None] = [a.number for a in _doubted(subject)]
    facts = tuple(OperatorFact(number, Verdict.NOT_TAKEN) for number in attempts or [None])
    return _settled(subject, moves, otherwise, now, facts, refreshed=True)


def _sent_again(subject: Subject, wish: Wish, now: datetime) -> Change:
    del now
    return _change(subject, {}, subject.state, again=_again(subject, wish))


def _closed_and_sent_again(subject: Subject, wish: Wish, now: datetime) -> Change:
    """The first is closed in the same write: left open, somebody might still be right that it
    was never taken, and let it go as well."""
    del now
    moves = _all(subject.having(_R.HELD), _R.UNRESOLVED)
    moves |= _all(subject.having(_R.PENDING), _R.CANCELLED)
    return _change(
        subject,
        moves,
        State.UNRESOLVED,
        facts=(OperatorFact(None, Verdict.UNKNOWN),),
        again=_again(subject, wish),
    )


def _cancelled(subject: Subject, wish: Wish, now: datetime) -> Change:
    del wish, now
    return _change(
        subject, _all(subject.having(_R.PENDING, _R.HELD), _R.CANCELLED), State.CANCELLED
    )


def _stopped_in_doubt(subject: Subject, wish: Wish, now: datetime) -> Change:
    """No more transmissions: what never left is cancelled, what is in doubt waits."""
    del wish, now
    moves = _all(subject.having(_R.PENDING), _R.CANCELLED)
    return _change(subject, moves | _all(subject.having(_R.IN_DOUBT), _R.HELD), State.HELD)


def _held(subject: Subject, wish: Wish, now: datetime) -> Change:
    del wish, now
    return _change(subject, _all(subject.having(_R.PENDING, _R.IN_DOUBT), _R.HELD), State.HELD)


def _asked(subject: Subject, wish: Wish, now: datetime) -> Change:
    """A row in flight is its sender's: it is told, and its mark or settle carries it out."""
    del now
    stop = StopRequest.CANCEL if wish.act is Act.CANCEL else StopRequest.HOLD
    return _change(subject, {}, State.SENDING, stop=stop)


def _released(subject: Subject, wish: Wish, now: datetime) -> Change:
    del wish, now
    return _change(subject, _all(subject.having(_R.HELD), _R.PENDING), State.PENDING)


def _released_in_doubt(subject: Subject, wish: Wish, now: datetime) -> Change:
    del wish
    return _change(subject, _back(subject), State.IN_DOUBT, due_at=now)


_ABOUT_THE_ACCOUNT = frozenset({HeldReason.UNKNOWN_ACCOUNT, HeldReason.BLOCKED_TOO_LONG})


def _moved(subject: Subject, wish: Wish, now: datetime) -> Change:
    """Another account, another budget; a row that its old account held up goes on."""
    freed = subject.state is State.HELD and subject.reason in _ABOUT_THE_ACCOUNT
    return _change(
        subject,
        _all(subject.having(_R.HELD), _R.PENDING) if freed else {},
        State.PENDING if freed else subject.state,
        account=wish.account,
        due_at=max(now, subject.send_after),
        refreshed=True,
    )


_EFFECTS: Mapping[Effect, Callable[[Subject, Wish, datetime], Change]] = {
    Effect.RETRIED: _retried,
    Effect.REPLAYED: _replayed,
    Effect.SETTLED_ACCEPTED: _settled_accepted,
    Effect.SETTLED_NOT_ACCEPTED: _settled_not_accepted,
    Effect.SETTLED_UNKNOWN: _settled_unknown,
    Effect.SENT_AGAIN: _sent_again,
    Effect.CLOSED_AND_SENT_AGAIN: _closed_and_sent_again,
    Effect.CANCELLED: _cancelled,
    Effect.CANCEL_ASKED: _asked,
    Effect.STOPPED_IN_DOUBT: _stopped_in_doubt,
    Effect.HELD: _held,
    Effect.HOLD_ASKED: _asked,
    Effect.RELEASED: _released,
    Effect.RELEASED_IN_DOUBT: _released_in_doubt,
    Effect.MOVED: _moved,
}


# --------------------------------------------------------------------------- #
# Parts
# --------------------------------------------------------------------------- #


def _all(positions: frozenset[int], result: RecipientResult) -> dict[int, RecipientResult]:
    return dict.fromkeys(sorted(positions), result)


def _back(subject: Subject) -> dict[int, RecipientResult]:
    """Held recipients back where they were: in doubt, or never tried."""
    held = subject.having(_R.HELD)
    doubtful = held & subject.doubtful
    return _all(doubtful, _R.IN_DOUBT) | _all(held - doubtful, _R.PENDING)


def _doubted(subject: Subject) -> list[Any]:
    """The attempts in doubt that carried anybody who is doubtful."""
    return [a for a in subject.doubted if subject.doubtful & set(a.recipients)]


def _again_to(subject: Subject) -> tuple[int, ...]:
    """Whoever does not provably have it; where all have it, all: that is what was asked."""
    everyone = frozenset(r.position for r in subject.recipients)
    without = everyone - subject.having(_R.ACCEPTED) | subject.dropped
    return tuple(sorted(without or everyone))


def _again(subject: Subject, wish: Wish) -> Again:
    return Again(
        _again_to(subject),
        wish.account if wish.account is not None else subject.account,
        wish.send_before or subject.send_before,
    )


def _settled(
    subject: Subject,
    moves: Moves,
    otherwise: State,
    now: datetime,
    facts: tuple[OperatorFact, ...],
    *,
    refreshed: bool = False,
) -> Change:
    due = max(now, subject.send_after)
    return _change(subject, moves, otherwise, due_at=due, facts=facts, refreshed=refreshed)


def _change(
    subject: Subject,
    moves: Moves,
    otherwise: State,
    *,
    account: str | None = None,
    **fields: Any,
) -> Change:
    """The recipients moved and the state folded; ``otherwise`` where no recipient is known
    (a row written by plain SQL that was never claimed), or where nobody is moved."""
    results = {r.position: r.result for r in subject.recipients} | dict(moves)
    state = fold(results.values()) if moves and results else otherwise
    return Change(
        id=subject.id,
        key=subject.key,
        before=subject.state,
        owner=subject.owner,
        token=subject.token,
        account=subject.account if account is None else account,
        state=state,
        reason=_reason(subject, state, moves),
        held_from=_held_from(subject, state, results),
        recipients=tuple(RecipientUpdate(p, result) for p, result in moves.items()),
        **fields,
    )


_BY_DEFAULT: Mapping[State, str] = {
    State.HELD: HeldReason.OPERATOR,
    State.CANCELLED: CancelledReason.OPERATOR,
    State.FAILED: FailedReason.REJECTED,
}


def _reason(subject: Subject, state: State, moves: Moves) -> str | None:
    """What the row says already while nothing of it moves; else what a person did."""
    if state is subject.state and not moves:
        return subject.reason
    return _BY_DEFAULT.get(state)


def _held_from(subject: Subject, state: State, results: Moves) -> State | None:
    if state is not State.HELD:
        return None
    if not results:
        return subject.held_from or subject.state
    left = {p for p, result in results.items() if result is _R.HELD}
    return State.IN_DOUBT if left & subject.doubtful else State.PENDING
