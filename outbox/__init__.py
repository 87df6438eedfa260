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
from outbox.clock import now
from outbox.connections import transaction
from outbox.database import prepare_sqlite
from outbox.errors import (
    InputChanged,
    InvalidDatabase,
    InvalidKey,
    InvalidMessage,
    KeyConflict,
    LeaseLost,
    NotInTransaction,
    OutboxError,
    Permanent,
    RetryAfter,
    RetryTransaction,
    RunNotFinished,
    SchemaTooNew,
    SchemaTooOld,
    UnsupportedConnection,
)
from outbox.incoming import deduplicate, deduplicate_async
from outbox.jobs.job import job
from outbox.jobs.open_run import open_run
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
    "InputChanged",
    "InvalidDatabase",
    "InvalidKey",
    "InvalidMessage",
    "KeyConflict",
    "LeaseLost",
    "NotInTransaction",
    "OutboxError",
    "Permanent",
    "Recipient",
    "Requested",
    "RetryAfter",
    "RetryTransaction",
    "RunNotFinished",
    "SchemaTooNew",
    "SchemaTooOld",
    "TooLate",
    "Unsubscribe",
    "UnsupportedConnection",
    "__version__",
    "cancel",
    "cancel_async",
    "deduplicate",
    "deduplicate_async",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "find",
    "find_async",
    "job",
    "key",
    "metadata",
    "migrations",
    "now",
    "open_run",
    "prepare_sqlite",
    "transaction",
]
