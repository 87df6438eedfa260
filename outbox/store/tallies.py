"""Counters that never fall: how many deliveries ever entered a final state.

Raised in the transaction that ends them, so that cleaning up rows cannot lower
them. ``shard`` spreads the writers: producers and operators use 0, each
dispatcher one of the others.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from sqlalchemy import BigInteger, ClauseElement, SmallInteger, Text, literal_column, select
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema
from outbox.connections import Query
from outbox.states import State
from outbox.store.rows import packed, unpacked

FINISHED = "deliveries_finished"
SECOND_ACCEPTANCES = "second_acceptances"
SHARDS = 16

_T = schema.tallies


def shard_of(owner: str) -> int:
    """The shard of one dispatcher, 1 to 15."""
    return 1 + zlib.crc32(owner.encode()) % (SHARDS - 1)


def raised(dialect: str, counts: Mapping[tuple[str, State], int], *, shard: int) -> Query:
    """Raise the tally of each (account, final state); the labels read ``account state``."""
    rows = [
        {"name": FINISHED, "labels": f"{account} {state.value}", "shard": shard, "value": count}
        for (account, state), count in sorted(counts.items())
    ]
    return Query(_raise(dialect), packed(rows))


def counted(dialect: str, name: str, accounts: Iterable[str], *, shard: int) -> Query:
    """Raise the tally ``name`` once for each of ``accounts``."""
    counts = Counter(accounts)
    rows = [
        {"name": name, "labels": account, "shard": shard, "value": count}
        for account, count in sorted(counts.items())
    ]
    return Query(_raise(dialect), packed(rows))


@cache
def _raise(dialect: str) -> ClauseElement:
    v = unpacked(
        dialect, {"name": Text, "labels": Text, "shard": SmallInteger, "value": BigInteger}
    )
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert(_T).from_select(
        list(v.c.keys()), select(*v.c).where(literal_column("1=1")), include_defaults=False
    )
    return statement.on_conflict_do_update(
        index_elements=["name", "labels", "shard"],
        set_={"value": _T.c.value + statement.excluded.value},
    )
