"""The one home of states and closed lists.

Everything that names a state, a reason, a phase or an outcome takes the word
from here: CHECK constraints, filters, metric labels, log keys, command line
and docs. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class State(StrEnum):
    """Where a delivery is. Final states have no automatic transition but one:
    late proof of acceptance turns any of them into ``accepted``."""

    PENDING = "pending"
    """For the recipients still open, every attempt that transmitted is proved
    not taken (or there was none); due at ``due_at``. A claim moves it on.
    A crash here leaves it as it is."""

    SENDING = "sending"
    """Claimed under a lease, with an open attempt. The owner's settle moves it
    on, or the sweep once the lease has lapsed. A crash here is read by the
    attempt's phase: ``claimed`` goes back, ``transmitting`` becomes doubt."""

    IN_DOUBT = "in_doubt"
    """Bytes may have left and no proof came back. Reconcile moves it on, by
    evidence. A crash here leaves it as it is."""

    HELD = "held"
    """Evidence cannot decide, or policy forbids going on. An operator moves it
    on; ``held_from`` says where it was."""

    ACCEPTED = "accepted"
    """Proof that the provider took it, for at least one recipient. Never left."""

    FAILED = "failed"
    """Proof that it was not taken, and it will not be tried again by itself."""

    EXPIRED = "expired"
    """``send_before`` passed with proof that nothing was taken."""

    CANCELLED = "cancelled"
    """Stopped with proof that nothing was taken."""

    UNRESOLVED = "unresolved"
    """A person closed a doubt that nothing will ever prove; never sent again."""


FINAL: frozenset[State] = frozenset(
    {State.ACCEPTED, State.FAILED, State.EXPIRED, State.CANCELLED, State.UNRESOLVED}
)

TRANSITIONS: dict[State, frozenset[State]] = {
    State.PENDING: frozenset(
        {
            State.SENDING,
            State.HELD,
            State.ACCEPTED,
            State.EXPIRED,
            State.CANCELLED,
            State.FAILED,
            State.UNRESOLVED,
        }
    ),
    State.SENDING: frozenset(set(State) - {State.SENDING, State.UNRESOLVED}),
    State.IN_DOUBT: frozenset(set(State) - {State.IN_DOUBT, State.CANCELLED}),
    State.HELD: frozenset(set(State) - {State.HELD, State.SENDING}),
    State.ACCEPTED: frozenset(),
    State.FAILED: frozenset({State.PENDING, State.ACCEPTED}),
    State.EXPIRED: frozenset({State.PENDING, State.ACCEPTED}),
    State.CANCELLED: frozenset({State.ACCEPTED}),
    State.UNRESOLVED: frozenset({State.ACCEPTED}),
}
"""From each state, the states a single write may lead to. ``pending`` becomes ``accepted``
when its last open recipient is cancelled or expires and another was taken, ``unresolved``
when another was settled as unknown. ``failed`` and
``expired`` go back to ``pending`` only by an operator's ``retry``."""


class RecipientResult(StrEnum):
    """What is known for one address: the states of a delivery, less ``sending``
    (that is a property of the attempt, not of the address)."""

    PENDING = "pending"
    IN_DOUBT = "in_doubt"
    HELD = "held"
    ACCEPTED = "accepted"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNRESOLVED = "unresolved"


FOLD_ORDER: tuple[RecipientResult, ...] = (
    RecipientResult.IN_DOUBT,
    RecipientResult.HELD,
    RecipientResult.PENDING,
    RecipientResult.ACCEPTED,
    RecipientResult.UNRESOLVED,
    RecipientResult.EXPIRED,
    RecipientResult.FAILED,
    RecipientResult.CANCELLED,
)


def fold(results: Iterable[RecipientResult]) -> State:
    """The delivery's state from its recipients' results: the first of
    :data:`FOLD_ORDER` that any of them has. Raises ValueError without any."""
    present = set(results)
    for result in FOLD_ORDER:
        if result in present:
            return State(result.value)
    raise ValueError("a delivery has at least one recipient")


class RecipientKind(StrEnum):
    TO = "to"
    CC = "cc"
    BCC = "bcc"


class DeliveryStatus(StrEnum):
    """What the provider said later about one recipient; never moves the state back."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    SUPPRESSED_BY_PROVIDER = "suppressed_by_provider"
    DROPPED = "dropped"


class HeldReason(StrEnum):
    NO_EVIDENCE = "no_evidence"
    KEY_MISMATCH = "key_mismatch"
    EXHAUSTED_IN_DOUBT = "exhausted_in_doubt"
    ACCOUNT_CHANGED = "account_changed"
    BLOCKED_TOO_LONG = "blocked_too_long"
    UNKNOWN_ACCOUNT = "unknown_account"
    CRASHED_ALONE = "crashed_alone"
    OPERATOR = "operator"


class FailedReason(StrEnum):
    REJECTED = "rejected"
    EXHAUSTED = "exhausted"
    THROTTLED = "throttled"
    SENDER_NOT_ALLOWED = "sender_not_allowed"
    SUPPRESSED = "suppressed"
    INVALID_MESSAGE = "invalid_message"


class CancelledReason(StrEnum):
    PRODUCER = "producer"
    OPERATOR = "operator"
    ALREADY_SETTLED = "already_settled"


REASONS: dict[State, tuple[str, ...]] = {
    State.HELD: tuple(HeldReason),
    State.FAILED: tuple(FailedReason),
    State.CANCELLED: tuple(CancelledReason),
}


class AttemptKind(StrEnum):
    SEND = "send"
    REPLAY = "replay"
    LOOK_UP = "look_up"


class Phase(StrEnum):
    """How far an attempt got. Lapsed in ``claimed``: nothing left. Lapsed in
    ``transmitting``: in doubt."""

    CLAIMED = "claimed"
    TRANSMITTING = "transmitting"
    SETTLED = "settled"


class AttemptOutcome(StrEnum):
    """How an attempt ended: the nine outcomes of a provider, then the three
    endings that no provider gave."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    ACCOUNT_BLOCKED = "account_blocked"
    IN_DOUBT = "in_doubt"
    IN_FLIGHT = "in_flight"
    KEY_MISMATCH = "key_mismatch"
    NOT_STARTED = "not_started"
    TOO_LATE = "too_late"
    LOST = "lost"


class EvidenceKind(StrEnum):
    ANSWER = "answer"
    REPLAY = "replay"
    LOOK_UP = "look_up"
    EVENT = "event"
    OPERATOR = "operator"
    ADOPTION = "adoption"


class Verdict(StrEnum):
    TAKEN = "taken"
    NOT_TAKEN = "not_taken"
    UNKNOWN = "unknown"


class PauseReason(StrEnum):
    CREDENTIALS = "credentials"
    PERMISSION = "permission"
    SUSPENDED = "suspended"
    QUOTA = "quota"
    SENDER_DOMAIN = "sender_domain"
    THROTTLED = "throttled"
    BREAKER = "breaker"
    OPERATOR = "operator"


class StopRequest(StrEnum):
    """What was asked of a row while it was ``sending``; cancel wins over hold."""

    CANCEL = "cancel"
    HOLD = "hold"


class WhenUnsure(StrEnum):
    HOLD = "hold"
    SEND_AGAIN = "send_again"


class WaitingFor(StrEnum):
    """Why a ``pending`` row is not being sent this instant."""

    SLOT = "slot"
    SCHEDULE = "schedule"
    RETRY = "retry"
    ACCOUNT = "account"
    RATE = "rate"
