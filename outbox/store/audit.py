"""The audit trail: who did what to which deliveries and accounts, and why. Insert-only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Text, bindparam, insert, literal_column, select

from outbox import schema
from outbox.columns import Instant
from outbox.records_verbs import Audited
from outbox.store.rows import packed, unpacked
from outbox.texts import cleaned

_U = schema.audit


@dataclass(frozen=True, slots=True)
class Entry:
    """One line to be written; ``before`` and ``after`` are small and become JSON."""

    action: str
    subject: str
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)


def write(
    connection: Connection, entries: Iterable[Entry], *, actor: str, note: str, at: datetime
) -> None:
    """Write ``entries`` in the transaction of what they tell about.

    ``actor`` is cut to 255 characters, ``note`` to 2,000.
    """
    rows = [
        {
            "action": each.action,
            "subject": each.subject,
            "before": json.dumps(dict(each.before)) if each.before else None,
            "after": json.dumps(dict(each.after)) if each.after else None,
        }
        for each in entries
    ]
    if rows:
        words = {"actor": cleaned(actor, 255), "note": cleaned(note, 2000), "at": at}
        connection.execute(_write(connection.dialect.name), {**words, **packed(rows)})


def entries(connection: Connection, *, subject: str | None = None, limit: int) -> Sequence[Audited]:
    """The last ``limit`` entries, newest first; of one ``subject`` (a delivery's key, an
    account's name, the text of a filter) if it is given."""
    query = select(_U).order_by(_U.c.id.desc()).limit(limit)
    if subject is not None:
        query = query.where(_U.c.subject == subject)
    return [
        Audited(
            row.at, row.actor, row.action, row.subject, row.operator_note, row.before, row.after
        )
        for row in connection.execute(query)
    ]


@cache
def _write(dialect: str) -> Any:
    v = unpacked(dialect, {"action": Text, "subject": Text, "before": Text, "after": Text})
    names = ["at", "actor", "operator_note", "action", "subject", "before", "after"]
    values = select(
        bindparam("at", type_=Instant()),
        bindparam("actor", type_=Text()),
        bindparam("note", type_=Text()),
        *v.c,
    ).where(literal_column("1=1"))
    return insert(_U).from_select(names, values, include_defaults=False)
