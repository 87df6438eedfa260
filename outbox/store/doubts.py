"""Deliveries in doubt: their history, read under lock, and what follows without an attempt.

The history decides, not the last attempt: a refused replay says nothing about the attempt
before it. So every attempt that transmitted is read, and every verdict that evidence has
since given to one of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Row, Text, bindparam, select

from outbox import schema
from outbox.columns import Instant, now
from outbox.records import DoubtedAttempt, DoubtRow
from outbox.states import AttemptKind, AttemptOutcome, EvidenceKind, Verdict
from outbox.store.accounts import paused_seconds
from outbox.store.queue import QUARANTINE_AFTER
from outbox.store.reads import recipients_of
from outbox.store.rows import packed, packed_ids, these_ids, unpacked

_D, _A, _E, _Q, _X = (
    schema.deliveries,
    schema.attempts,
    schema.evidence,
    schema.requests,
    schema.accounts,
)

DOUBTFUL = frozenset(
    {
        AttemptOutcome.IN_DOUBT,
        AttemptOutcome.IN_FLIGHT,
        AttemptOutcome.LOST,
        AttemptOutcome.DUPLICATE,
        AttemptOutcome.KEY_MISMATCH,
    }
)
"""How an attempt ended that may have been taken."""


def due(
    connection: Connection, account: str, limit: int, *, at: datetime, alone: bool = False
) -> list[DoubtRow]:
    """Up to ``limit`` deliveries of an account that are in doubt and due to be looked at;
    ``alone``: those in quarantine instead of all others."""
    statement = _ALONE if alone else _TOGETHER
    rows = connection.execute(statement, {"of_account": account, "limit": limit}).all()
    return histories(connection, rows, at) if rows else []


def postpone(connection: Connection, pairs: Iterable[tuple[int, datetime]]) -> None:
    """Look at rows in doubt again at an instant, not before."""
    rows = [{"id": id_, "due_at": until} for id_, until in sorted(pairs)]
    if rows:
        connection.execute(_postpone(connection.dialect.name), packed(rows))


def kept_request(connection: Connection, delivery_id: int, digest: str) -> bytes | None:
    """The kept bytes of a request; None once they are gone."""
    found = connection.execute(
        select(_Q.c.content).where(_Q.c.delivery_id == delivery_id, _Q.c.digest == digest)
    ).scalar()
    return None if found is None else bytes(found)


def forget_requests(connection: Connection, ids: Iterable[int]) -> None:
    """A settled delivery is never replayed: its kept requests go."""
    connection.execute(_forget(connection.dialect.name), packed_ids(sorted(ids)))


def histories(connection: Connection, rows: Sequence[Row[Any]], at: datetime) -> list[DoubtRow]:
    ids = [row.id for row in rows]
    dialect = connection.dialect.name
    people = recipients_of(connection, ids)
    attempts: dict[int, list[Row[Any]]] = defaultdict(list)
    for attempt in connection.execute(_attempts(dialect), packed_ids(ids)):
        attempts[attempt.delivery_id].append(attempt)
    verdicts = connection.execute(_verdicts(dialect), packed_ids(ids)).all()
    kept = {(q.delivery_id, q.digest) for q in connection.execute(_kept(dialect), packed_ids(ids))}
    return [
        _row(
            row,
            people[row.id],
            _unsettled(attempts[row.id], [v for v in verdicts if v.delivery_id == row.id]),
            {digest for id_, digest in kept if id_ == row.id},
            at,
        )
        for row in rows
    ]


def _unsettled(attempts: Sequence[Row[Any]], verdicts: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Attempts that no evidence has settled. A look-up that found nothing, when that
    counts, settles every attempt before it."""
    known = {v.attempt for v in verdicts if v.verdict != Verdict.UNKNOWN}
    refuted = max(
        (
            v.attempt
            for v in verdicts
            if v.kind == EvidenceKind.LOOK_UP and v.verdict == Verdict.NOT_TAKEN
        ),
        default=0,
    )
    return [a for a in attempts if a.number not in known and a.number > refuted]


