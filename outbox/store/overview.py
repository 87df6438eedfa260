"""Reading for people: how the whole outbox is doing at one instant. Nothing is written.

Counting looks at rows that are not final, and at the last hour's final ones
through their index; it stays cheap beside millions of finished deliveries.
"""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

from sqlalchemy import Connection, case, func, select

from outbox import schema
from outbox.migrations import revision
from outbox.reports import AccountState, DispatcherState, Group, Overview, PendingGroup
from outbox.states import PauseReason, State
from outbox.store.reads import database_now

_D, _X, _P = schema.deliveries, schema.accounts, schema.dispatchers

LATENCIES = 5000
"""How many of the last hour's acceptances are looked at for their latency."""


def overview(connection: Connection) -> Overview:
    """How the outbox is doing now, by the database's clock."""
    at = database_now(connection)
    since = at - timedelta(hours=1)
    return Overview(
        at=at,
        server=_server(connection),
        revision=revision(connection),
        pending=tuple(_pending(connection, at)),
        open=tuple(_open(connection)),
        accounts=tuple(accounts(connection)),
        dispatchers=tuple(_dispatchers(connection)),
        finished=_finished(connection, since),
        latencies=_latencies(connection, since),
    )


def accounts(connection: Connection) -> list[AccountState]:
    """All accounts that ever were configured or paused, with their scopes."""
    rows = connection.execute(select(_X).order_by(_X.c.account, _X.c.scope))
    return [
        AccountState(
            row.account,
            row.scope,
            row.provider,
            row.paused_since,
            row.paused_until,
            None if row.pause_reason is None else PauseReason(row.pause_reason),
            row.pause_detail,
        )
        for row in rows
    ]


def _server(connection: Connection) -> str:
    if connection.dialect.name == "sqlite":
        return f"sqlite {sqlite3.sqlite_version}"
    version = getattr(connection.dialect, "server_version_info", None) or ()
    return f"postgresql {'.'.join(str(part) for part in version)}"


def _pending(connection: Connection, at: datetime) -> list[PendingGroup]:
    rows = (
        select(
            _D.c.account,
            case((_D.c.due_at <= at, 1), else_=0).label("due"),
            case((_D.c.last_attempt > 0, 1), else_=0).label("attempted"),
            _D.c.due_at,
        )
        .where(_D.c.state == "pending")
        .subquery("p")
    )
    kinds = (rows.c.account, rows.c.due, rows.c.attempted)
    found = connection.execute(
        select(*kinds, func.count(), func.min(rows.c.due_at)).group_by(*kinds).order_by(*kinds)
    )
    return [
        PendingGroup(account, bool(due), bool(attempted), count, oldest)
        for account, due, attempted, count, oldest in found
    ]


def _open(connection: Connection) -> list[Group]:
    found = connection.execute(
        select(_D.c.account, _D.c.state, _D.c.reason, func.count(), func.min(_D.c.updated_at))
        .where(_D.c.state.in_(["sending", "in_doubt", "held"]))
        .group_by(_D.c.account, _D.c.state, _D.c.reason)
        .order_by(_D.c.account, _D.c.state, _D.c.reason)
    )
    return [
        Group(account, State(state), reason, count, oldest)
        for account, state, reason, count, oldest in found
    ]


def _dispatchers(connection: Connection) -> list[DispatcherState]:
    rows = connection.execute(select(_P).order_by(_P.c.host, _P.c.pid))
    return [
        DispatcherState(
            row.host,
            row.pid,
            row.version,
            row.slots,
            row.slots_used,
            row.started_at,
            row.seen_at,
        )
        for row in rows
    ]


def _finished(connection: Connection, since: datetime) -> dict[State, int]:
    rows = connection.execute(
        select(_D.c.state, func.count()).where(_D.c.finished_at >= since).group_by(_D.c.state)
    )
    return {State(state): count for state, count in rows}


def _latencies(connection: Connection, since: datetime) -> tuple[float, ...]:
    """From the instant a delivery was first due: retries are part of the wait."""
    rows = connection.execute(
        select(_D.c.send_after, _D.c.created_at, _D.c.finished_at)
        .where(_D.c.finished_at >= since, _D.c.state == "accepted")
        .order_by(_D.c.finished_at.desc())
        .limit(LATENCIES)
    )
    return tuple(
        max(0.0, (finished - max(after, created)).total_seconds())
        for after, created, finished in rows
    )
