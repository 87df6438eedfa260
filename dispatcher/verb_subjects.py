"""What an operator's verb is about: the row, the facts around it, and what was asked. Pure.

Proof decides what a verb may do, and proof belongs to addresses, not to rows: of a delivery
that is held, one recipient may be in doubt and another never have been tried. So what a verb
sees is a row with its recipients *and* the attempts that nothing has settled; which of the
addresses are doubtful follows from both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outbox.records import DoubtedAttempt, RecipientRow
from outbox.states import FailedReason, RecipientResult, State, StopRequest


class Act(StrEnum):
    """What can be asked, as it is typed. ``settle`` is three verbs: each has rules of its own."""

    RETRY = "retry"
    SETTLE_ACCEPTED = "settle --as accepted"
    SETTLE_NOT_ACCEPTED = "settle --as not-accepted"
    SETTLE_UNKNOWN = "settle --as unknown"
    SEND_AGAIN = "send-again"
    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    MOVE = "move"


class Situation(StrEnum):
    """The states, with ``held`` told apart by whether anything of it may have been taken."""

    PENDING = "pending"
    SENDING = "sending"
    IN_DOUBT = "in_doubt"
    HELD = "held"
    HELD_IN_DOUBT = "held, in doubt"
    ACCEPTED = "accepted"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether asking the provider again under the same key would be safe now.

    ``offered``: the account's provider answers a repeated key; ``same_identity``: it is
    the account that every attempt in doubt went to; ``kept``: the request is there, byte for
    byte; ``window_open``: a replay that starts now ends while the key is still known.
    """

    offered: bool = False
    same_identity: bool = False
    kept: bool = False
    window_open: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """One delivery as a verb finds it. ``owner`` and ``token`` are those of its lease.

    ``doubted``: attempts that may have transmitted and have no verdict. ``transmitted``: the
    positions that any attempt may have carried out, whatever came of it. ``dropped``: those
    that the provider took and then never sent. ``superseded_by``: the key under which it was
    sent again.
    """

    id: int
    key: str
    account: str
    state: State
    held_from: State | None
    reason: str | None
    owner: str | None
    token: int
    stop_requested: StopRequest | None
    recipients: tuple[RecipientRow, ...]
    doubted: tuple[DoubtedAttempt, ...]
    transmitted: frozenset[int]
    dropped: frozenset[int]
    send_after: datetime
    send_before: datetime | None
    superseded_by: str | None
    has_message: bool
    replay: Replay = Replay()

    @property
    def doubtful(self) -> frozenset[int]:
        """The positions of the recipients that may have it, and of whom nothing is known.

        A held recipient is doubtful if an attempt in doubt carried it. Where the row says
        that it was held out of doubt and no such attempt is found, all held ones are.
        """
        held = self.having(RecipientResult.HELD)
        carried = {position for attempt in self.doubted for position in attempt.recipients}
        if self.state is State.HELD and self.held_from is not State.PENDING:
            held = (held & carried) or held
        else:
            held &= carried
        return self.having(RecipientResult.IN_DOUBT) | held

    @property
    def situation(self) -> Situation:
        """The state, and for a held row whether it is doubtful."""
        if self.state is not State.HELD:
            return Situation(self.state.value)
        doubt = self.held_from is not State.PENDING or bool(self.doubtful)
        return Situation.HELD_IN_DOUBT if doubt else Situation.HELD

    def having(self, *results: RecipientResult) -> frozenset[int]:
        """The positions of the recipients with one of these results."""
        return frozenset(r.position for r in self.recipients if r.result in results)


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked. ``include``: failures that ``retry`` takes only when they are named.
    ``account``: where ``move`` goes to, or what ``send-again`` sends by; None: as it is."""

    act: Act
    send_before: datetime | None = None
    include: frozenset[FailedReason] = frozenset()
    account: str | None = None


SETTLEMENTS: dict[str, Act] = {
    "accepted": Act.SETTLE_ACCEPTED,
    "not-accepted": Act.SETTLE_NOT_ACCEPTED,
    "unknown": Act.SETTLE_UNKNOWN,
}
"""What may follow ``settle --as``."""