def _row(
    row: Row[Any], people: Any, attempts: Sequence[Row[Any]], kept: set[str], at: datetime
) -> DoubtRow:
    look_ups = [
        each
        for each in attempts
        if each.kind == AttemptKind.LOOK_UP and each.outcome != AttemptOutcome.NOT_STARTED
    ]
    doubted = [each for each in attempts if each.outcome in DOUBTFUL and each.transmitting_at]
    return DoubtRow(
        id=row.id,
        key=row.delivery_key,
        public_id=row.public_id,
        message=row.message,
        default_from=row.default_from,
        account=row.account,
        recipients=people,
        doubted=tuple(_doubted(each, kept) for each in doubted),
        look_ups=len(look_ups),
        looked_up_at=max((each.started_at for each in look_ups), default=None),
        attempts=row.attempts,
        crashes=row.crashes,
        window_started_at=row.window_started_at,
        window_paused=row.window_paused,
        account_paused=paused_seconds(
            row.paused_seconds or 0.0, row.paused_since, row.paused_until, at
        ),
        when_unsure=row.when_unsure,
        extra_transmission=row.extra_transmission,
        first_transmitted_at=row.first_transmitted_at or row.created_at,
        send_after=row.send_after,
        send_before=row.send_before,
        due_at=row.due_at,
    )


def _doubted(attempt: Row[Any], kept: set[str]) -> DoubtedAttempt:
    ends = [attempt.transmitting_at, attempt.finished_at]
    if attempt.outcome == AttemptOutcome.LOST:
        ends.append(attempt.deadline_at)  # nobody saw its end
    return DoubtedAttempt(
        number=attempt.number,
        identity=attempt.account_identity or "",
        recipients=tuple(json.loads(attempt.recipients)),
        idempotency_key=attempt.idempotency_key,
        request_digest=attempt.request_digest,
        request_kept=attempt.request_digest in kept,
        over_at=max(each for each in ends if each is not None),
        key_taken=attempt.outcome == AttemptOutcome.DUPLICATE,
    )


_QUEUE = (
    select(_D, _X.c.paused_seconds, _X.c.paused_since, _X.c.paused_until)
    .select_from(_D.outerjoin(_X, (_X.c.account == _D.c.account) & (_X.c.scope == "")))
    .where(
        _D.c.state == "in_doubt",
        _D.c.account == bindparam("of_account", type_=Text()),
        _D.c.due_at <= now(),
    )
    .order_by(_D.c.due_at, _D.c.id)
    .limit(bindparam("limit", type_=Integer()))
    .with_for_update(of=_D, skip_locked=True)
)
_TOGETHER = _QUEUE.where(_D.c.crashes < QUARANTINE_AFTER)
_ALONE = _QUEUE.where(_D.c.crashes >= QUARANTINE_AFTER)


@cache
def _attempts(dialect: str) -> Any:
    v = these_ids(dialect)
    return select(_A).where(_A.c.delivery_id == v.c.id).order_by(_A.c.delivery_id, _A.c.number)


@cache
def _verdicts(dialect: str) -> Any:
    v = these_ids(dialect)
    return select(_E.c.delivery_id, _E.c.attempt, _E.c.kind, _E.c.verdict).where(
        _E.c.delivery_id == v.c.id
    )


@cache
def _kept(dialect: str) -> Any:
    v = these_ids(dialect)
    return select(_Q.c.delivery_id, _Q.c.digest).where(_Q.c.delivery_id == v.c.id)


@cache
def _postpone(dialect: str) -> Any:
    v = unpacked(dialect, {"id": BigInteger, "due_at": Instant})
    return _D.update().where(_D.c.id == v.c.id, _D.c.state == "in_doubt").values(due_at=v.c.due_at)


@cache
def _forget(dialect: str) -> Any:
    v = these_ids(dialect)
    return _Q.delete().where(_Q.c.delivery_id.in_(select(v.c.id)))
