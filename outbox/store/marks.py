"""The mark and the renewal: the two writes between a claim and its settling.

The mark is the last commit before bytes may leave. One statement checks all
that must hold (state, owner, token, a lease that has not lapsed, no request to
stop, ``send_before``) and extends the lease: a lease that lapsed a moment ago
has the same token still, so the token alone would not do.

After a lost connection nobody knows whether a mark was committed. So a mark
that changes nothing is read back: if the attempt is ``transmitting`` under our
owner and token and the lease still runs, it was ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    LargeBinary,
    Text,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema
from outbox.records import Granted, Mark, Refused
from outbox.schema import Instant, now
from outbox.states import Phase
from outbox.store.rows import packed, unpacked

_D, _A, _Q = schema.deliveries, schema.attempts, schema.requests

RENDERER = 1
"""The version of the renderers, stored with a kept request."""


def mark(
    connection: Connection,
    marks: Sequence[Mark],
    *,
    owner: str,
    at: datetime,
    lease: timedelta,
) -> dict[int, Granted | Refused]:
    """Let bytes leave for these claimed rows, where that is still allowed.

    ``at`` is the database's instant of this transaction.
    """
    if not marks:
        return {}
    dialect = connection.dialect.name
    ordered = sorted(marks, key=lambda each: each.id)
    rows = packed(
        {"id": each.id, "token": each.token, "extra": "send_again" if each.extra else None}
        for each in ordered
    )
    marked = set(
        connection.execute(
            _mark(dialect), {"me": owner, "at": at, "expires": at + lease, **rows}
        ).scalars()
    )
    granted = [each for each in ordered if each.id in marked]
    if granted:
        connection.execute(
            _transmitting(dialect),
            {
                "me": owner,
                "at": at,
                **packed(
                    {
                        "delivery_id": each.id,
                        "number": each.attempt,
                        "token": each.token,
                        "recipients": json.dumps(each.recipients),
                        "idempotency_key": each.idempotency_key,
                        "request_digest": each.request_digest,
                        "deadline_at": at + each.deadline,
                    }
                    for each in granted
                ),
            },
        )
        _keep_requests(connection, granted)
    answers: dict[int, Granted | Refused] = {each.id: Granted(at) for each in granted}
    refused = [each for each in ordered if each.id not in marked]
    if refused:
        answers |= _read_back(connection, refused, owner, at)
    return answers


def renew(
    connection: Connection,
    leases: Iterable[tuple[int, int]],
    *,
    owner: str,
    expires: datetime,
) -> set[int]:
    """Extend leases given as (delivery id, token); the ids that are still ours."""
    rows = packed({"id": id_, "token": token} for id_, token in sorted(leases))
    changed = connection.execute(
        _renew(connection.dialect.name), {"me": owner, "expires": expires, **rows}
    )
    return set(changed.scalars())


def _keep_requests(connection: Connection, marks: Sequence[Mark]) -> None:
    """The bytes that a replay would have to send, from the first mark on."""
    rows = [
        {
            "of_delivery": each.id,
            "of_digest": each.request_digest,
            "of_content": each.kept,
            "of_version": RENDERER,
        }
        for each in marks
        if each.kept is not None
    ]
    if rows:
        connection.execute(_keep(connection.dialect.name), rows)


def _read_back(
    connection: Connection, marks: Sequence[Mark], owner: str, at: datetime
) -> dict[int, Granted | Refused]:
    rows = connection.execute(
        _state(connection.dialect.name),
        packed({"id": each.id, "number": each.attempt} for each in marks),
    ).all()
    found = {row.id: row for row in rows}
    answers: dict[int, Granted | Refused] = {}
    for each in marks:
        row = found.get(each.id)
        ours = row is not None and (row.lease_owner, row.lease_token) == (owner, each.token)
        if row is None or not ours or row.lease_expires_at <= at:
            answers[each.id] = Refused("lease")
        elif row.phase == Phase.TRANSMITTING and row.transmitting_at is not None:
            answers[each.id] = Granted(row.transmitting_at)
        elif row.stop_requested is not None:
            answers[each.id] = Refused("stopped")
        else:
            answers[each.id] = Refused("too_late")
    return answers


@cache
def _keep(dialect: str) -> Any:
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return (
        insert(_Q)
        .values(
            delivery_id=bindparam("of_delivery", type_=BigInteger()),
            digest=bindparam("of_digest", type_=Text()),
            content=bindparam("of_content", type_=LargeBinary()),
            renderer_version=bindparam("of_version", type_=Integer()),
        )
        .on_conflict_do_nothing()
    )


@cache
def _mark(dialect: str) -> Any:
    v = unpacked(dialect, {"id": BigInteger, "token": BigInteger, "extra": Text})
    at = bindparam("at", type_=Instant())
    return (
        _D.update()
        .where(
            _D.c.id == v.c.id,
            _D.c.state == "sending",
            _D.c.lease_owner == bindparam("me", type_=Text()),
            _D.c.lease_token == v.c.token,
            _D.c.lease_expires_at > now(),
            _D.c.stop_requested.is_(None),
            _D.c.send_before.is_(None) | (_D.c.send_before > now()),
            select(_A.c.phase)
            .where(_A.c.delivery_id == _D.c.id, _A.c.number == _D.c.last_attempt)
            .scalar_subquery()
            == "claimed",
        )
        .values(
            first_transmitted_at=func.coalesce(_D.c.first_transmitted_at, at),
            extra_transmission=func.coalesce(_D.c.extra_transmission, v.c.extra),
            lease_expires_at=bindparam("expires", type_=Instant()),
            updated_at=at,
        )
        .returning(_D.c.id)
    )


@cache
def _transmitting(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "delivery_id": BigInteger,
            "number": Integer,
            "token": BigInteger,
            "recipients": Text,
            "idempotency_key": Text,
            "request_digest": Text,
            "deadline_at": Instant,
        },
    )
    return (
        _A.update()
        .where(
            _A.c.delivery_id == v.c.delivery_id,
            _A.c.number == v.c.number,
            _A.c.owner == bindparam("me", type_=Text()),
            _A.c.token == v.c.token,
        )
        .values(
            phase="transmitting",
            transmitting_at=bindparam("at", type_=Instant()),
            recipients=v.c.recipients,
            idempotency_key=v.c.idempotency_key,
            request_digest=v.c.request_digest,
            deadline_at=v.c.deadline_at,
        )
    )


@cache
def _renew(dialect: str) -> Any:
    v = unpacked(dialect, {"id": BigInteger, "token": BigInteger})
    return (
        _D.update()
        .where(
            _D.c.id == v.c.id,
            _D.c.state == "sending",
            _D.c.lease_owner == bindparam("me", type_=Text()),
            _D.c.lease_token == v.c.token,
            _D.c.lease_expires_at > now(),
        )
        .values(lease_expires_at=bindparam("expires", type_=Instant()))
        .returning(_D.c.id)
    )


@cache
def _state(dialect: str) -> Any:
    v = unpacked(dialect, {"id": BigInteger, "number": Integer})
    return select(
        _D.c.id,
        _D.c.lease_owner,
        _D.c.lease_token,
        _D.c.lease_expires_at,
        _D.c.stop_requested,
        _A.c.phase,
        _A.c.transmitting_at,
    ).where(_D.c.id == v.c.id, _A.c.delivery_id == v.c.id, _A.c.number == v.c.number)
