"""Accounts as an operator stops and starts them.

A person's pause is kept like any other, in the row that every dispatcher reads before it
claims; its reason is ``operator``. Nothing but its end or a ``resume`` ends it: an answer
that shows that the account works only clears what the account's own answers have caused.
``resume`` ends any pause, those of single sender domains included, and forgets the failures
that made pauses grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select

from outbox import schema
from outbox.records_verbs import AccountRow
from outbox.states import PauseReason
from outbox.store import audit
from outbox.store.accounts import ensured, paused_seconds
from outbox.texts import cleaned

_X = schema.accounts

UNTIL_RESUMED = datetime(9999, 1, 1, tzinfo=UTC)
"""The end of a pause that was given none."""


def rows(connection: Connection) -> list[AccountRow]:
    """Every account that was ever published or paused, with its scopes."""
    found = connection.execute(select(_X).order_by(_X.c.account, _X.c.scope))
    return [
        AccountRow(
            account=row.account,
            scope=row.scope,
            provider=row.provider,
            identity=row.identity,
            limits=row.limits,
            paused_since=row.paused_since,
            paused_until=row.paused_until,
            pause_reason=None if row.pause_reason is None else PauseReason(row.pause_reason),
            pause_detail=row.pause_detail,
            paused_by=row.paused_by,
            failures=row.failures,
        )
        for row in found
    ]


def pause(
    connection: Connection,
    names: Iterable[str],
    *,
    until: datetime | None,
    actor: str,
    note: str,
    at: datetime,
) -> None:
    """Stop accounts for every dispatcher, until an instant or until they are resumed.

    A pause that a provider has asked for and that lasts longer keeps its end; one that a
    person has made before is replaced.
    """
    for name in sorted(names):
        connection.execute(ensured(connection.dialect.name), {"of_account": name, "of_scope": ""})
        [row] = _locked(connection, name, scope="")
        running = row.paused_until is not None and row.paused_until > at
        end = until or UNTIL_RESUMED
        if running and row.pause_reason != PauseReason.OPERATOR:
            end = max(end, row.paused_until)
        past = (
            row.paused_seconds
            if running
            else paused_seconds(row.paused_seconds, row.paused_since, row.paused_until, at)
        )
        _write(
            connection,
            row,
            at,
            paused_seconds=past,
            paused_since=row.paused_since if running else at,
            paused_until=end,
            pause_reason=PauseReason.OPERATOR.value,
            pause_detail=cleaned(note),
            paused_by=cleaned(actor, 64),
            probe_until=None,
        )
        after = {"paused_until": end.isoformat()}
        entry = audit.Entry("account pause", name, _standing(row, at), after)
        audit.write(connection, [entry], actor=actor, note=note, at=at)


def resume(
    connection: Connection, names: Iterable[str], *, actor: str, note: str, at: datetime
) -> set[str]:
    """End every pause of these accounts, and start their failures anew. Those that were
    really paused, or had failed; an account that nobody knows is none of them."""
    ended: set[str] = set()
    for name in sorted(names):
        for row in _locked(connection, name):
            if not (row.paused_until or row.failures or row.consecutive):
                continue
            _write(
                connection,
                row,
                at,
                paused_seconds=paused_seconds(
                    row.paused_seconds, row.paused_since, row.paused_until, at
                ),
                paused_since=None,
                paused_until=None,
                pause_reason=None,
                pause_detail=None,
                paused_by=None,
                probe_until=None,
                failures=0,
                consecutive=0,
            )
            subject = f"{name} {row.scope}" if row.scope else name
            entry = audit.Entry("account resume", subject, _standing(row, at))
            audit.write(connection, [entry], actor=actor, note=note, at=at)
            ended.add(name)
    return ended


def _locked(connection: Connection, name: str, scope: str | None = None) -> Sequence[Any]:
    query = select(_X).where(_X.c.account == name).order_by(_X.c.scope).with_for_update()
    if scope is not None:
        query = query.where(_X.c.scope == scope)
    return connection.execute(query).all()


def _write(connection: Connection, row: Any, at: datetime, **values: Any) -> None:
    where = (_X.c.account == row.account) & (_X.c.scope == row.scope)
    connection.execute(_X.update().where(where).values(**values, updated_at=at))


def _standing(row: Any, at: datetime) -> dict[str, str]:
    if row.paused_until is None or row.paused_until <= at:
        return {}
    return {"paused_until": row.paused_until.isoformat(), "reason": row.pause_reason}
