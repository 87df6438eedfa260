"""What more than one topic reads: the time, the installation, the recipients."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from outbox import schema
from outbox.columns import now
from outbox.records import RecipientRow
from outbox.states import RecipientKind, RecipientResult
from outbox.store.rows import packed_ids, these_ids

_R = schema.recipients


def database_now(connection: Connection) -> datetime:
    """The database's instant."""
    instant: datetime = connection.execute(select(now())).scalar_one()
    return instant


def namespace(connection: Connection) -> UUID:
    """The namespace of this installation, from which outside identities are derived."""
    return UUID(connection.execute(select(schema.instance.c.namespace)).scalar_one())


def recipients_of(
    connection: Connection, ids: Iterable[int]
) -> dict[int, tuple[RecipientRow, ...]]:
    """The recipients of each delivery in ``ids``, in their order; an empty tuple for none."""
    wanted = list(ids)
    found: dict[int, list[RecipientRow]] = {each: [] for each in wanted}
    rows = connection.execute(_recipients(connection.dialect.name), packed_ids(wanted))
    for id_, position, kind, address, result in rows:
        found[id_].append(
            RecipientRow(position, RecipientKind(kind), address, RecipientResult(result))
        )
    return {id_: tuple(people) for id_, people in found.items()}


@cache
def _recipients(dialect: str) -> Any:
    v = these_ids(dialect)
    return (
        select(_R.c.delivery_id, _R.c.position, _R.c.kind, _R.c.address, _R.c.result)
        .where(_R.c.delivery_id == v.c.id)
        .order_by(_R.c.delivery_id, _R.c.position)
    )
