"""The operators' verbs: what each may do to which row, as one table. Pure.

A verb that looks safe can send a second copy: "retry" of a row whose first sending was
taken, "not accepted" said while bytes of it are still in a socket, a row let go after it was
sent again under another key. So every cell of verb and situation is written down here, with
the facts that must hold, and what to type instead where they do not. The command line, and
whoever else acts for a person, ask :func:`decide` and nothing else.

``still_leaving`` is the guard behind ``settle --as not-accepted`` and ``send-again``: after
``over_at`` of an attempt nothing of it can leave a living process; what a dead one has left
in a socket arrives within :data:`~dispatcher.doubt.DRAIN_MARGIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, assert_never

from dispatcher.doubt import DRAIN_MARGIN
from dispatcher.verb_effects import Effect, effect
from dispatcher.verb_subjects import Act, Situation, Subject, Wish
from outbox.records_verbs import Change, successor_key
from outbox.states import FailedReason, HeldReason, RecipientResult, State, StopRequest


class Why(StrEnum):
    """Why a row is left alone, or refused; ``dispatcher.verb_words`` has the words for people."""

    ON_ITS_WAY = "on_its_way"
    IN_FLIGHT = "in_flight"
    ALREADY = "already"
    ALREADY_ASKED = "already_asked"
    CHANGED = "changed"
    TAKEN = "taken"
    CLOSED = "closed"
    NO_DOUBT = "no_doubt"
    NOT_HELD = "not_held"
    MAY_HAVE_BEEN_TAKEN = "may_have_been_taken"
    EVIDENCE_MAY_COME = "evidence_may_come"
    HELD_BY_THE_RULES = "held_by_the_rules"
    SENT_AGAIN = "sent_again"
    MESSAGE_GONE = "message_gone"
    REJECTED = "rejected"
    TIME_OVER = "time_over"
    NO_REPLAY = "no_replay"
    ACCOUNT_CHANGED = "account_changed"
    REQUEST_GONE = "request_gone"
    WINDOW_CLOSED = "window_closed"
    STILL_LEAVING = "still_leaving"
    HAS_LEFT = "has_left"
    KEY_TOO_LONG = "key_too_long"


@dataclass(frozen=True, slots=True)
class Doing:
    """The verb applies: what happens, and what the row becomes."""

    effect: Effect
    change: Change


@dataclass(frozen=True, slots=True)
class Left:
    """There is nothing to do: the row is where the verb would bring it, or on its way."""

    why: Why


@dataclass(frozen=True, slots=True)
class Refused:
    """The verb would be wrong. ``instead``: what to type; ``until``: from then on it is right."""

    why: Why
    instead: tuple[str, ...] = ()
    until: datetime | None = None


Decision: TypeAlias = Doing | Left | Refused
Need: TypeAlias = Callable[[Subject, Wish, datetime], "Left | Refused | None"]


@dataclass(frozen=True, slots=True)
class Do:
    """A cell in which the verb applies, if each of ``needs`` holds; the first that does not
    is the answer."""

    effect: Effect
    needs: tuple[Need, ...] = ()


Cell: TypeAlias = Do | Left | Refused

_SETTLE_OR_AGAIN = ("settle", Act.SEND_AGAIN.value)
_OPEN = (RecipientResult.PENDING, RecipientResult.HELD)


def decide(wish: Wish, subject: Subject, now: datetime) -> Decision:
    """What ``wish`` makes of ``subject`` at the database's instant ``now``."""
    cell = TABLE[wish.act][subject.situation]
    match cell:
        case Left() | Refused():
            return cell
        case Do(which, needs):
            for need in needs:
                answer = need(subject, wish, now)
                if answer is not None:
                    return answer
            return Doing(which, effect(which, subject, wish, now))
        case _:
            assert_never(cell)


# --------------------------------------------------------------------------- #
# Needs: None where the fact holds
# --------------------------------------------------------------------------- #


