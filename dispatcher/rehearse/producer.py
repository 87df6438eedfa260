"""The producer of the drills: what somebody's job does, in this process and in children."""

from __future__ import annotations

from sqlalchemy import Connection

import outbox


def enqueued(connection: Connection, key: str, account: str, *, text: str = "Hello") -> bool:
    """Enqueue one message in the caller's transaction; whether it was new. Raises KeyConflict."""
    mail = outbox.Email(to="rehearsal@example.org", subject=f"Rehearsal {key}", text=text)
    return outbox.enqueue(connection, mail, key=key, account=account).created
