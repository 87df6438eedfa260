"""What reading the outbox gives to people: frozen rows for lists, stories and status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from outbox.records import RecipientRow
from outbox.states import (
    AttemptKind,
    AttemptOutcome,
    DeliveryStatus,
    EvidenceKind,
    PauseReason,
    Phase,
    RecipientKind,
    RecipientResult,
    State,
    StopRequest,
    Verdict,
    WhenUnsure,
)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which deliveries; what is left out does not count.

    ``accounts`` may hold "", for rows that name none. ``changed_since`` is about
    the last change of state. ``to`` is one address, of any kind of recipient.
    """

    states: tuple[State, ...] = ()
    accounts: tuple[str, ...] = ()
    key_prefix: str | None = None
    to: str | None = None
    reason: str | None = None
    tag: str | None = None
    tenant: str | None = None
    run_key: str | None = None
    changed_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """One delivery in a list. ``claims`` counts attempts of any end, ``counted_attempts``
    those that used the retry budget."""

    id: int
    key: str
    state: State
    reason: str | None
    account: str
    tenant: str | None
    run_key: str | None
    priority: int
    counted_attempts: int
    claims: int
    copies: int
    send_after: datetime
    due_at: datetime
    send_before: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    last_error: str | None
    recipients: tuple[RecipientRow, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Deliveries that share account, state and reason. ``oldest`` is when the first of
    them came there."""

    account: str
    state: State
    reason: str | None
    rows: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class RecipientDetail:
    """One address of a delivery, with everything that is known about it."""

    position: int
    kind: RecipientKind
    address: str
    result: RecipientResult
    code: str | None
    reason: str | None
    delivery_status: DeliveryStatus | None
    provider_message_id: str | None


@dataclass(frozen=True, slots=True)
class AttemptDetail:
    """One attempt."""

    number: int
    kind: AttemptKind
    account: str
    account_identity: str | None
    phase: Phase
    owner: str
    token: int
    recipients: tuple[int, ...]
    idempotency_key: str | None
    started_at: datetime
    transmitting_at: datetime | None
    finished_at: datetime | None
    outcome: AttemptOutcome | None
    status_code: int | None
    reason: str | None
    detail: str | None
    provider_message_id: str | None
    retry_at: datetime | None

    @property
    def by(self) -> str:
        """Host and process of its dispatcher: the owner without what makes it unique."""
        return self.owner.rpartition(":")[0] or self.owner


@dataclass(frozen=True, slots=True)
class EvidenceDetail:
    """One fact about what the provider did."""

    attempt: int | None
    recipient: int | None
    kind: EvidenceKind
    verdict: Verdict
    provider_message_id: str | None
    seen_at: datetime
    detail: str | None


@dataclass(frozen=True, slots=True)
class Story:
    """Everything about one delivery. ``message`` is its text as stored, None once purged."""

    summary: Summary
    public_id: str | None
    message: str | None
    default_from: str | None
    tags: str
    when_unsure: WhenUnsure | None
    held_from: State | None
    stop_requested: StopRequest | None
    lease_expires_at: datetime | None
    first_transmitted_at: datetime | None
    recipients: tuple[RecipientDetail, ...]
    attempts: tuple[AttemptDetail, ...]
    evidence: tuple[EvidenceDetail, ...]


@dataclass(frozen=True, slots=True)
class Buried:
    """What is left of a delivery that was cleaned up."""

    id: int
    state: State
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """Pending rows of one account that wait in the same way. ``attempted``: claimed
    before; ``due``: their time has come; ``oldest`` is the earliest ``due_at``."""

    account: str
    due: bool
    attempted: bool
    rows: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class AccountState:
    """One account, or one scope of it, at run time. Not paused: ``paused_until`` is None
    or has passed."""

    account: str
    scope: str
    provider: str
    paused_since: datetime | None
    paused_until: datetime | None
    pause_reason: PauseReason | None
    pause_detail: str | None


@dataclass(frozen=True, slots=True)
class DispatcherState:
    """One dispatcher process, as it last said."""

    host: str
    pid: int
    version: str
    slots: int
    slots_used: int
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything ``status`` is made of. ``finished`` and ``latencies`` (seconds from due
    to accepted, the latest of them) are about the last hour."""

    at: datetime
    server: str
    revision: str
    pending: tuple[PendingGroup, ...]
    open: tuple[Group, ...]
    accounts: tuple[AccountState, ...]
    dispatchers: tuple[DispatcherState, ...]
    finished: Mapping[State, int]
    latencies: tuple[float, ...]
