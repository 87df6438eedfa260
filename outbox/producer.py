"""What a job calls: enqueue, ask, cancel. Always in the caller's own transaction.

Nothing here commits or rolls back. A key that is known returns its first row;
another message under it raises :class:`~outbox.errors.KeyConflict`, without
spoiling the transaction and without leaving part of a batch behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from outbox import connections
from outbox.connections import Steps, Work
from outbox.deliveries import (
    Cancelled,
    Delivery,
    Enqueued,
    Recipient,
    Requested,
    TooLate,
    cancellation,
    delivery,
)
from outbox.errors import InvalidMessage, KeyConflict, RetryTransaction
from outbox.keys import check_key, key_hash
from outbox.message import Email, address_hash, differing_fields, fingerprint
from outbox.options import IfExists, Options
from outbox.options import options as chosen
from outbox.states import State
from outbox.store import enqueue as store

__all__ = [
    "Cancelled",
    "Delivery",
    "Enqueued",
    "Recipient",
    "Requested",
    "TooLate",
    "cancel",
    "cancel_async",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "find",
    "find_async",
]

BATCH = 1000
"""Rows to a statement in bulk enqueue."""

BATCH_CHARACTERS = 32_000_000
"""Characters of messages to a statement: a thousand large ones are no single parameter."""


@dataclass(frozen=True, slots=True)
class _Item:
    key: str
    email: Email
    fingerprint: str
    text: str


def enqueue(
    connection: Any,
    message: Email,
    *,
    key: str,
    account: str | None = None,
    send_after: datetime | None = None,
    send_before: datetime | None = None,
    when_unsure: Literal["hold", "send_again"] | None = None,
    priority: int = 0,
    tenant: str | None = None,
    if_exists: IfExists = "raise",
    own_transaction: bool = False,
) -> Enqueued:
    """Write one delivery in the caller's transaction.

    connection: an SQLAlchemy ``Session`` or ``Connection``, a ``sqlite3`` or
      ``psycopg`` connection, or Django's connection.
    key: the stable business identity of this intention (see :func:`outbox.key`).
    account: the configured account to send by; left out, the dispatcher's default.
    send_after, send_before: aware datetimes. Not sent before the first (left
      out: now); never sent after the second.
    when_unsure: what to do when nothing can prove whether it was taken.
    priority: -100 to 100; higher goes first.
    if_exists: ``keep`` accepts the first message of a known key, whatever it says.

    Raises InvalidMessage, InvalidKey, KeyConflict, NotInTransaction,
    UnsupportedConnection, SchemaTooOld or RetryTransaction; then nothing of
    this call is in the transaction.
    """
    work = writing(
        message,
        key,
        chosen(
            account=account,
            send_after=send_after,
            send_before=send_before,
            when_unsure=when_unsure,
            priority=priority,
            tenant=tenant,
            if_exists=if_exists,
        ),
    )
    return connections.run(connection, work, own_transaction=own_transaction)


async def enqueue_async(
    connection: Any,
    message: Email,
    *,
    key: str,
    own_transaction: bool = False,
    **options: Any,
) -> Enqueued:
    """:func:`enqueue` for ``AsyncSession``, ``AsyncConnection`` and psycopg's
    ``AsyncConnection``; same arguments, same errors."""
    work = writing(message, key, chosen(**options))
    return await connections.run_async(connection, work, own_transaction=own_transaction)


def enqueue_many(
    connection: Any,
    items: Iterable[tuple[Email, str]],
    *,
    account: str | None = None,
    send_after: datetime | None = None,
    send_before: datetime | None = None,
    when_unsure: Literal["hold", "send_again"] | None = None,
    priority: int = 0,
    tenant: str | None = None,
    if_exists: IfExists = "raise",
    own_transaction: bool = False,
) -> list[Enqueued]:
    """Write many (message, key) pairs, a fixed number of statements per thousand.

    Attachments add one statement for each different content. Results come in
    the order of ``items``. Errors as in :func:`enqueue`: all or nothing.
    """
    options = chosen(
        account=account,
        send_after=send_after,
        send_before=send_before,
        when_unsure=when_unsure,
        priority=priority,
        tenant=tenant,
        if_exists=if_exists,
    )
    prepared = [_item(message, key) for message, key in items]
    work: Work[list[Enqueued]] = lambda dialect: _enqueue(dialect, prepared, options)  # noqa: E731
    return connections.run(connection, work, own_transaction=own_transaction)


def find(connection: Any, key: str) -> Delivery | None:
    """The delivery with this key as the caller's transaction sees it; None if there is none.

    Reading needs no transaction. Raises UnsupportedConnection or SchemaTooOld.
    """
    row = connections.run(connection, lambda dialect: store.find(dialect, key), writes=False)
    return None if row is None else delivery(*row)


async def find_async(connection: Any, key: str) -> Delivery | None:
    """:func:`find` on an asynchronous connection."""
    row = await connections.run_async(
        connection, lambda dialect: store.find(dialect, key), writes=False
    )
    return None if row is None else delivery(*row)


def cancel(
    connection: Any, key: str, *, own_transaction: bool = False
) -> Cancelled | Requested | TooLate:
    """Stop a delivery, in the caller's transaction, if that is still certain.

    Raises NotInTransaction, UnsupportedConnection, SchemaTooOld or RetryTransaction.
    """
    ended = connections.run(
        connection, lambda dialect: store.cancel(dialect, key), own_transaction=own_transaction
    )
    return cancellation(key, *ended)


async def cancel_async(
    connection: Any, key: str, *, own_transaction: bool = False
) -> Cancelled | Requested | TooLate:
    """:func:`cancel` on an asynchronous connection."""
    ended = await connections.run_async(
        connection, lambda dialect: store.cancel(dialect, key), own_transaction=own_transaction
    )
    return cancellation(key, *ended)


# --------------------------------------------------------------------------- #
# Preparing
# --------------------------------------------------------------------------- #


def _item(message: Email, key: str) -> _Item:
    if not isinstance(message, Email):
        raise InvalidMessage("message", f"is {type(message).__name__}; pass an outbox.Email")
    text = message.to_json()
    return _Item(check_key(key), message, fingerprint(message), text)


def writing(message: Email, key: str, options: Options) -> Work[Enqueued]:
    """The steps of one enqueue, for whoever has a connection. Raises what :func:`enqueue`
    raises for message and key, before any step."""
    item = _item(message, key)

    def work(dialect: str) -> Steps[Enqueued]:
        return (yield from _enqueue(dialect, [item], options))[0]

    return work


def _row(item: _Item, options: Options) -> Mapping[str, Any]:
    return {
        "delivery_key": item.key,
        "key_hash": key_hash(item.key),
        "message": item.text,
        "fingerprint": item.fingerprint,
        "account": options.account,
        "send_after": options.send_after,
        "send_before": options.send_before,
        "when_unsure": options.when_unsure,
        "priority": options.priority,
        "tenant": options.tenant,
        "tags": item.email.tags_json(),
        "run_key": options.run_key,
        "sender_domain": None if item.email.from_ is None else item.email.from_.domain.lower(),
    }


# --------------------------------------------------------------------------- #
# The steps
# --------------------------------------------------------------------------- #


def _enqueue(dialect: str, items: Sequence[_Item], options: Options) -> Steps[list[Enqueued]]:
    """All items; on a conflict in any of them, what this call inserted is taken back.

    Rows first, in the order of their keys over the whole call, then their parts:
    so nothing but rows has to be taken back, and two calls lock in one order.
    """
    unique = sorted(_first_of_each(items, options).values(), key=lambda item: item.key)
    done: dict[str, Enqueued] = {}
    try:
        for batch in _batches(unique):
            yield from _enqueue_batch(dialect, batch, options, done)
    except (KeyConflict, InvalidMessage):
        created = [each.id for each in done.values() if each.created]
        if created:
            yield from store.delete(dialect, created)
        raise
    created_items = [item for item in unique if done[item.key].created]
    yield from _write_parts(dialect, created_items, done)
    results, repeated = [], set[str]()
    for item in items:
        entry = done[item.key]
        results.append(replace(entry, created=entry.created and item.key not in repeated))
        repeated.add(item.key)
    return results


def _batches(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    batch: list[_Item] = []
    size = 0
    for item in items:
        size += len(item.text)
        if batch and (len(batch) == BATCH or size > BATCH_CHARACTERS):
            yield batch
            batch, size = [], len(item.text)
        batch.append(item)
    if batch:
        yield batch


def _first_of_each(items: Sequence[_Item], options: Options) -> dict[str, _Item]:
    first: dict[str, _Item] = {}
    for item in items:
        known = first.setdefault(item.key, item)
        if known.fingerprint != item.fingerprint and options.if_exists == "raise":
            raise _conflict(item, known.text, "earlier in the same call")
    return first


def _enqueue_batch(
    dialect: str, items: Sequence[_Item], options: Options, done: dict[str, Enqueued]
) -> Steps[None]:
    made = yield from store.insert_deliveries(dialect, (_row(item, options) for item in items))
    for key, id_ in made.items():
        done[key] = Enqueued(id_, key, created=True, state=State.PENDING)
    others = [item for item in items if item.key not in made]
    if others:
        yield from _known_keys(dialect, others, options, done)


def _known_keys(
    dialect: str, items: Sequence[_Item], options: Options, done: dict[str, Enqueued]
) -> Steps[None]:
    rows = yield from store.known(dialect, (item.key for item in items))
    known = {row[0]: row for row in rows}
    missing = {key_hash(item.key): item for item in items if item.key not in known}
    for digest, id_, state in (yield from store.buried(dialect, missing)) if missing else ():
        item = missing.pop(digest)
        done[item.key] = Enqueued(id_, item.key, created=False, state=State(state))
    for item in missing.values():
        if options.send_before is not None:
            raise InvalidMessage("send_before", "is not after send_after, or has passed already")
        raise RetryTransaction(
            f"{item.key} was enqueued after this transaction began; run the whole transaction again"
        )
    for item in items:
        if item.key not in known:
            continue
        _, id_, state, print_, text, created_at = known[item.key]
        if options.if_exists == "raise" and _differs(item, print_, text):
            raise _conflict(item, text, f"at {created_at}")
        done[item.key] = Enqueued(id_, item.key, created=False, state=State(state))


def _differs(item: _Item, known_fingerprint: str | None, text: str | None) -> bool:
    """A purged message is not compared: there is nothing left to compare it with."""
    if text is None:
        return False
    version = item.fingerprint.partition(":")[0] + ":"
    if known_fingerprint is not None and known_fingerprint.startswith(version):
        return known_fingerprint != item.fingerprint
    try:
        return fingerprint(text) != item.fingerprint
    except InvalidMessage:
        return True


def _conflict(item: _Item, known: str, when: str) -> KeyConflict:
    fields = differing_fields(known, item.text)
    named = " and ".join(fields) if fields else "content"
    return KeyConflict(
        item.key,
        f"{item.key} was enqueued {when} with another {named};\n  the first stays. Pass "
        'if_exists="keep" if either is fine, or give the new content its own key.',
        fields,
    )


def _write_parts(
    dialect: str, created: Sequence[_Item], done: Mapping[str, Enqueued]
) -> Steps[None]:
    blobs = {digest: content for item in created for digest, content in item.email.blobs().items()}
    if blobs:
        yield from store.insert_blobs(dialect, blobs)
    for batch in _batches(created):
        links = [
            {"delivery_id": done[item.key].id, "sha256": digest}
            for item in batch
            for digest in item.email.sha256s()
        ]
        if links:
            yield from store.insert_links(dialect, links)
        yield from store.insert_recipients(
            dialect,
            (
                {
                    "delivery_id": done[item.key].id,
                    "position": position,
                    "kind": str(kind),
                    "address": address.address,
                    "address_hash": address_hash(address),
                }
                for item in batch
                for position, (kind, address) in enumerate(item.email.recipients())
            ),
        )
