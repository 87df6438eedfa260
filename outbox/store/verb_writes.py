"""What an operator's verb writes: rows under a guard, evidence, second sendings, audit.

The guard is that of every other write: state, owner and token, as they were when the verb
was decided; and that the delivery was not sent again. A row that has changed is left alone,
and so is everything that would have gone with it. All of a batch is one transaction: nobody
ever finds a first delivery closed without its second, or a deed without its audit row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Text, bindparam, case, func, insert, select

from outbox import schema
from outbox.columns import Instant
from outbox.records_verbs import Applied, Change, Made
from outbox.states import FINAL, EvidenceKind, RecipientResult, State
from outbox.store import audit, doubts, second_sendings
from outbox.store.finish import tally
from outbox.store.rows import packed, unpacked
from outbox.texts import cleaned

_D, _R, _E = schema.deliveries, schema.recipients, schema.evidence


def apply(
    connection: Connection,
    changes: Sequence[Change],
    *,
    action: str,
    actor: str,
    note: str,
    at: datetime,
) -> Applied:
    """Write what was decided about rows that this transaction has locked.

    ``action`` is the verb, ``note`` the reason that was given. Only the rows whose guard
    holds are changed, and only those are in what is returned.
    """
    ordered = sorted(changes, key=lambda each: each.id)
    asked = [each for each in ordered if each.stop is not None]
    moved = [each for each in ordered if each.stop is None]
    ids = _guarded(connection, _ask(connection.dialect.name), asked, at)
    ids |= _guarded(connection, _move(connection.dialect.name), moved, at)
    done = [each for each in ordered if each.id in ids]
    _update_recipients(connection, done, at)
    _keep_evidence(connection, done, f"{actor}: {note}", at)
    made = second_sendings.make(connection, done, at=at)
    tally(connection, ((c.account, c.state) for c in done if _ends(c)), shard=0)
    over = [each.id for each in done if each.state in FINAL and each.before not in FINAL]
    if over:
        doubts.forget_requests(connection, over)
    audit.write(connection, _entries(action, done, made), actor=actor, note=note, at=at)
    return Applied(frozenset(ids), made)


def _ends(change: Change) -> bool:
    return change.state in FINAL and change.before is not change.state


def _guarded(
    connection: Connection, statement: Any, changes: Sequence[Change], at: datetime
) -> set[int]:
    if not changes:
        return set()
    rows = packed(_row(each, at) for each in changes)
    return set(connection.execute(statement, {"at": at, **rows}).scalars())


def _row(change: Change, at: datetime) -> dict[str, Any]:
    return {
        "id": change.id,
        "before": change.before.value,
        "owner": change.owner,
        "token": change.token,
        "account": change.account,
        "state": change.state.value,
        "reason": change.reason,
        "held_from": change.held_from,
        "due_at": change.due_at,
        "send_before": change.send_before,
        "refreshed": int(change.refreshed),
        "taken": int(change.state is State.ACCEPTED and change.before is not State.ACCEPTED),
        "finished_at": at if change.state in FINAL else None,
        "stop": None if change.stop is None else change.stop.value,
    }


def _update_recipients(connection: Connection, changes: Iterable[Change], at: datetime) -> None:
    rows = [
        {"delivery_id": change.id, "position": update.position, "result": update.result.value}
        for change in changes
        for update in change.recipients
    ]
    if rows:
        statement = _recipients(connection.dialect.name)
        connection.execute(statement, {"at": at, **packed(rows)})


def _keep_evidence(
    connection: Connection, changes: Iterable[Change], detail: str, at: datetime
) -> None:
    """A person's word, with the person's name: whoever reads the row sees who took the risk."""
    rows = [
        {"delivery_id": c.id, "attempt": fact.attempt, "verdict": fact.verdict.value}
        for c in changes
        for fact in c.facts
    ]
    if rows:
        words = {"at": at, "kind": EvidenceKind.OPERATOR.value, "detail": cleaned(detail, 2000)}
        connection.execute(_evidence(connection.dialect.name), {**words, **packed(rows)})


def _entries(action: str, changes: Iterable[Change], made: Iterable[Made]) -> list[audit.Entry]:
    """One line for each delivery: who looks for its key finds what was done to it."""
    second = {each.of: each.key for each in made}
    found = []
    for each in changes:
        after: dict[str, Any] = {"state": each.state.value}
        if each.stop is not None:
            after["stop_requested"] = each.stop.value
        if action == "move":
            after["account"] = each.account
        if each.send_before is not None:
            after["send_before"] = each.send_before.isoformat()
        if each.id in second:
            after["sent_again_as"] = second[each.id]
        found.append(audit.Entry(action, each.key, {"state": each.before.value}, after))
    return found


@cache
def _changes(dialect: str) -> Any:
    return unpacked(
        dialect,
        {
            "id": BigInteger,
            "before": Text,
            "owner": Text,
            "token": BigInteger,
            "account": Text,
            "state": Text,
            "reason": Text,
            "held_from": Text,
            "due_at": Instant,
            "send_before": Instant,
            "refreshed": Integer,
            "taken": Integer,
            "finished_at": Instant,
            "stop": Text,
        },
    )


def _guard(v: Any) -> list[Any]:
    return [
        _D.c.id == v.c.id,
        _D.c.state == v.c.before,
        _D.c.lease_token == v.c.token,
        func.coalesce(_D.c.lease_owner, "") == func.coalesce(v.c.owner, ""),
        _D.c.superseded_by.is_(None),
    ]


@cache
def _move(dialect: str) -> Any:
    v = _changes(dialect)
    same, anew = _D.c.state == v.c.state, v.c.refreshed == 1
    return (
        _D.update()
        .where(*_guard(v))
        .values(
            account=v.c.account,
            state=v.c.state,
            reason=v.c.reason,
            held_from=v.c.held_from,
            due_at=func.coalesce(v.c.due_at, _D.c.due_at),
            send_before=func.coalesce(v.c.send_before, _D.c.send_before),
            attempts=case((anew, 0), else_=_D.c.attempts),
            window_started_at=case((anew, None), else_=_D.c.window_started_at),
            window_paused=case((anew, 0.0), else_=_D.c.window_paused),
            crashes=case((anew, 0), else_=_D.c.crashes),
            crashes_alone=case((anew, 0), else_=_D.c.crashes_alone),
            copies=_D.c.copies + v.c.taken,
            finished_at=case((same, _D.c.finished_at), else_=v.c.finished_at),
            updated_at=case((same, _D.c.updated_at), else_=bindparam("at", type_=Instant())),
        )
        .returning(_D.c.id)
    )


@cache
def _ask(dialect: str) -> Any:
    v = _changes(dialect)
    return (
        _D.update()
        .where(*_guard(v))
        .values(stop_requested=v.c.stop, updated_at=bindparam("at", type_=Instant()))
        .returning(_D.c.id)
    )


@cache
def _recipients(dialect: str) -> Any:
    """What an address was told last stays; only proof of acceptance makes it out of date."""
    v = unpacked(dialect, {"delivery_id": BigInteger, "position": Integer, "result": Text})
    taken = v.c.result == RecipientResult.ACCEPTED.value
    return (
        _R.update()
        .where(_R.c.delivery_id == v.c.delivery_id, _R.c.position == v.c.position)
        .values(
            result=v.c.result,
            code=case((taken, None), else_=_R.c.code),
            reason=case((taken, None), else_=_R.c.reason),
            updated_at=bindparam("at", type_=Instant()),
        )
    )


@cache
def _evidence(dialect: str) -> Any:
    v = unpacked(dialect, {"delivery_id": BigInteger, "attempt": Integer, "verdict": Text})
    values = select(
        v.c.delivery_id,
        v.c.attempt,
        bindparam("kind", type_=Text()),
        v.c.verdict,
        bindparam("at", type_=Instant()),
        bindparam("detail", type_=Text()),
    )
    names = ["delivery_id", "attempt", "kind", "verdict", "seen_at", "detail"]
    return insert(_E).from_select(names, values, include_defaults=False)
