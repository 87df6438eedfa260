"""What a job calls: enqueue, ask, cancel. Always in the caller's own transaction.

Nothing here commits or rolls back. A key that is known returns its first row;
another message under it raises :class:`~outbox.errors.KeyConflict`, without
spoiling the transaction and without leaving part of a batch behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from outbox import connections
from outbox.connections import Rows, Steps, Work
from outbox.errors import InvalidMessage, KeyConflict, RetryTransaction
from outbox.instants import format_instant, parse_instant
from outbox.keys import check_key, key_hash
from outbox.message import Email, StoredMessage, address_hash, differing_fields, fingerprint
from outbox.states import (
    DeliveryStatus,
    RecipientKind,
    RecipientResult,
    State,
    StopRequest,
    WhenUnsure,
)
from outbox.store import enqueue as store

BATCH = 1000
"""Rows to a statement in bulk enqueue."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of one enqueue. ``created`` is False when the key was known;
    then ``id`` and ``state`` are the first row's."""

    id: int
    key: str
    created: bool
    state: State


@dataclass(frozen=True, slots=True)
class Recipient:
    """One address of a delivery and what is known about it."""

    kind: RecipientKind
    address: str
    result: RecipientResult
    code: str | None
    reason: str | None
    delivery_status: DeliveryStatus | None
    provider_message_id: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery as its producer may see it. ``message`` is None once purged."""

    id: int
    key: str
    state: State
    reason: str | None
    account: str
    tenant: str | None
    run_key: str | None
    priority: int
    attempts: int
    copies: int
    message: StoredMessage | None
    send_after: datetime
    due_at: datetime
    send_before: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It is stopped for certain: nothing was sent, nothing will be."""

    key: str


@dataclass(frozen=True, slots=True)
class Requested:
    """It is in flight; it will be stopped if the provider has not taken it."""

    key: str


@dataclass(frozen=True, slots=True)
class TooLate:
    """It cannot be stopped any more; ``state`` says what it is. None: the key is not known."""

    key: str
    state: State | None


IfExists: TypeAlias = Literal["raise", "keep"]


@dataclass(frozen=True, slots=True)
class _Item:
    key: str
    email: Email
    fingerprint: str
    text: str


