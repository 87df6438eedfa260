"""Frozen rows and decisions that cross between the store and whoever decides. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from outbox.states import (
    AttemptKind,
    AttemptOutcome,
    EvidenceKind,
    PauseReason,
    Phase,
    RecipientKind,
    RecipientResult,
    State,
    StopRequest,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class RecipientRow:
    """One address of a delivery. ``position`` is its place among the recipients."""

    position: int
    kind: RecipientKind
    address: str
    result: RecipientResult


@dataclass(frozen=True, slots=True)
class Lane:
    """One account as the claim sees it: rows that name it, and, for the default
    account, rows that name none. ``limit`` rows at most are taken."""

    account: str
    identity: str
    limit: int
    takes_unnamed: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery under our lease, with everything that its attempt needs.

    ``carried`` are the positions of the recipients the attempt is for.
    ``idempotency_key`` and ``request_digest`` are those of the attempt that a
    replay repeats. ``extra``: policy takes the risk of a second copy with it.
    ``absence_counts``: a look-up that begins now proves something by "not found".
    """

    id: int
    key: str
    public_id: str
    message: str
    default_from: str | None
    account: str
    token: int
    attempt: int
    recipients: tuple[RecipientRow, ...]
    send_after: datetime
    due_at: datetime
    send_before: datetime | None
    carried: tuple[int, ...]
    kind: AttemptKind = AttemptKind.SEND
    idempotency_key: str | None = None
    request_digest: str | None = None
    first_transmitted_at: datetime | None = None
    extra: bool = False
    absence_counts: bool = False

    @property
    def for_recipients(self) -> tuple[RecipientRow, ...]:
        """The recipients that this attempt is for."""
        return tuple(r for r in self.recipients if r.position in self.carried)


@dataclass(frozen=True, slots=True)
class DoubtedAttempt:
    """An attempt that may have transmitted and has no verdict. After ``over_at`` nothing
    of it can still leave. ``request_kept``: its bytes are there to be replayed;
    ``key_taken``: it was answered that its key was taken before."""

    number: int
    identity: str
    recipients: tuple[int, ...]
    idempotency_key: str | None
    request_digest: str | None
    request_kept: bool
    over_at: datetime
    key_taken: bool = False


@dataclass(frozen=True, slots=True)
class DoubtRow:
    """A delivery in doubt, read under lock, with its whole history of doubt."""

    id: int
    key: str
    public_id: str
    message: str
    default_from: str | None
    account: str
    recipients: tuple[RecipientRow, ...]
    doubted: tuple[DoubtedAttempt, ...]
    look_ups: int
    looked_up_at: datetime | None
    attempts: int
    crashes: int
    window_started_at: datetime | None
    window_paused: float
    account_paused: float
    when_unsure: str | None
    extra_transmission: str | None
    first_transmitted_at: datetime
    send_after: datetime
    send_before: datetime | None
    due_at: datetime

    @property
    def in_doubt(self) -> tuple[int, ...]:
        """The positions of the recipients nothing is known of."""
        return tuple(r.position for r in self.recipients if r.result is RecipientResult.IN_DOUBT)


