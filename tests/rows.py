"""Rows in any state, for tests of what reads them; the tables' CHECKs keep them possible."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from outbox import schema
from outbox.addresses import address_hash
from outbox.states import FINAL, State

MESSAGE = {
    "from": "Reports <reports@example.com>",
    "to": ["ana@example.org"],
    "subject": "Website audit 2026-W48",
    "text": "Three findings.\n",
}


def instant(seconds: float = 0) -> datetime:
    """Now, or ``seconds`` later; whole milliseconds, as they are stored."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def add_delivery(
    connection: Connection,
    key: str,
    *,
    state: State = State.PENDING,
    to: Sequence[tuple[str, str]] = (("to", "ana@example.org"),),
    message: Mapping[str, Any] | None = None,
    results: Sequence[Mapping[str, Any]] = (),
    **columns: Any,
) -> int:
    """One delivery with its recipients, as (kind, address); its id.

    ``results`` are further columns of the recipients, in their order.
    """
    values: dict[str, Any] = {
        "delivery_key": key,
        "state": state.value,
        "message": json.dumps(dict(message or MESSAGE)),
        "account": "main",
    }
    if state is State.SENDING:
        values |= {"lease_owner": "owner-1", "lease_expires_at": instant(60)}
        values |= {"claimed_from": "pending"}
    if state is State.HELD:
        values |= {"held_from": "in_doubt", "reason": "no_evidence"}
    if state is State.FAILED:
        values |= {"reason": "rejected"}
    if state is State.CANCELLED:
        values |= {"reason": "producer"}
    if state in FINAL:
        values |= {"finished_at": instant()}
    insert = schema.deliveries.insert().values(values | columns).returning(schema.deliveries.c.id)
    id_: int = connection.execute(insert).scalar_one()
    result = "pending" if state is State.SENDING else state.value
    for position, (kind, address) in enumerate(to):
        known = results[position] if position < len(results) else {}
        connection.execute(
            schema.recipients.insert().values(
                {
                    "delivery_id": id_,
                    "position": position,
                    "kind": kind,
                    "address": address,
                    "address_hash": address_hash(address),
                    "result": result,
                    **known,
                }
            )
        )
    return id_


def add_attempt(connection: Connection, delivery_id: int, number: int, **columns: Any) -> None:
    """One attempt, claimed unless ``columns`` say more; the delivery counts it."""
    values: dict[str, Any] = {
        "delivery_id": delivery_id,
        "number": number,
        "kind": "send",
        "account": "main",
        "phase": "claimed",
        "owner": "owner-1",
        "token": number,
        "recipients": "[0]",
    }
    if "outcome" in columns:
        values |= {"phase": "settled", "finished_at": instant()}
    elif columns.get("transmitting_at") is not None:
        values |= {"phase": "transmitting"}
    connection.execute(schema.attempts.insert().values(values | columns))
    connection.execute(
        schema.deliveries.update()
        .where(schema.deliveries.c.id == delivery_id)
        .values(last_attempt=number)
    )


def add_account(connection: Connection, account: str = "main", **columns: Any) -> None:
    """One account at run time; paused for ten minutes if a ``pause_reason`` is given."""
    values: dict[str, Any] = {"account": account, "provider": "smtp"}
    if "pause_reason" in columns:
        values |= {"paused_since": instant(-60), "paused_until": instant(600)}
    connection.execute(schema.accounts.insert().values(values | columns))


def add_dispatcher(connection: Connection, owner: str = "owner-1", **columns: Any) -> None:
    """One dispatcher that was just seen."""
    values: dict[str, Any] = {
        "owner": owner,
        "host": "mail-1",
        "pid": 4711,
        "version": "0.1.0",
        "slots": 100,
        "slots_used": 4,
    }
    connection.execute(schema.dispatchers.insert().values(values | columns))


def add_evidence(connection: Connection, delivery_id: int, **columns: Any) -> None:
    """One fact about a delivery: a late answer that it was taken, unless told otherwise."""
    values: dict[str, Any] = {
        "delivery_id": delivery_id,
        "attempt": 1,
        "kind": "answer",
        "verdict": "taken",
    }
    connection.execute(schema.evidence.insert().values(values | columns))
