"""The statements behind enqueue, find and cancel, as steps for any connection.

A write comes first in each: on SQLite a transaction that began with a read
cannot wait for the writer any more, and on PostgreSQL the first statement
takes the row's lock before anything is decided from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    LargeBinary,
    String,
    Text,
    bindparam,
    exists,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema
from outbox.connections import Query, Rows, Steps
from outbox.keys import key_hash
from outbox.schema import Instant, now
from outbox.states import CancelledReason, FailedReason, RecipientResult, State, StopRequest, fold
from outbox.store.rows import packed, unpacked
from outbox.store.tallies import raised

_D, _R, _B, _L, _T = (
    schema.deliveries,
    schema.recipients,
    schema.blobs,
    schema.delivery_blobs,
    schema.tombstones,
)


def _insert(dialect: str) -> Any:
    return postgresql.insert if dialect == "postgresql" else sqlite.insert


@cache
def _insert_deliveries(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "delivery_key": Text,
            "key_hash": Text,
            "message": Text,
            "fingerprint": Text,
            "account": Text,
            "send_after": Instant,
            "send_before": Instant,
            "when_unsure": Text,
            "priority": Integer,
            "tenant": Text,
            "tags": Text,
            "run_key": Text,
            "sender_domain": Text,
        },
    )
    start = func.coalesce(v.c.send_after, now())
    chosen = (
        select(
            v.c.delivery_key,
            v.c.message,
            v.c.fingerprint,
            v.c.account,
            start,
            start,
            v.c.send_before,
            v.c.when_unsure,
            v.c.priority,
            v.c.tenant,
            v.c.tags,
            v.c.run_key,
            v.c.sender_domain,
        )
        .where(
            ~exists().where(_D.c.delivery_key == v.c.delivery_key),
            ~exists().where(_T.c.key_hash == v.c.key_hash),
            v.c.send_before.is_(None) | (v.c.send_before > start),
        )
        .order_by(v.c.delivery_key if dialect == "sqlite" else v.c.delivery_key.collate("C"))
    )
    columns = (
        "delivery_key message fingerprint account send_after due_at send_before when_unsure "
        "priority tenant tags run_key sender_domain"
    )
    insert = _insert(dialect)(_D).from_select(columns.split(), chosen, include_defaults=False)
    return insert.on_conflict_do_nothing(index_elements=["delivery_key"]).returning(
        _D.c.id, _D.c.delivery_key
    )


@cache
def _known(dialect: str) -> Any:
    v = unpacked(dialect, {"delivery_key": Text})
    return select(
        _D.c.delivery_key,
        _D.c.id,
        _D.c.state,
        _D.c.fingerprint,
        _D.c.message,
        as_text(_D.c.created_at, dialect),
    ).where(_D.c.delivery_key == v.c.delivery_key)


@cache
def _buried(dialect: str) -> Any:
    v = unpacked(dialect, {"key_hash": Text})
    return select(_T.c.key_hash, _T.c.delivery_id, _T.c.state).where(_T.c.key_hash == v.c.key_hash)


@cache
def _delete(dialect: str) -> Any:
    v = unpacked(dialect, {"id": BigInteger})
    return _D.delete().where(_D.c.id.in_(select(v.c.id)))


@cache
def _insert_recipients(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "delivery_id": BigInteger,
            "position": Integer,
            "kind": Text,
            "address": Text,
            "address_hash": Text,
        },
    )
    return (
        _insert(dialect)(_R)
        .from_select(
            list(v.c.keys()), select(*v.c).where(literal_column("1=1")), include_defaults=False
        )
        .on_conflict_do_nothing()
    )


@cache
def _insert_blob(dialect: str) -> Any:
    return (
        _insert(dialect)(_B)
        .values(
            sha256=bindparam("blob_sha256", type_=String()),
            size=bindparam("blob_size", type_=BigInteger()),
            content=bindparam("blob_content", type_=LargeBinary()),
        )
        .on_conflict_do_nothing(index_elements=["sha256"])
    )


@cache
def _lock_blobs(dialect: str) -> Any:
    v = unpacked(dialect, {"sha256": Text})
    return (
        select(_B.c.sha256)
        .where(_B.c.sha256.in_(select(v.c.sha256)))
        .order_by(_B.c.sha256)
        .with_for_update(key_share=True, read=True)
    )


@cache
def _insert_links(dialect: str) -> Any:
    v = unpacked(dialect, {"delivery_id": BigInteger, "sha256": Text})
    return (
        _insert(dialect)(_L)
        .from_select(
            ["delivery_id", "sha256"],
            select(*v.c).where(literal_column("1=1")),
            include_defaults=False,
        )
        .on_conflict_do_nothing()
    )


def as_text(column: Any, dialect: str) -> Any:
    """An instant column as fixed-width text, whatever the driver would make of it."""
    if dialect == "sqlite":
        return literal_column(f"{column.table.name}.{column.name}", Text())
    utc = func.timezone("UTC", column)
    return func.to_char(utc, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"', type_=Text())


# --------------------------------------------------------------------------- #
# Steps
# --------------------------------------------------------------------------- #


def insert_deliveries(dialect: str, rows: Iterable[Mapping[str, Any]]) -> Steps[dict[str, int]]:
    """Insert what is not known yet; key -> id of the rows that were made."""
    made = yield Query(_insert_deliveries(dialect), packed(rows))
    return {key: id_ for id_, key in made}


def known(dialect: str, keys: Iterable[str]) -> Steps[Rows]:
    """Key, id, state, fingerprint, message, created_at (text) of the rows that are there."""
    return (yield Query(_known(dialect), packed({"delivery_key": key} for key in keys)))


def buried(dialect: str, key_hashes: Iterable[str]) -> Steps[Rows]:
    """Hash of the key, id and final state of the rows that were cleaned up."""
    return (yield Query(_buried(dialect), packed({"key_hash": each} for each in key_hashes)))


def delete(dialect: str, ids: Iterable[int]) -> Steps[None]:
    """Take back rows that this very call has inserted."""
    yield Query(_delete(dialect), packed({"id": each} for each in ids))


def insert_recipients(dialect: str, rows: Iterable[Mapping[str, Any]]) -> Steps[None]:
    yield Query(_insert_recipients(dialect), packed(rows))


def insert_blobs(dialect: str, blobs: Mapping[str, bytes]) -> Steps[None]:
    """Store contents once each, and keep a cleaner from removing the ones found.

    In digest order, so that two producers with the same two files cannot wait
    for each other; ``FOR KEY SHARE`` is shared among producers and refuses only
    a DELETE. A blob that vanished between the two statements is stored again.
    """
    missing = sorted(blobs)
    while missing:
        for digest in missing:
            content = blobs[digest]
            yield Query(
                _insert_blob(dialect),
                {"blob_sha256": digest, "blob_size": len(content), "blob_content": content},
            )
        found = yield Query(_lock_blobs(dialect), packed({"sha256": each} for each in missing))
        there = {row[0] for row in found}
        missing = [digest for digest in missing if digest not in there]


def insert_links(dialect: str, rows: Iterable[Mapping[str, Any]]) -> Steps[None]:
    yield Query(_insert_links(dialect), packed(rows))


# --------------------------------------------------------------------------- #
# Cancel
# --------------------------------------------------------------------------- #

_touch = (
    _D.update()
    .where(_D.c.delivery_key == bindparam("of_key", type_=String()))
    .values(updated_at=_D.c.updated_at)
    .returning(_D.c.id, _D.c.state, _D.c.held_from, _D.c.account)
)
_this = _D.c.id == bindparam("of_id", type_=BigInteger())
_request_stop = (
    _D.update()
    .where(_this, _D.c.state == "sending")
    .values(stop_requested=bindparam("stop", type_=String()), updated_at=now())
)
_cancel_recipients = (
    _R.update()
    .where(
        _R.c.delivery_id == bindparam("of_id", type_=BigInteger()),
        (_R.c.result == "pending") | (_R.c.result == "held"),
    )
    .values(result="cancelled", updated_at=now())
)
_results = select(_R.c.result).where(_R.c.delivery_id == bindparam("of_id", type_=BigInteger()))
_end = (
    _D.update()
    .where(_this, (_D.c.state == "pending") | (_D.c.state == "held"))
    .values(
        state=bindparam("new_state", type_=String()),
        reason=bindparam("new_reason", type_=String()),
        held_from=None,
        finished_at=now(),
        updated_at=now(),
    )
)


_REASONS = {
    State.CANCELLED: CancelledReason.PRODUCER.value,
    State.FAILED: FailedReason.REJECTED.value,
}
"""Of a delivery that ends here; it is ``failed`` if an address was refused earlier."""


def cancel(dialect: str, key: str) -> Steps[tuple[State | None, StopRequest | None]]:
    """Stop a delivery if that is still certain.

    The state it is in now, and what was asked of a sender in flight. None for a
    key that is not known.
    """
    touched = yield Query(_touch, {"of_key": key})
    if not touched:
        found = yield from buried(dialect, [key_hash(key)])
        return (State(found[0][2]) if found else None), None
    id_, state, held_from, account = touched[0]
    if state == State.SENDING:
        yield Query(_request_stop, {"of_id": id_, "stop": StopRequest.CANCEL.value})
        return State.SENDING, StopRequest.CANCEL
    if state != State.PENDING and not (state == State.HELD and held_from == State.PENDING):
        return State(state), None
    yield Query(_cancel_recipients, {"of_id": id_})
    results = yield Query(_results, {"of_id": id_})
    ended = fold(RecipientResult(r[0]) for r in results) if results else State.CANCELLED
    reason = _REASONS.get(ended)
    yield Query(_end, {"of_id": id_, "new_state": ended.value, "new_reason": reason})
    yield raised(dialect, {(account, ended): 1}, shard=0)
    return ended, None


# --------------------------------------------------------------------------- #
# Find
# --------------------------------------------------------------------------- #


@cache
def _find(dialect: str) -> Any:
    texts: Sequence[Any] = [
        as_text(_D.c[name], dialect)
        for name in (
            "send_after",
            "due_at",
            "send_before",
            "created_at",
            "updated_at",
            "finished_at",
        )
    ]
    d = _D.c
    plain = (
        *(d.id, d.delivery_key, d.state, d.reason, d.account, d.tenant, d.run_key),
        *(d.priority, d.attempts, d.copies, d.message),
    )
    return select(*plain, *texts).where(_D.c.delivery_key == bindparam("of_key", type_=String()))


_find_recipients = (
    select(
        _R.c.kind,
        _R.c.address,
        _R.c.result,
        _R.c.code,
        _R.c.reason,
        _R.c.delivery_status,
        _R.c.provider_message_id,
    )
    .where(_R.c.delivery_id == bindparam("of_id", type_=BigInteger()))
    .order_by(_R.c.position)
)


def find(dialect: str, key: str) -> Steps[tuple[Sequence[Any], Rows] | None]:
    """The row of a key and its recipients, as plain values."""
    rows = yield Query(_find(dialect), {"of_key": key})
    if not rows:
        return None
    people = yield Query(_find_recipients, {"of_id": rows[0][0]})
    return rows[0], people
