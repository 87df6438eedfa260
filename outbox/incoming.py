"""Events from outside, consumed once: the other half of an outbox.

Whoever brings events brings some of them twice. Remembering an event in the transaction that
does what it asks for makes the second time harmless: either both are committed, or neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outbox import connections
from outbox.characters import check_line
from outbox.connections import Work
from outbox.errors import InvalidKey, InvalidMessage, NotInTransaction
from outbox.limits_jobs import EVENT_CHARACTERS, SOURCE_CHARACTERS
from outbox.store.consumed import consume


def deduplicate(connection: Any, source: str, event_id: str) -> bool:
    """Whether this is the first time that an event is seen; then it is remembered.

    connection: what :func:`outbox.enqueue` takes; the event is remembered in its transaction.
    source: where events with such ids come from, at most 128 characters.
    event_id: the event's identity there, at most 255 characters.

    Another transaction that has remembered the same event, and has not ended, is waited for.
    Raises InvalidKey, NotInTransaction, UnsupportedConnection, SchemaTooOld or
    RetryTransaction.
    """
    work = _consuming(source, event_id)
    with _named():
        return connections.run(connection, work)


async def deduplicate_async(connection: Any, source: str, event_id: str) -> bool:
    """:func:`deduplicate` on an asynchronous connection."""
    work = _consuming(source, event_id)
    with _named():
        return await connections.run_async(connection, work)


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except NotInTransaction:
        raise NotInTransaction(
            "this connection is in autocommit mode, so the event would be remembered on its own, "
            'whatever becomes of your rows.\n  Use "with outbox.transaction(conn):".'
        ) from None


def _consuming(source: str, event_id: str) -> Work[bool]:
    try:
        for name, text, most in (
            ("source", source, SOURCE_CHARACTERS),
            ("event_id", event_id, EVENT_CHARACTERS),
        ):
            if not check_line(name, text, most):
                raise InvalidKey(f"{name} is empty")
    except InvalidMessage as error:
        raise InvalidKey(str(error)) from None
    return lambda dialect: consume(dialect, source, event_id)
