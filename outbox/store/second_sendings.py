"""``send-again``: a deliberate second sending is a delivery of its own.

It has a key of its own (``K~2``), and with it an idempotency key, a correlation value and a
Message-ID of its own; attempts, evidence and events of the one never speak of the other. The
two are linked both ways. The first keeps its final state, and what closes it is in the same
transaction as this.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Text,
    bindparam,
    insert,
    literal_column,
    select,
    union_all,
)

from outbox import schema
from outbox.columns import Instant
from outbox.keys import key_hash
from outbox.records_verbs import Change, Made, successor_key
from outbox.store.rows import packed, unpacked

_D, _R, _L, _T = (
    schema.deliveries,
    schema.recipients,
    schema.delivery_blobs,
    schema.tombstones,
)
_COPIED = [
    "message",
    "default_from",
    "sender_domain",
    "fingerprint",
    "priority",
    "when_unsure",
    "tenant",
    "tags",
    "run_key",
]


def make(connection: Connection, changes: Sequence[Change], *, at: datetime) -> tuple[Made, ...]:
    """The second sendings that ``changes`` ask for, due now. Their first deliveries are
    locked, and were not sent again before."""
    wanted = {each.id: each for each in changes if each.again is not None}
    if not wanted:
        return ()
    keys = _free_keys(connection, wanted)
    dialect = connection.dialect.name
    rows = packed(
        {
            "of_id": id_,
            "key": keys[id_],
            "account": each.again.account,
            "send_before": each.again.send_before,
        }
        for id_, each in sorted(wanted.items())
        if each.again is not None
    )
    ids = {
        row.resend_of: row.id for row in connection.execute(_insert(dialect), {"at": at, **rows})
    }
    people = [
        {"of_id": id_, "new_id": ids[id_], "position": position}
        for id_, each in wanted.items()
        if each.again is not None
        for position in each.again.recipients
    ]
    pairs = packed({"of_id": id_, "new_id": ids[id_]} for id_ in wanted)
    if people:
        connection.execute(_copy_recipients(dialect), {"at": at, **packed(people)})
    connection.execute(_copy_links(dialect), pairs)
    connection.execute(_link(dialect), pairs)
    return tuple(Made(id_, ids[id_], keys[id_]) for id_ in sorted(wanted))


def _free_keys(connection: Connection, wanted: dict[int, Change]) -> dict[int, str]:
    """The next key of each that neither a row nor a tombstone has."""
    keys: dict[int, str] = {}
    step = 1
    while missing := {id_: c for id_, c in wanted.items() if id_ not in keys}:
        offered = {id_: successor_key(each.key, step) for id_, each in missing.items()}
        rows = packed(
            {"key": key, "key_hash": key_hash(key)} for key in offered.values() if key is not None
        )
        taken = set(connection.execute(_taken(connection.dialect.name), rows).scalars())
        for id_, key in offered.items():
            if key is None:
                raise ValueError(f"{missing[id_].key} is too long to carry a number")
            if key not in taken:
                keys[id_] = key
        step += 1
    return keys


@cache
def _taken(dialect: str) -> Any:
    v = unpacked(dialect, {"key": Text, "key_hash": Text})
    return union_all(
        select(v.c.key).where(_D.c.delivery_key == v.c.key),
        select(v.c.key).where(_T.c.key_hash == v.c.key_hash),
    )


@cache
def _insert(dialect: str) -> Any:
    v = unpacked(
        dialect, {"of_id": BigInteger, "key": Text, "account": Text, "send_before": Instant}
    )
    at = bindparam("at", type_=Instant())
    values = select(
        v.c.key, v.c.of_id, v.c.account, at, at, v.c.send_before, *(_D.c[name] for name in _COPIED)
    ).where(_D.c.id == v.c.of_id)
    names = ["delivery_key", "resend_of", "account", "send_after", "due_at", "send_before"]
    return (
        insert(_D)
        .from_select([*names, *_COPIED], values, include_defaults=False)
        .returning(_D.c.id, _D.c.resend_of)
    )


@cache
def _copy_recipients(dialect: str) -> Any:
    v = unpacked(dialect, {"of_id": BigInteger, "new_id": BigInteger, "position": Integer})
    values = select(
        v.c.new_id,
        _R.c.position,
        _R.c.kind,
        _R.c.address,
        _R.c.address_hash,
        literal_column("'pending'"),
        bindparam("at", type_=Instant()),
    ).where(_R.c.delivery_id == v.c.of_id, _R.c.position == v.c.position)
    names = [
        "delivery_id", "position", "kind", "address", "address_hash", "result", "updated_at",
    ]  # fmt: skip
    return insert(_R).from_select(names, values, include_defaults=False)


@cache
def _copy_links(dialect: str) -> Any:
    v = unpacked(dialect, {"of_id": BigInteger, "new_id": BigInteger})
    values = select(v.c.new_id, _L.c.sha256).where(_L.c.delivery_id == v.c.of_id)
    return insert(_L).from_select(["delivery_id", "sha256"], values, include_defaults=False)


@cache
def _link(dialect: str) -> Any:
    v = unpacked(dialect, {"of_id": BigInteger, "new_id": BigInteger})
    return _D.update().where(_D.c.id == v.c.of_id).values(superseded_by=v.c.new_id)
