"""The verbs' table in plain words: one sentence part for each effect and each refusal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dispatcher.verb_effects import Effect
from dispatcher.verb_subjects import Act, Situation
from dispatcher.verbs import Why

KNOWN: Mapping[Situation, str] = {
    Situation.PENDING: "nothing was taken; it is on its way",
    Situation.SENDING: "a dispatcher is at work on it",
    Situation.IN_DOUBT: "may have been taken; evidence may still come",
    Situation.HELD: "nothing was taken",
    Situation.HELD_IN_DOUBT: "may have been taken",
    Situation.ACCEPTED: "the provider has it",
    Situation.FAILED: "nothing was taken",
    Situation.EXPIRED: "nothing was taken in time",
    Situation.CANCELLED: "nothing was taken; it was stopped",
    Situation.UNRESOLVED: "may have been taken; nobody will ever know",
}

WILL: Mapping[Effect, str] = {
    Effect.RETRIED: "pending again, same key",
    Effect.REPLAYED: "asked again now, same key and same bytes: no second copy",
    Effect.SETTLED_ACCEPTED: "accepted, on your word",
    Effect.SETTLED_NOT_ACCEPTED: "pending again, same key (expired, where its time is over)",
    Effect.SETTLED_UNKNOWN: "unresolved: closed, never sent again by itself",
    Effect.SENT_AGAIN: "a new delivery, linked to this one",
    Effect.CLOSED_AND_SENT_AGAIN: "closed as unresolved, and a new delivery, linked to it",
    Effect.CANCELLED: "cancelled: nothing of it leaves any more",
    Effect.CANCEL_ASKED: "in flight: cancelled if it is not taken",
    Effect.STOPPED_IN_DOUBT: "held: no more transmissions",
    Effect.HELD: "held until you release it",
    Effect.HOLD_ASKED: "in flight: held if it is not taken",
    Effect.RELEASED: "pending again",
    Effect.RELEASED_IN_DOUBT: "in doubt again: evidence is looked for",
    Effect.MOVED: "sent by the other account",
}

WHY: Mapping[Why, str] = {
    Why.ON_ITS_WAY: "it is on its way already",
    Why.IN_FLIGHT: "a dispatcher is at work on it",
    Why.ALREADY: "it is so already",
    Why.ALREADY_ASKED: "that was asked of its dispatcher already",
    Why.CHANGED: "it has changed just now",
    Why.TAKEN: "the provider has it",
    Why.CLOSED: "it is closed",
    Why.NO_DOUBT: "nothing of it is in doubt",
    Why.NOT_HELD: "it is not held",
    Why.MAY_HAVE_BEEN_TAKEN: "it may have been taken",
    Why.EVIDENCE_MAY_COME: "it is in doubt, and evidence may still come",
    Why.HELD_BY_THE_RULES: "no person held it",
    Why.SENT_AGAIN: "it was sent again under another key",
    Why.MESSAGE_GONE: "its message was cleaned up; enqueue it anew",
    Why.REJECTED: "the provider refused it for good",
    Why.TIME_OVER: "its send_before has passed",
    Why.NO_REPLAY: "may have been taken, and its provider knows no key to ask again with",
    Why.ACCOUNT_CHANGED: "may have been taken, by an account that was changed since",
    Why.REQUEST_GONE: "may have been taken, and what was sent is not kept",
    Why.WINDOW_CLOSED: "may have been taken, and the provider may have forgotten its key",
    Why.STILL_LEAVING: "something of it may still be on its way out",
    Why.HAS_LEFT: "it has left once, by its present account",
    Why.KEY_TOO_LONG: "its key has no room for a number; enqueue it under another one",
}

PURPOSE: Mapping[Act, str] = {
    Act.RETRY: "try it again, same key",
    Act.SETTLE_ACCEPTED: "the provider has it",
    Act.SETTLE_NOT_ACCEPTED: "the provider never took it: pending, same Message-ID",
    Act.SETTLE_UNKNOWN: "nobody will ever know: unresolved (closed)",
    Act.SEND_AGAIN: "a new delivery, linked to this one, with another Message-ID",
    Act.CANCEL: "never send it",
    Act.HOLD: "do not send it for now",
    Act.RELEASE: "let it go on",
    Act.MOVE: "send it by another account",
}

SUGGESTED: Mapping[Situation, Sequence[Act]] = {
    Situation.PENDING: (Act.HOLD, Act.CANCEL),
    Situation.SENDING: (Act.HOLD, Act.CANCEL),
    Situation.IN_DOUBT: (
        Act.RETRY, Act.SETTLE_ACCEPTED, Act.SETTLE_NOT_ACCEPTED, Act.SETTLE_UNKNOWN, Act.HOLD,
    ),
    Situation.HELD: (Act.RETRY, Act.RELEASE, Act.CANCEL),
    Situation.HELD_IN_DOUBT: (
        Act.RETRY, Act.RELEASE, Act.SETTLE_ACCEPTED, Act.SETTLE_NOT_ACCEPTED,
        Act.SETTLE_UNKNOWN, Act.SEND_AGAIN,
    ),
    Situation.ACCEPTED: (),
    Situation.FAILED: (Act.RETRY, Act.SEND_AGAIN),
    Situation.EXPIRED: (Act.RETRY, Act.SEND_AGAIN),
    Situation.CANCELLED: (Act.SEND_AGAIN,),
    Situation.UNRESOLVED: (Act.SEND_AGAIN,),
}  # fmt: skip
"""What is worth typing next, in the order in which a person should think of it. A delivery
that was accepted needs nothing."""
