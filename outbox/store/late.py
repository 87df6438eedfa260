"""Late proof: an acceptance that comes when its attempt's lease is long gone.

Acceptance is monotone. Whatever a delivery has become meanwhile, proof that the provider
took it turns it into ``accepted``, and takes it away from whoever is working on it: the
token is raised, so that this one's mark is refused and its settle is stale. If somebody
else's transmission was accepted as well, that is said loudly: ``copies`` counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Text, bindparam, case

from outbox import schema
from outbox.columns import Instant
from outbox.records import RecipientUpdate, Settlement
from outbox.states import AttemptOutcome, RecipientResult, State, fold
from outbox.store import tallies
from outbox.store.finish import tally, update_recipients
from outbox.store.rows import packed, unpacked

_D = schema.deliveries


def apply(connection: Connection, stale: Sequence[Settlement], *, at: datetime, shard: int) -> None:
    """Write what late answers prove. Only those that prove acceptance change anything."""
    proofs = [s for s in stale if s.end.outcome is AttemptOutcome.ACCEPTED]
    if not proofs:
        return
    rows = [_row(each) for each in proofs]
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


def _row(settlement: Settlement) -> dict[str, Any]:
    attempt = settlement.attempt
    before = {r.position: r.result for r in attempt.recipients}
    taken = _taken(settlement)
    after = fold((before | {u.position: u.result for u in taken}).values())
    twice = any(before[u.position] is RecipientResult.ACCEPTED for u in taken)
    return {
        "id": attempt.id,
        "state": State.ACCEPTED.value if after is State.ACCEPTED else None,
        "copies": int(twice),
        "first": int(attempt.state is not State.ACCEPTED and after is State.ACCEPTED),
    }


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
