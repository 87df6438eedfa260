"""Accounts at run time: what they are, whether they are paused, and since when.

``paused_seconds`` adds up every pause an account ever had. A row's retry window
stands still while its account is paused; the row remembers the sum at the
window's start and subtracts what was added since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Text, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema
from outbox.records import Pause
from outbox.store.rows import packed, unpacked
from outbox.texts import cleaned

_X = schema.accounts


def paused_seconds(
    past: float, since: datetime | None, until: datetime | None, at: datetime
) -> float:
    """Seconds of pause up to ``at``: those of ended pauses, and of the present or last one."""
    if since is None or until is None:
        return past
    return past + max(0.0, (min(at, until) - since).total_seconds())


def publish(
    connection: Connection, accounts: Iterable[tuple[str, str, str, Mapping[str, Any]]]
) -> None:
    """Make configured accounts known: (name, provider, identity, limits as data)."""
    rows = [
        {
            "account": account,
            "provider": provider,
            "identity": identity,
            "limits": json.dumps(limits, sort_keys=True),
        }
        # In one order, as every other write of several accounts: nobody deadlocks.
        for account, provider, identity, limits in sorted(accounts, key=lambda each: each[0])
    ]
    connection.execute(_publish(connection.dialect.name), packed(rows))


def pause(connection: Connection, pauses: Iterable[Pause], *, at: datetime, by: str) -> None:
    """Pause accounts for every dispatcher. A longer pause that is already there stays."""
    longest: dict[tuple[str, str], Pause] = {}
    for each in pauses:
        known = longest.get((each.account, each.scope))
        if known is None or each.until > known.until:
            longest[each.account, each.scope] = each
    for _, each in sorted(longest.items(), key=lambda item: item[0]):
        _pause(connection, each, at=at, by=by)


def _pause(connection: Connection, pause: Pause, *, at: datetime, by: str) -> None:
    account, scope = pause.account, pause.scope
    dialect = connection.dialect.name
    connection.execute(ensured(dialect), {"of_account": account, "of_scope": scope})
    where = (_X.c.account == account) & (_X.c.scope == scope)
    row = connection.execute(select(_X).where(where).with_for_update()).one()
    running = row.paused_until is not None and row.paused_until > at
    if running and row.paused_until >= pause.until:
        return
    # Nothing has worked since a block or a breaker: the new pause continues the old one.
    goes_on = running or row.pause_reason not in {None, "throttled", "operator"}
    past = (
        row.paused_seconds
        if goes_on
        else paused_seconds(row.paused_seconds, row.paused_since, row.paused_until, at)
    )
    connection.execute(
        _X.update()
        .where(where)
        .values(
            paused_seconds=past,
            paused_since=row.paused_since if goes_on else at,
            paused_until=pause.until,
            pause_reason=pause.reason.value,
            pause_detail=cleaned(pause.detail),
            paused_by=by,
            failures=row.failures if running else row.failures + 1,
            probe_until=None,
            updated_at=at,
        )
    )


@cache
def ensured(dialect: str) -> Any:
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return (
        insert(_X)
        .values(
            account=bindparam("of_account", type_=Text()), scope=bindparam("of_scope", type_=Text())
        )
        .on_conflict_do_nothing()
    )


@cache
def _publish(dialect: str) -> Any:
    v = unpacked(dialect, {"account": Text, "provider": Text, "identity": Text, "limits": Text})
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert(_X).from_select(
        list(v.c.keys()), select(*v.c).where(v.c.account != ""), include_defaults=False
    )
    return statement.on_conflict_do_update(
        index_elements=["account", "scope"],
        set_={
            "provider": statement.excluded.provider,
            "identity": statement.excluded.identity,
            "limits": statement.excluded.limits,
        },
    )
