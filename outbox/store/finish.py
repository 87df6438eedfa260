"""Ending rows that have no open attempt, and the writes that every ending shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Text, bindparam, case, func

from outbox import schema
from outbox.records import Ending, RecipientUpdate
from outbox.schema import Instant
from outbox.states import FINAL, State
from outbox.store import tallies
from outbox.store.rows import packed, unpacked

_D, _R = schema.deliveries, schema.recipients


def finish(
    connection: Connection, endings: Sequence[Ending], *, at: datetime, shard: int = 0
) -> int:
    """End, hold or give back rows that are locked by this transaction and in the state
    ``before`` that each ending names.

    Returns how many rows really changed.
    """
    if not endings:
        return 0
    changed = connection.execute(
        _finish(connection.dialect.name),
        {
            "at": at,
            **packed(
                {
                    "id": each.id,
                    "account": each.account,
                    "state": each.state.value,
                    "reason": each.reason,
                    "held_from": each.held_from,
                    "last_error": each.last_error,
                    "before": each.before.value,
                    "finished_at": at if each.state in FINAL else None,
                }
                for each in sorted(endings, key=lambda ending: ending.id)
            ),
        },
    )
    ids = set(changed.scalars())
    ended = [each for each in endings if each.id in ids]
    update_recipients(connection, ((e.id, r) for e in ended for r in e.recipients), at=at)
    tally(connection, ((e.account, e.state) for e in ended), shard=shard)
    return len(ended)


def update_recipients(
    connection: Connection, updates: Iterable[tuple[int, RecipientUpdate]], *, at: datetime
) -> None:
    """Write what each address came to."""
    rows = [
        {
            "delivery_id": id_,
            "position": update.position,
            "result": update.result.value,
            "code": update.code,
            "reason": update.reason,
            "provider_message_id": update.provider_message_id,
        }
        for id_, update in updates
    ]
    if rows:
        connection.execute(_update_recipients(connection.dialect.name), {"at": at, **packed(rows)})


def tally(connection: Connection, ended: Iterable[tuple[str, State]], *, shard: int) -> None:
    """Count the rows that entered a final state."""
    counts = Counter(pair for pair in ended if pair[1] in FINAL)
    if counts:
        query = tallies.raised(connection.dialect.name, counts, shard=shard)
        connection.execute(query.statement, dict(query.parameters))  # type: ignore[call-overload]


@cache
def _finish(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "id": BigInteger,
            "account": Text,
            "state": Text,
            "reason": Text,
            "held_from": Text,
            "last_error": Text,
            "before": Text,
            "finished_at": Instant,
        },
    )
    return (
        _D.update()
        .where(_D.c.id == v.c.id, _D.c.state == v.c.before)
        .values(
            account=v.c.account,
            state=v.c.state,
            reason=v.c.reason,
            held_from=v.c.held_from,
            last_error=func.coalesce(v.c.last_error, _D.c.last_error),
            finished_at=v.c.finished_at,
            copies=_D.c.copies + case((v.c.state == State.ACCEPTED.value, 1), else_=0),
            updated_at=bindparam("at", type_=Instant()),
        )
        .returning(_D.c.id)
    )


@cache
def _update_recipients(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "delivery_id": BigInteger,
            "position": Integer,
            "result": Text,
            "code": Text,
            "reason": Text,
            "provider_message_id": Text,
        },
    )
    return (
        _R.update()
        .where(_R.c.delivery_id == v.c.delivery_id, _R.c.position == v.c.position)
        .values(
            result=v.c.result,
            code=v.c.code,
            reason=v.c.reason,
            provider_message_id=func.coalesce(v.c.provider_message_id, _R.c.provider_message_id),
            updated_at=bindparam("at", type_=Instant()),
        )
    )
