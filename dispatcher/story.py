"""What is known of one delivery, and what happens next, in plain sentences. Pure.

A person who reads this at night decides whether somebody gets a second copy. So
each sentence says only what the rows prove: "it was being transmitted" is not
"it was sent", and "nothing came back" is not "nothing arrived".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dispatcher.waiting import waiting_for
from dispatcher.wording import CANCELLED, ENDED, FAILED, HELD, PAUSED
from outbox.reports import AccountState, AttemptDetail, Story
from outbox.states import (
    CancelledReason,
    FailedReason,
    HeldReason,
    Phase,
    RecipientResult,
    State,
    StopRequest,
    WaitingFor,
)


@dataclass(frozen=True, slots=True)
class Around:
    """What else counts for one delivery. ``paused``: its account's pause, if there is one;
    ``configured`` is False for an account that the configuration does not know;
    ``dispatchers`` is how many are alive; ``max_attempts`` the budget of retries."""

    at: datetime
    account: str
    provider: str
    configured: bool
    paused: AccountState | None
    dispatchers: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Told:
    """The story in sentences. ``if_sent_again`` is "" where no second copy is possible."""

    waiting_for: WaitingFor | None
    known: str
    next: str
    if_sent_again: str


def told(story: Story, around: Around) -> Told:
    """What we know, what happens, and who may get a second copy."""
    waits = _waits(story, around)
    known = " ".join(part for part in (_KNOWN[story.summary.state](story), _partly(story)) if part)
    return Told(waits, known, _next(story, around, waits), _again(story))


def clock(instant: datetime | None) -> str:
    """An instant in a sentence: ``2026-11-29 03:07:12Z``."""
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M:%SZ}"


def _waits(story: Story, around: Around) -> WaitingFor | None:
    row = story.summary
    if row.state is not State.PENDING:
        return None
    return waiting_for(
        due=row.due_at <= around.at,
        attempted=row.claims > 0,
        account_paused=around.paused is not None,
    )


# --------------------------------------------------------------------------- #
# What we know
# --------------------------------------------------------------------------- #


def _last(story: Story) -> AttemptDetail | None:
    return story.attempts[-1] if story.attempts else None


def _pending(story: Story) -> str:
    last = _last(story)
    if last is None:
        return "It was never tried; nothing has left."
    if last.outcome is None:
        return "Nothing has left that was taken."
    why = last.reason or story.summary.last_error
    because = f" ({why})" if why else ""
    return f"Nothing was taken. The last attempt: {ENDED[last.outcome]}{because}."


def _sending(story: Story) -> str:
    last = _last(story)
    who = last.by if last else "a dispatcher"
    if last is not None and last.phase is Phase.TRANSMITTING:
        return f"{who} is transmitting it since {clock(last.transmitting_at)}; no answer yet."
    return f"{who} has claimed it; no byte of it has left."


def _in_doubt(story: Story) -> str:
    doubted = [a for a in story.attempts if a.transmitting_at is not None]
    last = doubted[-1] if doubted else None
    if last is None:
        return "Bytes of it may have left, and no proof came back."
    why = f" ({last.reason})" if last.reason else ""
    ended = ENDED[last.outcome] if last.outcome else "it has no end"
    return (
        f"It was being transmitted since {clock(last.transmitting_at)}: {ended}{why}. "
        "How much left is not known."
    )


def _held(story: Story) -> str:
    reason = story.summary.reason
    words = HELD[HeldReason(reason)] if reason else "it was held"
    doubt = story.held_from is not None and story.held_from is not State.PENDING
    before = _in_doubt(story) if doubt else "Nothing was taken."
    return f"Held: {words}. {before}"


def _accepted(story: Story) -> str:
    ids = sorted({r.provider_message_id for r in story.recipients if r.provider_message_id})
    named = f" as {', '.join(ids)}" if ids else ""
    text = f"The provider took it at {clock(story.summary.finished_at)}{named}."
    if story.summary.copies > 1:
        text += f" It took {story.summary.copies} copies."
    return text


def _failed(story: Story) -> str:
    reason = story.summary.reason
    words = FAILED[FailedReason(reason)] if reason else "it failed"
    why = f": {story.summary.last_error}" if story.summary.last_error else ""
    return f"Nothing was taken; {words}{why}."


def _expired(story: Story) -> str:
    return f"Nothing was taken before {clock(story.summary.send_before)} (send_before)."


def _cancelled(story: Story) -> str:
    reason = story.summary.reason
    words = CANCELLED[CancelledReason(reason)] if reason else "it was cancelled"
    return f"Nothing was taken; {words}."


def _unresolved(story: Story) -> str:
    del story
    return "It may have been taken. A person closed the doubt; nothing will ever prove it."


_KNOWN: Mapping[State, Callable[[Story], str]] = {
    State.PENDING: _pending,
    State.SENDING: _sending,
    State.IN_DOUBT: _in_doubt,
    State.HELD: _held,
    State.ACCEPTED: _accepted,
    State.FAILED: _failed,
    State.EXPIRED: _expired,
    State.CANCELLED: _cancelled,
    State.UNRESOLVED: _unresolved,
}


def _partly(story: Story) -> str:
    """How many of several recipients have it, where they differ."""
    results = [r.result for r in story.recipients]
    taken = results.count(RecipientResult.ACCEPTED)
    if taken in {0, len(results)}:
        return ""
    return f"{taken} of {len(results)} recipients have it."


# --------------------------------------------------------------------------- #
# What happens
# --------------------------------------------------------------------------- #


def _next(story: Story, around: Around, waits: WaitingFor | None) -> str:
    row = story.summary
    match row.state:
        case State.PENDING:
            end = f" Not after {clock(row.send_before)} (send_before)." if row.send_before else ""
            return _pending_next(story, around, waits) + end
        case State.SENDING:
            return _sending_next(story)
        case State.IN_DOUBT:
            return "Nothing by itself: it is not sent again while it is in doubt."
        case State.HELD:
            return "Nothing, until a person decides."
        case State.ACCEPTED:
            return "Nothing: it is done."
        case _:
            return "Nothing: it is closed and will not be sent by itself."


def _pending_next(story: Story, around: Around, waits: WaitingFor | None) -> str:
    row = story.summary
    if not around.configured:
        return f"It will be held: no account named {around.account} is configured here."
    match waits:
        case WaitingFor.SCHEDULE:
            return f"It is sent at {clock(row.due_at)}, as its producer asked."
        case WaitingFor.RETRY:
            used = f"{row.counted_attempts} of {around.max_attempts} tries are used"
            return f"It is tried again at {clock(row.due_at)}; {used}."
        case WaitingFor.ACCOUNT:
            return _account_next(around)
        case _:
            if not around.dispatchers:
                return 'It is due, but no dispatcher is alive: start "postroom dispatch".'
            return "It is due; the next free slot takes it."


def _account_next(around: Around) -> str:
    pause = around.paused
    if pause is None or pause.pause_reason is None:
        return "It waits for its account."
    detail = f" ({pause.pause_detail})" if pause.pause_detail else ""
    return (
        f"Account {around.account} is paused until {clock(pause.paused_until)}: "
        f"{PAUSED[pause.pause_reason]}{detail}. Then it is sent."
    )


def _sending_next(story: Story) -> str:
    last = _last(story)
    transmitting = last is not None and last.phase is Phase.TRANSMITTING
    lapse = "it will be in doubt" if transmitting else "it goes back to where it was"
    text = (
        f"Its end is written when the answer comes. If the lease lapses at "
        f"{clock(story.lease_expires_at)}, {lapse}."
    )
    if story.stop_requested is StopRequest.CANCEL:
        text += " Cancelling was asked for; it takes effect if it is not taken."
    elif story.stop_requested is StopRequest.HOLD:
        text += " Holding was asked for; it takes effect if it is not taken."
    return text


def _again(story: Story) -> str:
    doubt = story.summary.state is State.IN_DOUBT or (
        story.summary.state is State.HELD and story.held_from is not State.PENDING
    )
    if not doubt and story.summary.state is not State.UNRESOLVED:
        return ""
    who = [r.address for r in story.recipients if r.result is not RecipientResult.FAILED]
    named = ", ".join(who[:3]) + (f" and {len(who) - 3} more" if len(who) > 3 else "")
    return f"{named or 'Somebody'} may get a second copy, with the same Message-ID."
