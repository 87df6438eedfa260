"""Postroom's outbox: write a delivery in the transaction that writes your rows.

    with outbox.transaction(conn):
        conn.execute("INSERT INTO invoices (id, total) VALUES (?, ?)", (7, 120))
        outbox.enqueue(conn, Email(to="ana@example.org", subject="Invoice 7", text="…"),
                       key="invoice:7:owner")

A job's author imports only this package. It loads the standard library and
SQLAlchemy, starts nothing and registers nothing.
"""

from __future__ import annotations

from outbox import migrations
from outbox._version import __version__
from outbox.connections import transaction
from outbox.database import prepare_sqlite
from outbox.errors import (
    InvalidDatabase,
    InvalidKey,
    InvalidMessage,
    KeyConflict,
    NotInTransaction,
    OutboxError,
    RetryTransaction,
    SchemaTooNew,
    SchemaTooOld,
    UnsupportedConnection,
)
from outbox.keys import key
from outbox.message import Address, Attachment, Email, Unsubscribe
from outbox.producer import (
    Cancelled,
    Delivery,
    Enqueued,
    Recipient,
    Requested,
    TooLate,
    cancel,
    cancel_async,
    enqueue,
    enqueue_async,
    enqueue_many,
    find,
    find_async,
)
from outbox.schema import metadata

__all__ = [
    "Address",
    "Attachment",
    "Cancelled",
    "Delivery",
    "Email",
    "Enqueued",
    "InvalidDatabase",
    "InvalidKey",
    "InvalidMessage",
    "KeyConflict",
    "NotInTransaction",
    "OutboxError",
    "Recipient",
    "Requested",
    "RetryTransaction",
    "SchemaTooNew",
    "SchemaTooOld",
    "TooLate",
    "Unsubscribe",
    "UnsupportedConnection",
    "__version__",
    "cancel",
    "cancel_async",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "find",
    "find_async",
    "key",
    "metadata",
    "migrations",
    "prepare_sqlite",
    "transaction",
]
