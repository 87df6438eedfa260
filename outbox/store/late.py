"""Late proof: an acceptance that comes when its attempt's lease is long gone.

Acceptance is monotone. Whatever a delivery has become meanwhile, proof that the provider
took it turns it into ``accepted``, and takes it away from whoever is working on it: the
token is raised, so that this one's mark is refused and its settle is stale. If somebody
else's transmission was accepted as well, that is said loudly: ``copies`` counts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Text, bindparam, case, select

from outbox import schema
from outbox.columns import Instant
from outbox.records import RecipientUpdate, Settlement
from outbox.states import RecipientResult, State, fold
from outbox.store import tallies
from outbox.store.finish import tally, update_recipients
from outbox.store.rows import packed, packed_ids, these_ids, unpacked

_D, _R = schema.deliveries, schema.recipients


def apply(connection: Connection, stale: Sequence[Settlement], *, at: datetime, shard: int) -> None:
    """Write what late answers prove. Only those that prove acceptance change anything."""
    proofs = [s for s in stale if _taken(s)]
    if not proofs:
        return
    known = _known_ids(connection, proofs)
    rows = [_row(each, known) for each in proofs]
    connection.execute(_accept(connection.dialect.name), {"at": at, **packed(rows)})
    updates = [(s.attempt.id, r) for s in proofs for r in _taken(s)]
    update_recipients(connection, updates, at=at)
    ended = [
        (s.attempt.account, State.ACCEPTED)
        for s, row in zip(proofs, rows, strict=True)
        if row["state"] == State.ACCEPTED and s.attempt.state is not State.ACCEPTED
    ]
    tally(connection, ended, shard=shard)
    second = [s.attempt.account for s, row in zip(proofs, rows, strict=True) if row["copies"]]
    if second:
        query = tallies.counted(
            connection.dialect.name, tallies.SECOND_ACCEPTANCES, second, shard=shard
        )
        connection.execute(query.statement, dict(query.parameters))  # type: ignore[call-overload]


def _taken(settlement: Settlement) -> list[RecipientUpdate]:
    return [u for u in settlement.recipients if u.result is RecipientResult.ACCEPTED]


def _known_ids(
    connection: Connection, proofs: Sequence[Settlement]
) -> dict[tuple[int, int], str | None]:
    """The provider's id of each recipient that was accepted before."""
    rows = connection.execute(
        _ids(connection.dialect.name), packed_ids(s.attempt.id for s in proofs)
    )
    return {(row.delivery_id, row.position): row.provider_message_id for row in rows}


def _row(settlement: Settlement, known: Mapping[tuple[int, int], str | None]) -> dict[str, Any]:
    attempt = settlement.attempt
    before = {r.position: r.result for r in attempt.recipients}
    taken = _taken(settlement)
    after = fold((before | {u.position: u.result for u in taken}).values())
    # The same id from two attempts is one message: a provider's answer to a replay.
    twice = any(
        before[u.position] is RecipientResult.ACCEPTED
        and (
            u.provider_message_id is None or u.provider_message_id != known[attempt.id, u.position]
        )
        for u in taken
    )
    return {
        "id": attempt.id,
        "state": State.ACCEPTED.value if after is State.ACCEPTED else None,
        "copies": int(twice),
        "first": int(attempt.state is not State.ACCEPTED and after is State.ACCEPTED),
    }


@cache
def _ids(dialect: str) -> Any:
    v = these_ids(dialect)
    return select(_R.c.delivery_id, _R.c.position, _R.c.provider_message_id).where(
        _R.c.delivery_id == v.c.id
    )


@cache
def _accept(dialect: str) -> Any:
    v = unpacked(dialect, {"id": BigInteger, "state": Text, "copies": Integer, "first": Integer})
    proved = v.c.state.is_not(None)
    at = bindparam("at", type_=Instant())

    def unless(column: Any) -> Any:
        return case((proved, None), else_=column)

    return (
        _D.update()
        .where(_D.c.id == v.c.id)
        .values(
            state=case((proved, v.c.state), else_=_D.c.state),
            reason=unless(_D.c.reason),
            held_from=unless(_D.c.held_from),
            claimed_from=unless(_D.c.claimed_from),
            stop_requested=unless(_D.c.stop_requested),
            lease_owner=unless(_D.c.lease_owner),
            lease_expires_at=unless(_D.c.lease_expires_at),
            lease_token=case((proved, _D.c.lease_token + 1), else_=_D.c.lease_token),
            finished_at=case((proved & _D.c.finished_at.is_(None), at), else_=_D.c.finished_at),
            copies=_D.c.copies + v.c.copies + v.c.first,
            updated_at=at,
        )
    )