@dataclass(frozen=True, slots=True)
class Retake:
    """A row in doubt that is to be claimed for an attempt of some kind."""

    row: DoubtRow
    kind: AttemptKind
    recipients: tuple[int, ...]
    identity: str
    idempotency_key: str | None = None
    request_digest: str | None = None
    extra: bool = False
    absence_counts: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """The wish to let bytes leave for some recipients (by position) of a claimed row.

    ``deadline``: how long after the mark the last byte may still leave. ``kept``: the
    request, where it may have to be replayed.
    """

    id: int
    attempt: int
    token: int
    recipients: tuple[int, ...]
    idempotency_key: str
    request_digest: str
    deadline: timedelta = timedelta()
    kept: bytes | None = None
    extra: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """The mark is committed. ``at`` is the database's instant of it."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Refused:
    """The mark was not made. ``reason``: ``stopped``, ``too_late`` or ``lease``."""

    reason: str


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt that is to be settled, with the delivery around it, as read under lock.

    ``account_paused`` is the number of seconds for which the account has ever
    been paused, up to now; what it grew by since ``window_paused`` was stored
    does not count against the retry window. ``blocks`` attempts were answered
    "this sender may not"; ``throttled_since`` is when it was first told to come back later.
    """

    id: int
    key: str
    state: State
    claimed_from: State
    stop_requested: StopRequest | None
    account: str
    owner: str | None
    token: int
    number: int
    kind: AttemptKind
    phase: Phase
    attempt_owner: str
    attempt_token: int
    attempt_recipients: tuple[int, ...]
    attempt_outcome: AttemptOutcome | None
    recipients: tuple[RecipientRow, ...]
    attempts: int
    crashes: int
    window_started_at: datetime | None
    window_paused: float
    account_paused: float
    account_failures: int
    due_at: datetime
    send_before: datetime | None
    alone: bool = False
    crashes_alone: int = 0
    blocks: int = 0
    throttled_since: datetime | None = None

    @property
    def transmitted(self) -> bool:
        """Whether bytes may have left in this attempt or in one before it."""
        return self.phase is Phase.TRANSMITTING or self.claimed_from is State.IN_DOUBT

    @property
    def ours(self) -> bool:
        """Whether this attempt still holds the lease: owner *and* token are the row's."""
        return (
            self.state is State.SENDING
            and self.owner == self.attempt_owner
            and self.token == self.attempt_token
        )


@dataclass(frozen=True, slots=True)
class RecipientUpdate:
    """What one address came to in one attempt."""

    position: int
    result: RecipientResult
    code: str | None = None
    reason: str | None = None
    provider_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, for the journal."""

    outcome: AttemptOutcome
    status_code: int | None = None
    reason: str | None = None
    detail: str | None = None
    provider_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """An account (or one sender domain of it) stops until an instant."""

    account: str
    scope: str
    reason: PauseReason
    until: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class Gate:
    """How much of an account's work may be claimed: ``most`` deliveries (None: no limit,
    0: paused, 1: a probe). ``unclean``: there is something that an answer would clear.
    ``until``: when a pause ends."""

    account: str
    most: int | None
    unclean: bool
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AccountReport:
    """What one round's answers say of an account: how many show that it works, how many
    that it cannot be told or reached."""

    account: str
    worked: int
    troubled: int
    words: str = ""


class Standing(Enum):
    """What an answer says of the account it came from."""

    WORKS = "works"
    TROUBLED = "troubled"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Fact:
    """Evidence that an attempt's end is for something else than itself."""

    kind: EvidenceKind
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Settlement:
    """The decision about one open attempt: what its row, recipients and account become.

    ``reason`` comes from the closed lists; ``held_from`` is set exactly when
    ``state`` is held. Build it with the functions of ``dispatcher.decide``.
    """

    attempt: OpenAttempt
    end: AttemptEnd
    state: State
    recipients: tuple[RecipientUpdate, ...]
    due_at: datetime
    attempts: int
    crashes: int
    window_started_at: datetime | None
    window_paused: float
    crashes_alone: int = 0
    reason: str | None = None
    held_from: State | None = None
    last_error: str | None = None
    pause: Pause | None = None
    fact: Fact | None = None
    standing: Standing = Standing.SILENT


@dataclass(frozen=True, slots=True)
class Idle:
    """A pending or held row outside any attempt, read under lock (sweep, verbs)."""

    id: int
    state: State
    account: str
    recipients: tuple[RecipientRow, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """A row that ends, or is held, without an attempt."""

    id: int
    account: str
    state: State
    reason: str | None
    recipients: tuple[RecipientUpdate, ...] = ()
    held_from: State | None = None
    last_error: str | None = None
    before: State = State.PENDING


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """One dispatcher process; ``owner`` is random at every start."""

    owner: str
    host: str
    machine_boot: str | None
    pid: int
    process_start: str | None
    version: str
    slots: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What keeps ``--drain`` going, and what it reports when it ends."""

    due: int
    sending: int
    waiting: int
    in_doubt: int
    held: int
