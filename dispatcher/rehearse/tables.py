"""What drills read in the tables of a rehearsal, and how its time is moved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Interval, func, literal, select, type_coerce
from sqlalchemy.dialects.postgresql import TIMESTAMP

from outbox import schema
from outbox.columns import Instant
from outbox.states import FINAL, State


@dataclass(frozen=True, slots=True)
class Row:
    """A delivery as a drill looks at it."""

    id: int
    state: State
    reason: str | None
    attempts: int
    last_attempt: int
    copies: int
    token: int
    due_at: datetime
    extra: str | None
    last_error: str | None

    @property
    def settled(self) -> bool:
        """Nothing moves it by itself any more."""
        return self.state in FINAL or self.state is State.HELD


def read_row(connection: Connection, key: str) -> Row:
    """The delivery with this key."""
    d = schema.deliveries.c
    found = connection.execute(
        select(
            d.id, d.state, d.reason, d.attempts, d.last_attempt, d.copies, d.lease_token,
            d.due_at, d.extra_transmission, d.last_error,
        ).where(d.delivery_key == key)
    ).one()  # fmt: skip
    return Row(
        id=found.id,
        state=State(found.state),
        reason=found.reason,
        attempts=found.attempts,
        last_attempt=found.last_attempt,
        copies=found.copies,
        token=found.lease_token,
        due_at=found.due_at,
        extra=found.extra_transmission,
        last_error=found.last_error,
    )


def move_back(connection: Connection, duration: timedelta) -> None:
    """Every instant of every table, by the same amount: their order stays as it was.

    But for ``send_after``: it is the message's Date, and no message changes with time.
    """
    for table in schema.metadata.sorted_tables:
        instants = [
            column
            for column in table.columns
            if isinstance(column.type, Instant) and column is not schema.deliveries.c.send_after
        ]
        if not instants:
            continue
        moved = {column: _earlier(connection.dialect.name, column, duration) for column in instants}
        connection.execute(table.update().values(moved))


def _earlier(dialect: str, column: Any, duration: timedelta) -> Any:
    if dialect == "postgresql":
        return type_coerce(column, TIMESTAMP(timezone=True)) - literal(duration, Interval())
    seconds = f"-{duration.total_seconds():.3f} seconds"
    return func.strftime("%Y-%m-%dT%H:%M:%fZ", column, seconds)
