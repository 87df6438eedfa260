"""Claiming: who may work on a row, and for how long.

What can go wrong here, and why it does not:

*Two dispatchers take one row.* Candidates are read with ``FOR UPDATE SKIP
LOCKED`` on PostgreSQL; on SQLite the whole transaction is the only writer. The
row leaves ``pending`` in the same transaction.

*A row is taken over while its old owner is still at it.* Each claim raises
``lease_token``. Every later write names owner and token; the old owner's then
changes nothing.

*A key is sent again after its row was cleaned up.* A plain ``INSERT`` cannot
look into the tombstones in time, so the first claim of a row does, in the same
transaction that takes it.

*A row that cannot be read stops the others.* Rows that came by SQL are parsed
here for the first time; one that breaks the message's schema ends alone.

The number of statements depends on the number of accounts, never of rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Integer,
    Row,
    Text,
    UpdateBase,
    bindparam,
    func,
    insert,
    select,
)

from outbox import schema
from outbox.keys import public_id
from outbox.message import StoredMessage, fingerprint
from outbox.records import Claimed, Lane, RecipientRow, Retake
from outbox.schema import Instant
from outbox.states import Phase, RecipientResult, State
from outbox.store.finish import finish
from outbox.store.first_claims import complete
from outbox.store.queue import domain_of, due
from outbox.store.reads import database_now, recipients_of
from outbox.store.rows import packed, unpacked

_D, _A, _X = schema.deliveries, schema.attempts, schema.accounts


def claim(
    connection: Connection,
    lanes: Sequence[Lane],
    *,
    owner: str,
    lease: timedelta,
    default_from: str | None,
    namespace: UUID,
    alone: bool = False,
) -> list[Claimed]:
    """Take due rows of unpaused accounts under a lease; highest priority first.

    ``default_from`` is stored with rows whose message names no sender, so that
    their bytes stay the same after a change of configuration. ``alone`` takes
    rows in quarantine instead of all others.
    """
    domain = domain_of(default_from)
    taken = [
        (lane, row)
        for lane in lanes
        for row in due(connection, lane, default_domain=domain, alone=alone)
    ]
    if not taken:
        return []
    at = database_now(connection)
    endings, rest, parsed = complete(connection, taken)
    finish(connection, endings, at=at)
    if not rest:
        return []
    people = recipients_of(connection, (row.id for _, row in rest))
    leased = _take(
        connection,
        rest,
        owner=owner,
        expires=at + lease,
        default_from=default_from,
        namespace=namespace,
        parsed=parsed,
        at=at,
    )
    claimed = [
        _claimed(lane, row, leased[row.id], people[row.id])
        for lane, row in rest
        if row.id in leased
    ]
    identities = {lane.account: lane.identity for lane in lanes}
    _open_attempts(connection, claimed, identities, owner=owner, at=at, alone=alone)
    return claimed


def _sender_domain(
    row: Row[Any], parsed: Mapping[int, StoredMessage], default_from: str | None
) -> str | None:
    message = parsed.get(row.id)
    if message is not None and message.from_ is not None:
        return message.from_.domain.lower()
    return row.sender_domain or domain_of(row.default_from or default_from)


def retake(
    connection: Connection,
    rows: Sequence[Retake],
    *,
    owner: str,
    lease: timedelta,
    at: datetime,
    alone: bool = False,
) -> list[Claimed]:
    """Claim rows in doubt, read and locked by this transaction, for a replay, a look-up,
    or the one extra transmission that policy allows."""
    if not rows:
        return []
    batch = packed(
        {
            "id": each.row.id,
            "account": each.row.account,
            "public_id": each.row.public_id,
            "default_from": each.row.default_from,
            "sender_domain": None,
            "fingerprint": None,
            "before": State.IN_DOUBT.value,
        }
        for each in sorted(rows, key=lambda each: each.row.id)
    )
    parameters = {"owner": owner, "expires": at + lease, "at": at, **batch}
    leased = {
        row.id: row for row in connection.execute(_lease(connection.dialect.name), parameters).all()
    }
    claimed = [_retaken(each, leased[each.row.id]) for each in rows if each.row.id in leased]
    identities = {each.row.account: each.identity for each in rows}
    _open_attempts(connection, claimed, identities, owner=owner, at=at, alone=alone)
    return claimed


def _retaken(each: Retake, leased: Row[Any]) -> Claimed:
    row = each.row
    return Claimed(
        id=row.id,
        key=row.key,
        public_id=row.public_id,
        message=row.message,
        default_from=row.default_from,
        account=row.account,
        token=leased.lease_token,
        attempt=leased.last_attempt,
        recipients=row.recipients,
        send_after=row.send_after,
        due_at=row.due_at,
        send_before=row.send_before,
        carried=each.recipients,
        kind=each.kind,
        idempotency_key=each.idempotency_key,
        request_digest=each.request_digest,
        first_transmitted_at=row.first_transmitted_at,
        extra=each.extra,
        absence_counts=each.absence_counts,
    )


def _take(
    connection: Connection,
    rows: Sequence[tuple[Lane, Row[Any]]],
    *,
    owner: str,
    expires: datetime,
    default_from: str | None,
    namespace: UUID,
    parsed: Mapping[int, StoredMessage],
    at: datetime,
) -> dict[int, Row[Any]]:
    batch = packed(
        {
            "id": row.id,
            "account": lane.account,
            "public_id": row.public_id or public_id(namespace, row.delivery_key),
            "default_from": row.default_from or default_from,
            "sender_domain": _sender_domain(row, parsed, default_from),
            "fingerprint": row.fingerprint or fingerprint(row.message),
            "before": State.PENDING.value,
        }
        for lane, row in sorted(rows, key=lambda pair: pair[1].id)
    )
    parameters = {"owner": owner, "expires": expires, "at": at, **batch}
    leased = connection.execute(_lease(connection.dialect.name), parameters).all()
    return {row.id: row for row in leased}


def _open_attempts(
    connection: Connection,
    claimed: Sequence[Claimed],
    identities: Mapping[str, str],
    *,
    owner: str,
    at: datetime,
    alone: bool,
) -> None:
    connection.execute(
        _insert_attempts(connection.dialect.name),
        packed(
            {
                "delivery_id": each.id,
                "number": each.attempt,
                "kind": each.kind.value,
                "account": each.account,
                "account_identity": identities[each.account],
                "phase": Phase.CLAIMED.value,
                "owner": owner,
                "token": each.token,
                "recipients": json.dumps(each.carried),
                "started_at": at,
                "alone": alone,
            }
            for each in claimed
        ),
    )


def _claimed(
    lane: Lane, row: Row[Any], leased: Row[Any], people: tuple[RecipientRow, ...]
) -> Claimed:
    return Claimed(
        id=row.id,
        key=row.delivery_key,
        public_id=leased.public_id,
        message=row.message,
        default_from=leased.default_from,
        account=lane.account,
        token=leased.lease_token,
        attempt=leased.last_attempt,
        recipients=people,
        send_after=row.send_after,
        due_at=row.due_at,
        send_before=row.send_before,
        carried=tuple(r.position for r in people if r.result is RecipientResult.PENDING),
    )


@cache
def _lease(dialect: str) -> UpdateBase:
    v = unpacked(
        dialect,
        {
            "id": BigInteger,
            "account": Text,
            "public_id": Text,
            "default_from": Text,
            "sender_domain": Text,
            "fingerprint": Text,
            "before": Text,
        },
    )
    return (
        _D.update()
        .where(_D.c.id == v.c.id, _D.c.state == v.c.before)
        .values(
            state="sending",
            claimed_from=v.c.before,
            account=v.c.account,
            public_id=v.c.public_id,
            default_from=v.c.default_from,
            sender_domain=func.coalesce(_D.c.sender_domain, v.c.sender_domain),
            fingerprint=func.coalesce(_D.c.fingerprint, v.c.fingerprint),
            lease_owner=bindparam("owner", type_=Text()),
            lease_token=_D.c.lease_token + 1,
            lease_expires_at=bindparam("expires", type_=Instant()),
            last_attempt=_D.c.last_attempt + 1,
            updated_at=bindparam("at", type_=Instant()),
        )
        .returning(_D.c.id, _D.c.lease_token, _D.c.last_attempt, _D.c.public_id, _D.c.default_from)
    )


@cache
def _insert_attempts(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "delivery_id": BigInteger,
            "number": Integer,
            "kind": Text,
            "account": Text,
            "account_identity": Text,
            "phase": Text,
            "owner": Text,
            "token": BigInteger,
            "recipients": Text,
            "started_at": Instant,
            "alone": Boolean,
        },
    )
    return insert(_A).from_select(list(v.c.keys()), select(*v.c), include_defaults=False)