@dataclass(frozen=True, slots=True)
class _Options:
    account: str
    send_after: datetime | None
    send_before: datetime | None
    when_unsure: str | None
    priority: int
    tenant: str | None
    if_exists: IfExists


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
    work = _one(
        message,
        key,
        _options(
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
    work = _one(message, key, _options(**options))
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
    options = _options(
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
    """The delivery with this key as the caller's transaction sees it; None if there is none."""
    row = connections.run(connection, lambda dialect: store.find(dialect, key))
    return None if row is None else _delivery(*row)


async def find_async(connection: Any, key: str) -> Delivery | None:
    """:func:`find` on an asynchronous connection."""
    row = await connections.run_async(connection, lambda dialect: store.find(dialect, key))
    return None if row is None else _delivery(*row)


def cancel(connection: Any, key: str) -> Cancelled | Requested | TooLate:
    """Stop a delivery, in the caller's transaction, if that is still certain."""
    ended = connections.run(connection, lambda dialect: store.cancel(dialect, key))
    return _cancellation(key, *ended)


async def cancel_async(connection: Any, key: str) -> Cancelled | Requested | TooLate:
    """:func:`cancel` on an asynchronous connection."""
    ended = await connections.run_async(connection, lambda dialect: store.cancel(dialect, key))
    return _cancellation(key, *ended)


# --------------------------------------------------------------------------- #
# Preparing
# --------------------------------------------------------------------------- #


def _options(
    *,
    account: str | None = None,
    send_after: datetime | None = None,
    send_before: datetime | None = None,
    when_unsure: str | None = None,
    priority: int = 0,
    tenant: str | None = None,
    if_exists: IfExists = "raise",
) -> _Options:
    if if_exists not in {"raise", "keep"}:
        raise ValueError(f'if_exists is "raise" or "keep", not {if_exists!r}')
    if account is not None and not 1 <= len(account) <= 64:
        raise InvalidMessage("account", "an account's name has 1 to 64 characters")
    if tenant is not None and not 1 <= len(tenant) <= 255:
        raise InvalidMessage("tenant", "a tenant has 1 to 255 characters")
    if isinstance(priority, bool) or not -100 <= priority <= 100:
        raise InvalidMessage("priority", f"{priority!r} is not between -100 and 100")
    if when_unsure is not None and when_unsure not in set(WhenUnsure):
        raise InvalidMessage("when_unsure", f'{when_unsure!r} is neither "hold" nor "send_again"')
    for name, instant in (("send_after", send_after), ("send_before", send_before)):
        if instant is not None and instant.tzinfo is None:
            raise InvalidMessage(name, "has no time zone; pass an aware datetime")
    if send_before is not None and format_instant(send_before) <= format_instant(
        send_after or datetime.now(UTC)
    ):
        raise InvalidMessage("send_before", "is not after send_after, or has passed already")
    return _Options(
        account or "", send_after, send_before, when_unsure, priority, tenant, if_exists
    )


def _item(message: Email, key: str) -> _Item:
    if not isinstance(message, Email):
        raise InvalidMessage("message", f"is {type(message).__name__}; pass an outbox.Email")
    text = message.to_json()
    return _Item(check_key(key), message, fingerprint(message), text)


def _one(message: Email, key: str, options: _Options) -> Work[Enqueued]:
    item = _item(message, key)

    def work(dialect: str) -> Steps[Enqueued]:
        return (yield from _enqueue(dialect, [item], options))[0]

    return work


def _row(item: _Item, options: _Options) -> Mapping[str, Any]:
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
        "tags": json.dumps(list(item.email.tags), ensure_ascii=False),
        "run_key": None,
    }


# --------------------------------------------------------------------------- #
# The steps
# --------------------------------------------------------------------------- #


def _enqueue(dialect: str, items: Sequence[_Item], options: _Options) -> Steps[list[Enqueued]]:
    """All items; on a conflict in any of them, what this call inserted is taken back."""
    first = _first_of_each(items, options)
    done: dict[str, Enqueued] = {}
    unique = sorted(first.values(), key=lambda item: item.key)
    try:
        for start in range(0, len(unique), BATCH):
            chunk = unique[start : start + BATCH]
            yield from _enqueue_chunk(dialect, chunk, options, done)
    except (KeyConflict, InvalidMessage):
        created = [each.id for each in done.values() if each.created]
        if created:
            yield from store.delete(dialect, created)
        raise
    repeated: set[str] = set()
    results = []
    for item in items:
        entry = done[item.key]
        again = item.key in repeated
        results.append(Enqueued(entry.id, entry.key, entry.created and not again, entry.state))
        repeated.add(item.key)
    return results


def _first_of_each(items: Sequence[_Item], options: _Options) -> dict[str, _Item]:
    first: dict[str, _Item] = {}
    for item in items:
        known = first.setdefault(item.key, item)
        if known.fingerprint != item.fingerprint and options.if_exists == "raise":
            raise _conflict(item, known.text, "earlier in the same call")
    return first


def _enqueue_chunk(
    dialect: str, items: Sequence[_Item], options: _Options, done: dict[str, Enqueued]
) -> Steps[None]:
    made = yield from store.insert_deliveries(dialect, (_row(item, options) for item in items))
    for key, id_ in made.items():
        done[key] = Enqueued(id_, key, created=True, state=State.PENDING)
    others = [item for item in items if item.key not in made]
    if others:
        yield from _known_keys(dialect, others, options, done)
    created = [(made[item.key], item) for item in items if item.key in made]
    if created:
        yield from _write_parts(dialect, created)


def _known_keys(
    dialect: str, items: Sequence[_Item], options: _Options, done: dict[str, Enqueued]
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


def _write_parts(dialect: str, created: Sequence[tuple[int, _Item]]) -> Steps[None]:
    blobs = {k: v for _, item in created for k, v in item.email.blobs().items()}
    if blobs:
        yield from store.insert_blobs(dialect, blobs)
        yield from store.insert_links(
            dialect,
            (
                {"delivery_id": id_, "sha256": digest}
                for id_, item in created
                for digest in sorted(item.email.blobs())
            ),
        )
    yield from store.insert_recipients(
        dialect,
        (
            {
                "delivery_id": id_,
                "position": position,
                "kind": str(kind),
                "address": address.address,
                "address_hash": address_hash(address),
            }
            for id_, item in created
            for position, (kind, address) in enumerate(item.email.recipients())
        ),
    )


# --------------------------------------------------------------------------- #
# Reading rows
# --------------------------------------------------------------------------- #


def _cancellation(
    key: str, state: State | None, asked: StopRequest | None
) -> Cancelled | Requested | TooLate:
    if asked is not None:
        return Requested(key)
    return Cancelled(key) if state is State.CANCELLED else TooLate(key, state)


def _delivery(row: Sequence[Any], people: Rows) -> Delivery:
    id_, key, state, reason, account, tenant, run_key, priority, attempts, copies, text = row[:11]
    after, due, before, created, updated, finished = (
        None if value is None else parse_instant(value) for value in row[11:]
    )
    assert after and due and created and updated  # noqa: S101  (NOT NULL columns)
    try:
        message = None if text is None else StoredMessage.parse(text)
    except InvalidMessage:
        message = None
    return Delivery(
        id_, key, State(state), reason, account, tenant, run_key, priority, attempts, copies,
        message, after, due, before, created, updated, finished,
        tuple(
            Recipient(
                RecipientKind(kind), address, RecipientResult(result), code, why,
                None if status is None else DeliveryStatus(status), provider_id,
            )
            for kind, address, result, code, why, status, provider_id in people
        ),
    )  # fmt: skip
