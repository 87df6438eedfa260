"""Reconcile: deliveries in doubt are settled by evidence, one step at a time.

It runs inside the rounds' transaction and shares their slots: a row in doubt is claimed
under the same kind of lease as a pending one, so two dispatchers cannot replay it at once,
and a crash leaves it in doubt, where it was.

What a row's next step is, :mod:`dispatcher.doubt` decides from its whole history. Here the
history is put into that function's words, and its answer is written.

*A paused account is not asked.* Its rows stay in doubt; what needs no provider (a hold, a
doubt that evidence has meanwhile refuted) goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from dispatcher import endings
from dispatcher.backoff import RetryPolicy, exhausted
from dispatcher.doubt import (
    Doubt,
    Doubted,
    HoldAs,
    LookUpNow,
    Means,
    ReplayNow,
    SendExtra,
    Step,
    WaitUntil,
    absence_counts,
    next_step,
)
from dispatcher.wishes import Terms
from outbox.records import Claimed, DoubtedAttempt, DoubtRow, Ending, Gate, Retake
from outbox.states import AttemptKind, WhenUnsure
from outbox.store import claim, doubts
from outbox.store.finish import finish

LOOKED_AT = 200
"""Rows in doubt that one round looks at, of one account."""
PAUSED_WAIT = timedelta(seconds=30)
"""At most so long a row waits that is in doubt at a paused account."""


@dataclass(slots=True)
class _Plan:
    retakes: list[Retake] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    waits: list[tuple[int, datetime]] = field(default_factory=list)


def reconcile(
    connection: Connection,
    terms: Terms,
    want: int,
    gates: Mapping[str, Gate],
    *,
    at: datetime,
    shard: int,
    alone: bool = False,
) -> list[Claimed]:
    """Take the next step for rows in doubt that are due; claim at most ``want`` of them.

    ``alone``: look at rows in quarantine instead of all others.
    """
    plan = _Plan()
    for lane in terms.lanes:
        most = gates[lane.account].most
        rows = doubts.due(connection, lane.account, LOOKED_AT, at=at, alone=alone)
        taken = 0
        for row in rows:
            room = want - len(plan.retakes)
            if most is not None:
                room = min(room, most - taken)
            before = len(plan.retakes)
            until = _asked_again(gates[lane.account], at) if most == 0 else None
            _take_step(row, terms, at, plan, room=room, closed_until=until)
            taken += len(plan.retakes) - before
    finish(connection, plan.endings, at=at, shard=shard)
    doubts.postpone(connection, plan.waits)
    return claim.retake(
        connection, plan.retakes, owner=terms.owner, lease=terms.lease, at=at, alone=alone
    )


def doubt_of(row: DoubtRow, policy: RetryPolicy, when_unsure: WhenUnsure, at: datetime) -> Doubt:
    """A row's history in the words of :mod:`dispatcher.doubt`."""
    elapsed = timedelta()
    if row.window_started_at is not None:
        paused = max(0.0, row.account_paused - row.window_paused)
        elapsed = at - row.window_started_at - timedelta(seconds=paused)
    return Doubt(
        attempts=tuple(Doubted(d.number, d.identity, d.over_at, d.key_taken) for d in row.doubted),
        first_transmitted_at=row.first_transmitted_at,
        send_before=row.send_before,
        request_kept=_replayable(row.doubted) is not None,
        budget_left=not exhausted(policy, row.attempts, elapsed),
        when_unsure=WhenUnsure(row.when_unsure) if row.when_unsure else when_unsure,
        extra_used=row.extra_transmission is not None,
        look_ups=row.look_ups,
        looked_up_at=row.looked_up_at,
    )


def _take_step(
    row: DoubtRow,
    terms: Terms,
    at: datetime,
    plan: _Plan,
    *,
    room: int,
    closed_until: datetime | None,
) -> None:
    if not row.doubted:
        plan.endings.append(endings.refuted(row, at))
        return
    means = terms.means[row.account]
    doubt = doubt_of(row, terms.policies[row.account], terms.when_unsure[row.account], at)
    step = next_step(doubt, means, at)
    match step:
        case HoldAs(reason):
            plan.endings.append(endings.held(row, reason))
        case WaitUntil(until):
            plan.waits.append((row.id, until))
        case _ if closed_until is not None:
            plan.waits.append((row.id, closed_until))
        case _ if room > 0:
            plan.retakes.append(_retake(row, step, doubt, means, at))
        case _:
            pass  # due, and no slot free: the next round


def _asked_again(gate: Gate, at: datetime) -> datetime:
    """When a row is looked at again whose account is paused, or has its probe on its way."""
    soon = at + PAUSED_WAIT
    return min(soon, gate.until) if gate.until is not None and gate.until > at else soon


def _retake(row: DoubtRow, step: Step, doubt: Doubt, means: Means, at: datetime) -> Retake:
    match step:
        case ReplayNow():
            first = _replayable(row.doubted)
            assert first is not None  # noqa: S101  (a replay was allowed, so one is kept)
            open_ = tuple(p for p in first.recipients if p in row.in_doubt)
            return Retake(
                row, AttemptKind.REPLAY, open_, means.identity,
                first.idempotency_key, first.request_digest,
            )  # fmt: skip
        case LookUpNow():
            return Retake(
                row, AttemptKind.LOOK_UP, row.in_doubt, means.identity,
                row.doubted[-1].idempotency_key,
                absence_counts=absence_counts(doubt, means, at),
            )  # fmt: skip
        case SendExtra():
            return Retake(
                row, AttemptKind.SEND, row.in_doubt, means.identity,
                row.doubted[-1].idempotency_key, extra=True,
            )  # fmt: skip
        case _:
            raise AssertionError(step)


def _replayable(doubted: Sequence[DoubtedAttempt]) -> DoubtedAttempt | None:
    """The last attempt in doubt whose request is kept."""
    return next((each for each in reversed(doubted) if each.request_kept), None)
