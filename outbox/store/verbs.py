"""What an operator's verb needs to know of a row, read under the lock that its write needs.

A preview reads the same without the lock. Between the preview and the deed a row may have
become anything; so the deed reads it again, decides again, and writes under a guard that
names state, owner and token (:mod:`outbox.store.verb_writes`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Text, null, select, text

from outbox import schema
from outbox.records_verbs import SubjectRow
from outbox.states import DeliveryStatus, State, StopRequest
from outbox.store.doubts import histories
from outbox.store.rows import packed_ids, these_ids

_D, _A, _R, _X = schema.deliveries, schema.attempts, schema.recipients, schema.accounts
_S = schema.deliveries.alias("s")

BATCH = 500
"""Rows to a transaction."""

LOCK_WAIT = "500ms"
"""How long to wait for a row: shorter than PostgreSQL's ``deadlock_timeout`` (1 s), so that
where a dispatcher's round and an operator wait for each other, it is the operator who yields."""


def patient(connection: Connection) -> None:
    """Give up soon when a row is locked; the caller tries again."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'"))


def subjects(
    connection: Connection, ids: Iterable[int], *, at: datetime, locked: bool
) -> list[SubjectRow]:
    """The deliveries with these ids, in their order; those that are gone are left out."""
    wanted = packed_ids(sorted(ids))
    dialect = connection.dialect.name
    rows: Sequence[Row[Any]] = connection.execute(_subjects(dialect, locked), wanted).all()
    if not rows:
        return []
    found = {each.id: each for each in histories(connection, rows, at)}
    transmitted: dict[int, set[int]] = {row.id: set() for row in rows}
    for id_, positions in connection.execute(_transmitted(dialect), wanted):
        transmitted.setdefault(id_, set()).update(json.loads(positions))
    dropped: dict[int, set[int]] = {row.id: set() for row in rows}
    for id_, position in connection.execute(_dropped(dialect), wanted):
        dropped.setdefault(id_, set()).add(position)
    return [
        SubjectRow(
            history=found[row.id],
            state=State(row.state),
            held_from=None if row.held_from is None else State(row.held_from),
            reason=row.reason,
            owner=row.lease_owner,
            token=row.lease_token,
            stop_requested=None if row.stop_requested is None else StopRequest(row.stop_requested),
            transmitted=frozenset(transmitted[row.id]),
            dropped=frozenset(dropped[row.id]),
            superseded_by=_successor(row),
            has_message=bool(row.has_message),
            identity=row.identity,
        )
        for row in rows
    ]


def _successor(row: Row[Any]) -> str | None:
    """Its key; its id where this statement's snapshot is older than the lock it waited for."""
    if row.superseded_by is None:
        return None
    return row.successor or str(row.superseded_by)


@cache
def _subjects(dialect: str, locked: bool) -> Any:  # noqa: FBT001  (a key of the cache)
    v = these_ids(dialect)
    columns = [column for column in _D.c if column.name != "message"]
    joined = _D.outerjoin(_X, (_X.c.account == _D.c.account) & (_X.c.scope == "")).outerjoin(
        _S, _S.c.id == _D.c.superseded_by
    )
    query = (
        select(
            *columns,
            null().cast(Text).label("message"),
            _D.c.message.is_not(None).label("has_message"),
            _S.c.delivery_key.label("successor"),
            _X.c.identity,
            _X.c.paused_seconds,
            _X.c.paused_since,
            _X.c.paused_until,
        )
        .select_from(joined)
        .where(_D.c.id.in_(select(v.c.id)))
        .order_by(_D.c.id)
    )
    return query.with_for_update(of=_D) if locked else query


@cache
def _transmitted(dialect: str) -> Any:
    v = these_ids(dialect)
    return select(_A.c.delivery_id, _A.c.recipients).where(
        _A.c.delivery_id == v.c.id, _A.c.transmitting_at.is_not(None)
    )


@cache
def _dropped(dialect: str) -> Any:
    v = these_ids(dialect)
    return select(_R.c.delivery_id, _R.c.position).where(
        _R.c.delivery_id == v.c.id, _R.c.delivery_status == DeliveryStatus.DROPPED.value
    )
