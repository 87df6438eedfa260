"""What nobody's settle will move on: lapsed leases, passed ``send_before``, unknown accounts.

Any dispatcher may sweep at any time: rows are locked with ``SKIP LOCKED``, and
each write names the state (and, for leases, the owner and token) it was read
with. The phase of the last attempt says what a lapsed lease means: ``claimed``,
nothing left; ``transmitting``, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Text, and_, bindparam, exists, or_, select

from outbox import schema
from outbox.columns import Instant, now
from outbox.records import Idle, OpenAttempt
from outbox.states import State
from outbox.store.reads import database_now, recipients_of
from outbox.store.rows import packed, unpacked
from outbox.store.settle import open_attempts, opened

_D, _A, _X = schema.deliveries, schema.attempts, schema.accounts

BLOCK_LIMIT = timedelta(days=3)
"""How long an account may be blocked before its due rows are held for a person."""
BATCH = 500
"""Rows to a sweeping transaction."""


def lapsed(connection: Connection, *, at: datetime) -> list[OpenAttempt]:
    """Deliveries whose lease has lapsed, with their open attempt, locked."""
    rows = connection.execute(_LAPSED).all()
    people = recipients_of(connection, (row.id for row in rows)) if rows else {}
    return [opened(row, people[row.id], at) for row in rows]


def anything(connection: Connection, known: Iterable[str]) -> bool:
    """Whether there is anything to sweep, without locking it."""
    parameters = {
        "blocked_before": database_now(connection) - BLOCK_LIMIT,
        **packed({"account": account} for account in known),
    }
    return bool(connection.execute(_anything(connection.dialect.name), parameters).scalar())


def left_behind(
    connection: Connection, *, owner: str, known: Iterable[int], at: datetime
) -> list[OpenAttempt]:
    """Deliveries under ``owner``'s lease that this process does not know of, locked:
    claims whose commit was answered by a lost connection."""
    rows = connection.execute(_OWNED, {"owner": owner}).all()
    mine = set(known)
    strange = [row for row in rows if row.id not in mine]
    people = recipients_of(connection, (row.id for row in strange)) if strange else {}
    return [opened(row, people[row.id], at) for row in strange]


def overdue(connection: Connection) -> list[Idle]:
    """Pending rows past their ``send_before``, locked."""
    return _idle(connection, _OVERDUE, {})


def unclaimable(connection: Connection, known: Iterable[str]) -> list[Idle]:
    """Due rows that name an account neither ``known`` here nor published by anybody, locked."""
    parameters = packed({"account": account} for account in known)
    return _idle(connection, _unclaimable(connection.dialect.name), parameters)


def blocked(connection: Connection, *, at: datetime) -> list[Idle]:
    """Due rows of accounts that nothing has worked at for :data:`BLOCK_LIMIT`, locked."""
    return _idle(connection, _BLOCKED, {"blocked_before": at - BLOCK_LIMIT})


def _idle(connection: Connection, statement: Any, parameters: dict[str, Any]) -> list[Idle]:
    rows = connection.execute(statement, parameters).all()
    if not rows:
        return []
    people = recipients_of(connection, (row.id for row in rows))
    return [Idle(row.id, State(row.state), row.account, people[row.id]) for row in rows]


_LAST = _A.c.number == _D.c.last_attempt
_LAPSED = (
    open_attempts()
    .where(_D.c.state == "sending", _D.c.lease_expires_at <= now(), _LAST)
    .order_by(_D.c.id)
    .limit(BATCH)
    .with_for_update(of=_D, skip_locked=True)
)
_OWNED = (
    open_attempts()
    .where(_D.c.state == "sending", _D.c.lease_owner == bindparam("owner", type_=Text()), _LAST)
    .order_by(_D.c.id)
    .with_for_update(of=_D, skip_locked=True)
)
_OVERDUE = (
    select(_D.c.id, _D.c.state, _D.c.account)
    .where(_D.c.state == "pending", _D.c.send_before <= now())
    .order_by(_D.c.send_before)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)


_blocked_accounts = select(_X.c.account).where(
    _X.c.scope == "",
    _X.c.pause_reason.in_(["credentials", "permission", "suspended", "quota"]),
    _X.c.paused_since <= bindparam("blocked_before", type_=Instant()),
)
_is_blocked = and_(
    _D.c.state == "pending", _D.c.due_at <= now(), _D.c.account.in_(_blocked_accounts)
)
_BLOCKED = (
    select(_D.c.id, _D.c.state, _D.c.account)
    .where(_is_blocked)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)


@cache
def _anything(dialect: str) -> Any:
    has_lapsed = (_D.c.state == "sending") & (_D.c.lease_expires_at <= now())
    is_overdue = (_D.c.state == "pending") & (_D.c.send_before <= now())
    return select(
        or_(
            exists().where(has_lapsed),
            exists().where(is_overdue),
            exists().where(_has_no_account(dialect)),
            exists().where(_is_blocked),
        )
    )


def _has_no_account(dialect: str) -> Any:
    v = unpacked(dialect, {"account": Text})
    return and_(
        _D.c.state == "pending",
        _D.c.due_at <= now(),
        _D.c.account != "",
        _D.c.account.not_in(select(v.c.account)),
        _D.c.account.not_in(select(_X.c.account)),
    )


@cache
def _unclaimable(dialect: str) -> Any:
    return (
        select(_D.c.id, _D.c.state, _D.c.account)
        .where(_has_no_account(dialect))
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
