"""Events that were consumed, as steps for any connection."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import String, bindparam
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema_jobs
from outbox.connections import Query, Steps

_C = schema_jobs.consumed_events


@cache
def _insert(dialect: str) -> Any:
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return (
        insert(_C)
        .values(
            source=bindparam("of_source", type_=String()),
            event_id=bindparam("of_event", type_=String()),
        )
        .on_conflict_do_nothing(index_elements=["source", "event_id"])
        .returning(_C.c.source)
    )


def consume(dialect: str, source: str, event_id: str) -> Steps[bool]:
    """Remember an event; whether this transaction is the first to.

    A transaction that has it too, and has not ended yet, is waited for.
    """
    rows = yield Query(_insert(dialect), {"of_source": source, "of_event": event_id})
    return bool(rows)
