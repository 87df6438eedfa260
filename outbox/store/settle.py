"""Settling: an attempt's end becomes the delivery's state, once, under a fence.

:func:`load` reads and locks the rows, in id order; the decision is made outside
(``dispatcher.decide``, pure); :func:`apply` writes it. The UPDATE names state,
owner and token again: a worker that was stopped past its lease and woke up has
an old token and changes no state and no schedule. What it learned is kept all
the same, as a row of evidence, and its attempt is closed if nobody closed it.

A settle whose commit was lost may have happened. Done again, it finds its own
result on the attempt (``settled``) and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Float,
    Integer,
    Row,
    Text,
    bindparam,
    func,
    insert,
    select,
)

from outbox import schema
from outbox.records import Fact, OpenAttempt, Settlement
from outbox.schema import Instant
from outbox.states import (
    FINAL,
    AttemptKind,
    AttemptOutcome,
    EvidenceKind,
    Phase,
    State,
    StopRequest,
    Verdict,
)
from outbox.store import doubts, late
from outbox.store.accounts import paused_seconds
from outbox.store.finish import tally, update_recipients
from outbox.store.reads import recipients_of
from outbox.store.rows import packed, packed_ids, these_ids, unpacked

_D, _A, _E, _X = schema.deliveries, schema.attempts, schema.evidence, schema.accounts

_VERDICTS: dict[AttemptOutcome, Verdict] = {
    AttemptOutcome.ACCEPTED: Verdict.TAKEN,
    AttemptOutcome.DUPLICATE: Verdict.UNKNOWN,
    AttemptOutcome.IN_DOUBT: Verdict.UNKNOWN,
    AttemptOutcome.IN_FLIGHT: Verdict.UNKNOWN,
    AttemptOutcome.KEY_MISMATCH: Verdict.UNKNOWN,
    AttemptOutcome.LOST: Verdict.UNKNOWN,
    AttemptOutcome.REJECTED: Verdict.NOT_TAKEN,
    AttemptOutcome.THROTTLED: Verdict.NOT_TAKEN,
    AttemptOutcome.UNAVAILABLE: Verdict.NOT_TAKEN,
    AttemptOutcome.ACCOUNT_BLOCKED: Verdict.NOT_TAKEN,
    AttemptOutcome.NOT_STARTED: Verdict.NOT_TAKEN,
    AttemptOutcome.TOO_LATE: Verdict.NOT_TAKEN,
}


def load(
    connection: Connection, attempts: Iterable[tuple[int, int]], *, at: datetime
) -> dict[int, OpenAttempt]:
    """Read and lock deliveries with one attempt each, given as (delivery id, number)."""
    wanted = packed({"id": id_, "number": number} for id_, number in sorted(attempts))
    rows = connection.execute(_load(connection.dialect.name), wanted).all()
    people = recipients_of(connection, (row.id for row in rows))
    return {row.id: opened(row, people[row.id], at) for row in rows}


def apply(
    connection: Connection, settlements: Sequence[Settlement], *, at: datetime, shard: int
) -> set[int]:
    """Write decisions about rows that :func:`load` has locked.

    Returns the ids whose state this has decided; for the others the lease was
    not the attempt's any more, and only evidence was kept.
    """
    fresh = [each for each in settlements if each.attempt.attempt_outcome is not each.end.outcome]
    repeated = {each.attempt.id for each in settlements} - {each.attempt.id for each in fresh}
    ours = sorted((s for s in fresh if s.attempt.ours), key=lambda s: s.attempt.id)
    changed = _update_deliveries(connection, ours, at) if ours else set()
    decided = [each for each in ours if each.attempt.id in changed]
    stale = _unheard(connection, [e for e in fresh if e.attempt.id not in changed])
    if fresh:
        connection.execute(_end_attempts(connection.dialect.name), _ends(fresh, at))
    update_recipients(connection, ((s.attempt.id, r) for s in decided for r in s.recipients), at=at)
    tally(connection, ((s.attempt.account, s.state) for s in decided), shard=shard)
    facts = [(s, s.fact) for s in decided if s.fact is not None]
    facts += [(s, Fact(EvidenceKind.ANSWER, _VERDICTS[s.end.outcome])) for s in stale]
    keep_evidence(connection, facts, at)
    late.apply(connection, stale, at=at, shard=shard)
    forget_requests(connection, decided)
    return {each.attempt.id for each in decided} | repeated


def _unheard(connection: Connection, stale: Sequence[Settlement]) -> list[Settlement]:
    """Late answers whose evidence is not there yet: the commit of one may have been lost, and
    then it is given again."""
    if not stale:
        return []
    rows = connection.execute(
        _heard(connection.dialect.name), packed_ids(s.attempt.id for s in stale)
    )
    heard = {(row.delivery_id, row.attempt) for row in rows}
    return [s for s in stale if (s.attempt.id, s.attempt.number) not in heard]


def forget_requests(connection: Connection, decided: Sequence[Settlement]) -> None:
    """What is settled is never replayed; only accounts that replay have kept anything."""
    over = [s.attempt.id for s in decided if s.state in FINAL and s.attempt.transmitted]
    if over:
        doubts.forget_requests(connection, over)


def opened(row: Row[Any], people: Any, at: datetime) -> OpenAttempt:
    """One row of :func:`open_attempts` as a record."""
    return OpenAttempt(
        id=row.id,
        key=row.delivery_key,
        state=State(row.state),
        claimed_from=State(row.claimed_from or "pending"),
        stop_requested=None if row.stop_requested is None else StopRequest(row.stop_requested),
        account=row.account,
        owner=row.lease_owner,
        token=row.lease_token,
        number=row.number,
        kind=AttemptKind(row.kind),
        phase=Phase(row.phase),
        attempt_owner=row.attempt_owner,
        attempt_token=row.attempt_token,
        attempt_recipients=tuple(json.loads(row.attempt_recipients)),
        attempt_outcome=None if row.outcome is None else AttemptOutcome(row.outcome),
        recipients=people,
        attempts=row.attempts,
        crashes=row.crashes,
        window_started_at=row.window_started_at,
        window_paused=row.window_paused,
        account_paused=paused_seconds(
            row.paused_seconds or 0.0, row.paused_since, row.paused_until, at
        ),
        account_failures=row.failures or 0,
        due_at=row.due_at,
        send_before=row.send_before,
        alone=bool(row.alone),
        crashes_alone=row.crashes_alone,
        blocks=row.blocks,
        throttled_since=row.throttled_since,
    )


def open_attempts() -> Any:
    """Deliveries joined with their attempts and accounts, before any condition."""
    joined = _D.join(_A, _A.c.delivery_id == _D.c.id).outerjoin(
        _X, (_X.c.account == _D.c.account) & (_X.c.scope == "")
    )
    names = (
        "id delivery_key state claimed_from stop_requested account lease_owner lease_token attempts "
        "crashes crashes_alone window_started_at window_paused due_at send_before"
    )
    earlier = _A.alias("earlier")

    def history(what: Any, outcome: str) -> Any:
        return (
            select(what)
            .where(earlier.c.delivery_id == _D.c.id, earlier.c.outcome == outcome)
            .scalar_subquery()
        )

    return select(
        *(_D.c[name] for name in names.split()),
        _A.c.number,
        _A.c.kind,
        _A.c.phase,
        _A.c.outcome,
        _A.c.owner.label("attempt_owner"),
        _A.c.token.label("attempt_token"),
        _A.c.recipients.label("attempt_recipients"),
        _X.c.paused_seconds,
        _X.c.paused_since,
        _X.c.paused_until,
        _X.c.failures,
        _A.c.alone,
        history(func.count(), "account_blocked").label("blocks"),
        history(func.min(earlier.c.started_at), "throttled").label("throttled_since"),
    ).select_from(joined)


def _update_deliveries(
    connection: Connection, settlements: Sequence[Settlement], at: datetime
) -> set[int]:
    rows = packed(
        {
            "id": s.attempt.id,
            "owner": s.attempt.attempt_owner,
            "token": s.attempt.attempt_token,
            "state": s.state.value,
            "reason": s.reason,
            "held_from": s.held_from,
            "due_at": s.due_at,
            "attempts": s.attempts,
            "crashes": s.crashes,
            "crashes_alone": s.crashes_alone,
            "copies": int(s.state is State.ACCEPTED),
            "window_started_at": s.window_started_at,
            "window_paused": s.window_paused,
            "last_error": s.last_error,
            "finished_at": at if s.state in FINAL else None,
        }
        for s in settlements
    )
    changed = connection.execute(_settle(connection.dialect.name), {"at": at, **rows})
    return set(changed.scalars())


def _ends(settlements: Sequence[Settlement], at: datetime) -> dict[str, Any]:
    rows = packed(
        {
            "delivery_id": s.attempt.id,
            "number": s.attempt.number,
            "outcome": s.end.outcome.value,
            "status_code": s.end.status_code,
            "outcome_reason": s.end.reason,
            "detail": s.end.detail,
            "provider_message_id": s.end.provider_message_id,
            "retry_at": s.due_at if s.state is State.PENDING else None,
        }
        for s in settlements
    )
    return {"at": at, **rows}


def keep_evidence(
    connection: Connection, facts: Sequence[tuple[Settlement, Fact]], at: datetime
) -> None:
    """Insert rows of evidence; nothing ever changes or removes them."""
    if not facts:
        return
    connection.execute(
        _insert_evidence(connection.dialect.name),
        packed(
            {
                "delivery_id": s.attempt.id,
                "attempt": s.attempt.number,
                "kind": fact.kind.value,
                "verdict": fact.verdict.value,
                "provider_message_id": s.end.provider_message_id,
                "seen_at": at,
                "detail": s.end.reason or s.end.detail,
            }
            for s, fact in facts
        ),
    )


@cache
def _load(dialect: str) -> Any:
    v = unpacked(dialect, {"id": BigInteger, "number": Integer})
    return (
        open_attempts()
        .where(_D.c.id == v.c.id, _A.c.number == v.c.number)
        .order_by(_D.c.id)
        .with_for_update(of=_D)
    )


@cache
def _settle(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "id": BigInteger,
            "owner": Text,
            "token": BigInteger,
            "state": Text,
            "reason": Text,
            "held_from": Text,
            "due_at": Instant,
            "attempts": Integer,
            "crashes": Integer,
            "crashes_alone": Integer,
            "copies": Integer,
            "window_started_at": Instant,
            "window_paused": Float,
            "last_error": Text,
            "finished_at": Instant,
        },
    )
    return (
        _D.update()
        .where(
            _D.c.id == v.c.id,
            _D.c.state == "sending",
            _D.c.lease_owner == v.c.owner,
            _D.c.lease_token == v.c.token,
        )
        .values(
            state=v.c.state,
            reason=v.c.reason,
            held_from=v.c.held_from,
            due_at=v.c.due_at,
            attempts=v.c.attempts,
            crashes=v.c.crashes,
            crashes_alone=v.c.crashes_alone,
            copies=_D.c.copies + v.c.copies,
            window_started_at=v.c.window_started_at,
            window_paused=v.c.window_paused,
            last_error=v.c.last_error,
            finished_at=v.c.finished_at,
            claimed_from=None,
            stop_requested=None,
            lease_owner=None,
            lease_expires_at=None,
            updated_at=bindparam("at", type_=Instant()),
        )
        .returning(_D.c.id)
    )


@cache
def _end_attempts(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "delivery_id": BigInteger,
            "number": Integer,
            "outcome": Text,
            "status_code": Integer,
            "outcome_reason": Text,
            "detail": Text,
            "provider_message_id": Text,
            "retry_at": Instant,
        },
    )
    return (
        _A.update()
        .where(
            _A.c.delivery_id == v.c.delivery_id,
            _A.c.number == v.c.number,
            _A.c.phase != "settled",
        )
        .values(
            phase="settled",
            finished_at=bindparam("at", type_=Instant()),
            outcome=v.c.outcome,
            status_code=v.c.status_code,
            outcome_reason=v.c.outcome_reason,
            detail=v.c.detail,
            provider_message_id=v.c.provider_message_id,
            retry_at=v.c.retry_at,
        )
    )


@cache
def _heard(dialect: str) -> Any:
    v = these_ids(dialect)
    return select(_E.c.delivery_id, _E.c.attempt).where(
        _E.c.delivery_id == v.c.id, _E.c.kind == EvidenceKind.ANSWER.value
    )


@cache
def _insert_evidence(dialect: str) -> Any:
    v = unpacked(
        dialect,
        {
            "delivery_id": BigInteger,
            "attempt": Integer,
            "kind": Text,
            "verdict": Text,
            "provider_message_id": Text,
            "seen_at": Instant,
            "detail": Text,
        },
    )
    return insert(_E).from_select(list(v.c.keys()), select(*v.c), include_defaults=False)
