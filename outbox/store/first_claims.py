"""The first claim of a row: what Python's enqueue would have written beside it, and whether
its key was used up long ago.

A row that came by plain SQL has a key and a message and nothing else. Its message is read
here for the first time; one that breaks the schema ends alone, with a reason. A key in the
tombstones ends its row unsent: a plain ``INSERT`` cannot look there in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Text, select

from outbox import schema
from outbox.errors import InvalidMessage
from outbox.keys import key_hash
from outbox.message import StoredMessage, address_hash
from outbox.records import Ending, Lane
from outbox.states import CancelledReason, FailedReason, State
from outbox.store import blobs
from outbox.store.enqueue import insert_links, insert_recipients
from outbox.store.rows import packed, unpacked
from outbox.texts import cleaned

_T = schema.tombstones


def complete(
    connection: Connection, taken: Sequence[tuple[Lane, Row[Any]]]
) -> tuple[list[Ending], list[tuple[Lane, Row[Any]]], dict[int, StoredMessage]]:
    """Of the rows about to be claimed, those that end here, and those that go on; and the
    messages that were read here for the first time.

    Writes recipients and links of rows that came by SQL.
    """
    first = {key_hash(row.delivery_key) for _, row in taken if row.public_id is None}
    buried = _buried(connection, first) if first else set()
    endings: list[Ending] = []
    rest: list[tuple[Lane, Row[Any]]] = []
    parsed: dict[int, StoredMessage] = {}
    for lane, row in taken:
        found = _first_look(row, lane, buried)
        if isinstance(found, Ending):
            endings.append(found)
            continue
        if found is not None:
            parsed[row.id] = found
        rest.append((lane, row))
    if parsed:
        _write_parts(connection, parsed)
    return endings, rest, parsed


def _first_look(row: Row[Any], lane: Lane, buried: set[str]) -> Ending | StoredMessage | None:
    """How a row ends before it was ever claimed, or the message nobody has read yet."""
    if row.public_id is None and key_hash(row.delivery_key) in buried:
        reason = CancelledReason.ALREADY_SETTLED
        return Ending(row.id, lane.account, State.CANCELLED, reason)
    if row.fingerprint is not None:
        return None
    try:
        return StoredMessage.parse(row.message)
    except InvalidMessage as error:
        words = cleaned(str(error))
        reason_ = FailedReason.INVALID_MESSAGE
        return Ending(row.id, lane.account, State.FAILED, reason_, last_error=words)


def _write_parts(connection: Connection, parsed: Mapping[int, StoredMessage]) -> None:
    """Recipients, and links to those attachments whose content is stored."""
    dialect = connection.dialect.name
    people = [
        {
            "delivery_id": id_,
            "position": position,
            "kind": str(kind),
            "address": address.address,
            "address_hash": address_hash(address),
        }
        for id_, message in parsed.items()
        for position, (kind, address) in enumerate(message.recipients())
    ]
    named = {digest for message in parsed.values() for digest in message.sha256s()}
    stored = blobs.stored(connection, named) if named else set()
    links = [
        {"delivery_id": id_, "sha256": digest}
        for id_, message in parsed.items()
        for digest in message.sha256s()
        if digest in stored
    ]
    for steps in (insert_recipients(dialect, people), insert_links(dialect, links)):
        for query in steps:
            connection.execute(query.statement, dict(query.parameters))  # type: ignore[call-overload]


def _buried(connection: Connection, hashes: Iterable[str]) -> set[str]:
    rows = connection.execute(
        _tombstones(connection.dialect.name), packed({"key_hash": each} for each in hashes)
    )
    return set(rows.scalars())


@cache
def _tombstones(dialect: str) -> Any:
    v = unpacked(dialect, {"key_hash": Text})
    return select(_T.c.key_hash).where(_T.c.key_hash == v.c.key_hash)
