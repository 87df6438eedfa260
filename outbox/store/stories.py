"""Reading for people: the whole story of one delivery. Nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from outbox import schema
from outbox.keys import key_hash
from outbox.reports import AttemptDetail, Buried, EvidenceDetail, RecipientDetail, Story
from outbox.states import (
    AttemptKind,
    AttemptOutcome,
    DeliveryStatus,
    EvidenceKind,
    Phase,
    RecipientKind,
    RecipientResult,
    State,
    StopRequest,
    Verdict,
    WhenUnsure,
)
from outbox.store.queries import SUMMARY, summary
from outbox.store.reads import recipients_of

_D, _R, _A, _E, _P, _T = (
    schema.deliveries,
    schema.recipients,
    schema.attempts,
    schema.evidence,
    schema.dispatchers,
    schema.tombstones,
)

_STORY: tuple[ColumnElement[Any], ...] = (
    _D.c.public_id,
    _D.c.message,
    _D.c.default_from,
    _D.c.tags,
    _D.c.when_unsure,
    _D.c.held_from,
    _D.c.stop_requested,
    _D.c.lease_expires_at,
    _D.c.first_transmitted_at,
)


def buried(connection: Connection, key: str) -> Buried | None:
    """What is left of the delivery with this key, if it was cleaned up."""
    row = connection.execute(
        select(_T.c.delivery_id, _T.c.state, _T.c.finished_at).where(_T.c.key_hash == key_hash(key))
    ).one_or_none()
    return None if row is None else Buried(row.delivery_id, State(row.state), row.finished_at)


def story(connection: Connection, id_: int) -> Story | None:
    """Everything about one delivery; None when there is none with this id."""
    row = connection.execute(select(*SUMMARY, *_STORY).where(_D.c.id == id_)).one_or_none()
    if row is None:
        return None
    people = recipients_of(connection, [id_])[id_]
    return Story(
        summary=summary(row, people),
        public_id=row.public_id,
        message=row.message,
        default_from=row.default_from,
        tags=row.tags,
        when_unsure=_maybe(WhenUnsure, row.when_unsure),
        held_from=_maybe(State, row.held_from),
        stop_requested=_maybe(StopRequest, row.stop_requested),
        lease_expires_at=row.lease_expires_at,
        first_transmitted_at=row.first_transmitted_at,
        recipients=tuple(_recipients(connection, id_)),
        attempts=tuple(_attempts(connection, id_)),
        evidence=tuple(_evidence(connection, id_)),
    )


def _recipients(connection: Connection, id_: int) -> Iterable[RecipientDetail]:
    rows = connection.execute(select(_R).where(_R.c.delivery_id == id_).order_by(_R.c.position))
    for row in rows:
        yield RecipientDetail(
            row.position,
            RecipientKind(row.kind),
            row.address,
            RecipientResult(row.result),
            row.code,
            row.reason,
            _maybe(DeliveryStatus, row.delivery_status),
            row.provider_message_id,
        )


def _attempts(connection: Connection, id_: int) -> Iterable[AttemptDetail]:
    rows = connection.execute(select(_A).where(_A.c.delivery_id == id_).order_by(_A.c.number))
    for row in rows:
        yield AttemptDetail(
            number=row.number,
            kind=AttemptKind(row.kind),
            account=row.account,
            account_identity=row.account_identity,
            phase=Phase(row.phase),
            owner=row.owner,
            token=row.token,
            recipients=tuple(json.loads(row.recipients)),
            idempotency_key=row.idempotency_key,
            started_at=row.started_at,
            transmitting_at=row.transmitting_at,
            finished_at=row.finished_at,
            outcome=_maybe(AttemptOutcome, row.outcome),
            status_code=row.status_code,
            reason=row.outcome_reason,
            detail=row.detail,
            provider_message_id=row.provider_message_id,
            retry_at=row.retry_at,
        )


def _evidence(connection: Connection, id_: int) -> Iterable[EvidenceDetail]:
    rows = connection.execute(select(_E).where(_E.c.delivery_id == id_).order_by(_E.c.id))
    for row in rows:
        yield EvidenceDetail(
            row.attempt,
            row.recipient,
            EvidenceKind(row.kind),
            Verdict(row.verdict),
            row.provider_message_id,
            row.seen_at,
            row.detail,
        )


def _maybe(kind: Any, value: str | None) -> Any:
    return None if value is None else kind(value)
