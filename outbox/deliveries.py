"""What a producer is told about its deliveries: plain, frozen values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox.errors import InvalidMessage
from outbox.instants import parse_instant
from outbox.message import StoredMessage
from outbox.states import (
    DeliveryStatus,
    RecipientKind,
    RecipientResult,
    State,
    StopRequest,
)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of one enqueue. ``created`` is False when the key was known;
    then ``id`` and ``state`` are the first row's."""

    id: int
    key: str
    created: bool
    state: State


@dataclass(frozen=True, slots=True)
class Recipient:
    """One address of a delivery and what is known about it."""

    kind: RecipientKind
    address: str
    result: RecipientResult
    code: str | None
    reason: str | None
    delivery_status: DeliveryStatus | None
    provider_message_id: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery as its producer may see it. ``message`` is None once purged."""

    id: int
    key: str
    state: State
    reason: str | None
    account: str
    tenant: str | None
    run_key: str | None
    priority: int
    attempts: int
    copies: int
    message: StoredMessage | None
    send_after: datetime
    due_at: datetime
    send_before: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It is stopped for certain: nothing was sent, nothing will be."""

    key: str


@dataclass(frozen=True, slots=True)
class Requested:
    """It is in flight; it will be stopped if the provider has not taken it."""

    key: str


@dataclass(frozen=True, slots=True)
class TooLate:
    """It cannot be stopped any more; ``state`` says what it is. None: the key is not known."""

    key: str
    state: State | None


def cancellation(
    key: str, state: State | None, asked: StopRequest | None
) -> Cancelled | Requested | TooLate:
    """What became of a cancel: the state it left, and what was asked of a sender in flight."""
    if asked is not None:
        return Requested(key)
    return Cancelled(key) if state is State.CANCELLED else TooLate(key, state)


def delivery(row: Sequence[Any], people: Sequence[Sequence[Any]]) -> Delivery:
    """The delivery of a row as ``store.enqueue.find`` reads it, with its recipients' rows."""
    id_, key, state, reason, account, tenant, run_key, priority, attempts, copies, text = row[:11]
    after, due, before, created, updated, finished = (
        None if value is None else parse_instant(value) for value in row[11:]
    )
    if after is None or due is None or created is None or updated is None:
        raise TypeError("a column that is NOT NULL came back empty")
    try:
        message = None if text is None else StoredMessage.parse(text)
    except InvalidMessage:
        message = None
    return Delivery(
        id_, key, State(state), reason, account, tenant, run_key, priority, attempts, copies,
        message, after, due, before, created, updated, finished,
        tuple(
            Recipient(
                RecipientKind(kind), address, RecipientResult(result), code, why,
                None if status is None else DeliveryStatus(status), provider_id,
            )
            for kind, address, result, code, why, status, provider_id in people
        ),
    )  # fmt: skip