def not_sent_again(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """A row with a successor stays closed: the successor is what may be acted on."""
    del now
    if subject.superseded_by is None:
        return None
    return Refused(Why.SENT_AGAIN, (f"{wish.act} {subject.superseded_by}",))


def message_there(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    del wish, now
    return None if subject.has_message else Refused(Why.MESSAGE_GONE)


def not_rejected(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """An address that was refused for good is asked for by name."""
    del now
    rejected = subject.reason == FailedReason.REJECTED
    if not rejected or FailedReason.REJECTED in wish.include:
        return None
    return Refused(Why.REJECTED, ("--include rejected",))


def time_left(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """What goes out must still be wanted, and its end must lie behind its beginning."""
    return _time_left(subject, wish, now, ("--send-before T",))


def replay_time_left(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """After ``send_before`` nothing is transmitted, replays included."""
    return _time_left(subject, wish, now, _SETTLE_OR_AGAIN)


def _time_left(
    subject: Subject, wish: Wish, now: datetime, instead: tuple[str, ...]
) -> Refused | None:
    end = wish.send_before or subject.send_before
    if end is None or end > max(now, subject.send_after):
        return None
    return Refused(Why.TIME_OVER, instead)


def replay_offered(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    del wish, now
    return None if subject.replay.offered else Refused(Why.NO_REPLAY, _SETTLE_OR_AGAIN)


def same_identity(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """Behind another identity the same key is a new one."""
    del wish, now
    return None if subject.replay.same_identity else Refused(Why.ACCOUNT_CHANGED, _SETTLE_OR_AGAIN)


def request_kept(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    del wish, now
    return None if subject.replay.kept else Refused(Why.REQUEST_GONE, _SETTLE_OR_AGAIN)


def window_open(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """Once the provider has forgotten the key, the same request is a second message."""
    del wish, now
    return None if subject.replay.window_open else Refused(Why.WINDOW_CLOSED, _SETTLE_OR_AGAIN)


def all_over(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """Everything that could still transmit has ended, bytes on their way included."""
    del wish
    ends = [attempt.over_at + DRAIN_MARGIN for attempt in subject.doubted]
    if not ends or now >= max(ends):
        return None
    return Refused(Why.STILL_LEAVING, (Act.SETTLE_ACCEPTED, Act.SETTLE_UNKNOWN), max(ends))


def held_by_a_person(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """What the rules have held is not let go by undoing what nobody did."""
    del wish, now
    if subject.reason == HeldReason.OPERATOR:
        return None
    doubt = subject.situation is Situation.HELD_IN_DOUBT
    return Refused(Why.HELD_BY_THE_RULES, _SETTLE_OR_AGAIN if doubt else (Act.RETRY,))


def not_asked_yet(subject: Subject, wish: Wish, now: datetime) -> Left | None:
    """Cancel wins over hold."""
    del now
    asked = subject.stop_requested
    if asked is StopRequest.CANCEL or (asked is StopRequest.HOLD and wish.act is Act.HOLD):
        return Left(Why.ALREADY_ASKED)
    return None


def another_account(subject: Subject, wish: Wish, now: datetime) -> Left | None:
    del now
    return Left(Why.ALREADY) if subject.account == wish.account else None


def never_left(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    """Who was proved not taken by one account's word is not handed to another by itself."""
    del now
    still_open = subject.having(*_OPEN)
    if not still_open & subject.transmitted:
        return None
    return Refused(Why.HAS_LEFT, (Act.CANCEL, f"{Act.SEND_AGAIN} --by {wish.account}"))


def key_has_room(subject: Subject, wish: Wish, now: datetime) -> Refused | None:
    del wish, now
    return None if successor_key(subject.key) else Refused(Why.KEY_TOO_LONG)


# --------------------------------------------------------------------------- #
# The table
# --------------------------------------------------------------------------- #

_GOES_OUT = (not_sent_again, message_there, time_left)
_REPLAY = Do(
    Effect.REPLAYED,
    (
        not_sent_again,
        replay_offered,
        same_identity,
        request_kept,
        replay_time_left,
        window_open,
    ),
)
_AGAIN = (not_sent_again, message_there, key_has_room, time_left)
_ONCE_MORE = Do(Effect.SENT_AGAIN, _AGAIN)
_CLOSE_AND_ONCE_MORE = Do(Effect.CLOSED_AND_SENT_AGAIN, (*_AGAIN, all_over))

_IN_FLIGHT = Refused(Why.IN_FLIGHT, (Act.HOLD,))
_TAKEN = Refused(Why.TAKEN, (Act.SEND_AGAIN,))
_TOO_LATE = Refused(Why.TAKEN)
_CLOSED = Refused(Why.CLOSED, (Act.SEND_AGAIN,))
_CLOSED_UNTAKEN = Refused(Why.CLOSED, (Act.RETRY,))
_DOUBT = Refused(Why.MAY_HAVE_BEEN_TAKEN, _SETTLE_OR_AGAIN)
_ALREADY = Left(Why.ALREADY)

_S = Situation


def _settling(which: Effect, *needs: Need, accepted: Cell, unresolved: Cell) -> dict[_S, Cell]:
    """The three ways to settle differ in what they write, and in what is settled so already."""
    return {
        _S.PENDING: Refused(Why.NO_DOUBT, (Act.CANCEL,)),
        _S.SENDING: _IN_FLIGHT,
        _S.IN_DOUBT: Do(which, (not_sent_again, *needs)),
        _S.HELD: Refused(Why.NO_DOUBT, (Act.RETRY, Act.CANCEL)),
        _S.HELD_IN_DOUBT: Do(which, (not_sent_again, *needs)),
        _S.ACCEPTED: accepted,
        _S.FAILED: Refused(Why.NO_DOUBT, (Act.RETRY,)),
        _S.EXPIRED: Refused(Why.NO_DOUBT, (Act.RETRY,)),
        _S.CANCELLED: Refused(Why.NO_DOUBT, (Act.SEND_AGAIN,)),
        _S.UNRESOLVED: unresolved,
    }


TABLE: Mapping[Act, Mapping[Situation, Cell]] = {
    Act.RETRY: {
        _S.PENDING: Left(Why.ON_ITS_WAY),
        _S.SENDING: Left(Why.IN_FLIGHT),
        _S.IN_DOUBT: _REPLAY,
        _S.HELD: Do(Effect.RETRIED, _GOES_OUT),
        _S.HELD_IN_DOUBT: _REPLAY,
        _S.ACCEPTED: _TAKEN,
        _S.FAILED: Do(Effect.RETRIED, (not_rejected, *_GOES_OUT)),
        _S.EXPIRED: Do(Effect.RETRIED, _GOES_OUT),
        _S.CANCELLED: _CLOSED,
        _S.UNRESOLVED: Refused(Why.MAY_HAVE_BEEN_TAKEN, (Act.SEND_AGAIN,)),
    },
    Act.SETTLE_ACCEPTED: _settling(Effect.SETTLED_ACCEPTED, accepted=_ALREADY, unresolved=_CLOSED),
    Act.SETTLE_NOT_ACCEPTED: _settling(
        Effect.SETTLED_NOT_ACCEPTED, all_over, accepted=_TAKEN, unresolved=_CLOSED
    ),
    Act.SETTLE_UNKNOWN: _settling(Effect.SETTLED_UNKNOWN, accepted=_TAKEN, unresolved=_ALREADY),
    Act.SEND_AGAIN: {
        _S.PENDING: Refused(Why.ON_ITS_WAY, (Act.CANCEL,)),
        _S.SENDING: _IN_FLIGHT,
        _S.IN_DOUBT: Refused(Why.EVIDENCE_MAY_COME, (Act.HOLD, "settle")),
        _S.HELD: _CLOSE_AND_ONCE_MORE,
        _S.HELD_IN_DOUBT: _CLOSE_AND_ONCE_MORE,
        _S.ACCEPTED: _ONCE_MORE,
        _S.FAILED: _ONCE_MORE,
        _S.EXPIRED: _ONCE_MORE,
        _S.CANCELLED: _ONCE_MORE,
        _S.UNRESOLVED: Do(Effect.SENT_AGAIN, (*_AGAIN, all_over)),
    },
    Act.CANCEL: {
        _S.PENDING: Do(Effect.CANCELLED),
        _S.SENDING: Do(Effect.CANCEL_ASKED, (not_asked_yet,)),
        _S.IN_DOUBT: Do(Effect.STOPPED_IN_DOUBT),
        _S.HELD: Do(Effect.CANCELLED),
        _S.HELD_IN_DOUBT: Refused(Why.MAY_HAVE_BEEN_TAKEN, ("settle",)),
        _S.ACCEPTED: _TOO_LATE,
        _S.FAILED: _ALREADY,
        _S.EXPIRED: _ALREADY,
        _S.CANCELLED: _ALREADY,
        _S.UNRESOLVED: _ALREADY,
    },
    Act.HOLD: {
        _S.PENDING: Do(Effect.HELD),
        _S.SENDING: Do(Effect.HOLD_ASKED, (not_asked_yet,)),
        _S.IN_DOUBT: Do(Effect.HELD),
        _S.HELD: _ALREADY,
        _S.HELD_IN_DOUBT: _ALREADY,
        _S.ACCEPTED: _TOO_LATE,
        **dict.fromkeys((_S.FAILED, _S.EXPIRED, _S.CANCELLED, _S.UNRESOLVED), _ALREADY),
    },
    Act.RELEASE: {
        **dict.fromkeys((_S.PENDING, _S.SENDING, _S.IN_DOUBT), Left(Why.NOT_HELD)),
        _S.HELD: Do(Effect.RELEASED, (held_by_a_person, not_sent_again)),
        _S.HELD_IN_DOUBT: Do(Effect.RELEASED_IN_DOUBT, (held_by_a_person, not_sent_again)),
        _S.ACCEPTED: _TAKEN,
        _S.FAILED: _CLOSED_UNTAKEN,
        _S.EXPIRED: _CLOSED_UNTAKEN,
        _S.CANCELLED: _CLOSED,
        _S.UNRESOLVED: _CLOSED,
    },
    Act.MOVE: {
        _S.PENDING: Do(Effect.MOVED, (another_account, never_left)),
        _S.SENDING: _IN_FLIGHT,
        _S.IN_DOUBT: _DOUBT,
        _S.HELD: Do(Effect.MOVED, (another_account, never_left)),
        _S.HELD_IN_DOUBT: _DOUBT,
        _S.ACCEPTED: _TAKEN,
        **dict.fromkeys((_S.FAILED, _S.EXPIRED, _S.CANCELLED, _S.UNRESOLVED), _CLOSED),
    },
}
"""Which verb does what to a row in which situation; total."""

SCOPE: Mapping[Act, tuple[State, ...]] = {
    Act.RETRY: (
        State.PENDING, State.SENDING, State.IN_DOUBT, State.HELD, State.FAILED, State.EXPIRED,
    ),
    Act.SETTLE_ACCEPTED: (State.IN_DOUBT, State.HELD),
    Act.SETTLE_NOT_ACCEPTED: (State.IN_DOUBT, State.HELD),
    Act.SETTLE_UNKNOWN: (State.IN_DOUBT, State.HELD),
    Act.SEND_AGAIN: (),
    Act.CANCEL: (State.PENDING, State.SENDING, State.IN_DOUBT, State.HELD),
    Act.HOLD: (State.PENDING, State.SENDING, State.IN_DOUBT),
    Act.RELEASE: (State.HELD,),
    Act.MOVE: (State.PENDING, State.SENDING, State.IN_DOUBT, State.HELD),
}  # fmt: skip
"""The states that a filter means when it names none. ``send-again`` has none: whoever wants
second copies of a whole group says of which."""
