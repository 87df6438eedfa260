"""Gates: how much of an account's work may be claimed, for all dispatchers together.

An account is *open*, *closed* (paused), or *half open*: its pause has run out, but nothing
has shown since that it works again. A wait that the provider asked for (``throttled``) just
ends. After a block or an open breaker exactly one delivery goes first, whoever sends it: the
row of the account is locked while the probe is chosen, and remembers until when one is on
its way. Its answer opens the account, or pauses it again, for longer.

The breaker counts what says "I cannot tell, or I cannot reach it" (``Unavailable``,
``InDoubt``, ``InFlight``) alike: a provider that answers 503 to everything would otherwise
turn the whole backlog into doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Integer, Text, bindparam, or_, select

from outbox import schema
from outbox.columns import Instant, now
from outbox.records import AccountReport, Gate, Pause
from outbox.states import PauseReason
from outbox.store import accounts
from outbox.store.rows import packed, unpacked

_X = schema.accounts

PROBED = (
    PauseReason.CREDENTIALS,
    PauseReason.PERMISSION,
    PauseReason.SUSPENDED,
    PauseReason.QUOTA,
    PauseReason.SENDER_DOMAIN,
    PauseReason.BREAKER,
)
"""Pauses that end with one message, not with all of them."""

BREAKER_AFTER = 5
"""Troubled answers in a row, from anybody, that open the breaker."""
BREAKER_PAUSE = timedelta(seconds=5)
"""The first pause of an open breaker; it doubles up to :data:`BREAKER_PAUSE_MOST`."""
BREAKER_PAUSE_MOST = timedelta(minutes=1)


def gates(connection: Connection, names: Sequence[str], *, at: datetime) -> dict[str, Gate]:
    """The gate of each account. A half-open account's row stays locked until the commit."""
    rows = connection.execute(
        _standing(connection.dialect.name), packed({"account": name} for name in names)
    ).all()
    half_open = [row.account for row in rows if _half_open(row, at)]
    ours = _may_probe(connection, half_open) if half_open else set()
    found = {name: Gate(name, most=None, unclean=False) for name in names}
    for row in rows:
        most: int | None = None
        if row.paused_until is not None and row.paused_until > at:
            most = 0
        elif row.account in half_open:
            most = 1 if row.account in ours else 0
        unclean = bool(row.failures or row.consecutive or row.pause_reason)
        found[row.account] = Gate(row.account, most, unclean, row.paused_until)
    return found


def probing(connection: Connection, names: Iterable[str], *, until: datetime) -> None:
    """One delivery of each of these half-open accounts is on its way."""
    wanted = sorted(names)
    if wanted:
        rows = packed({"account": name} for name in wanted)
        connection.execute(_probing(connection.dialect.name), {"until": until, **rows})


def judge(
    connection: Connection,
    reports: Sequence[AccountReport],
    gates: Mapping[str, Gate],
    *,
    at: datetime,
    by: str,
) -> list[Pause]:
    """What a round's answers say of their accounts; returns the breakers it has opened."""
    opened = []
    for report in sorted(reports, key=lambda each: each.account):
        if report.worked:
            if gates.get(report.account, Gate(report.account, None, unclean=True)).unclean:
                _worked(connection, report.account, at)
        elif report.troubled:
            pause = _troubled(connection, report, at)
            if pause is not None:
                opened.append(pause)
    accounts.pause(connection, opened, at=at, by=by)
    return opened


def _half_open(row: Any, at: datetime) -> bool:
    ended = row.paused_until is not None and row.paused_until <= at
    return ended and row.pause_reason in PROBED


def _may_probe(connection: Connection, names: Iterable[str]) -> set[str]:
    rows = packed({"account": name} for name in names)
    return set(connection.execute(_lock(connection.dialect.name), rows).scalars())


def _worked(connection: Connection, account: str, at: datetime) -> None:
    """It works: counters start anew, and a pause that had run out is over for good."""
    where = (_X.c.account == account) & (_X.c.scope == "")
    row = connection.execute(select(_X).where(where).with_for_update()).one_or_none()
    if row is None:
        return
    values: dict[str, Any] = {"failures": 0, "consecutive": 0, "probe_until": None}
    if row.paused_until is not None and row.paused_until <= at:
        past = accounts.paused_seconds(row.paused_seconds, row.paused_since, row.paused_until, at)
        values |= {
            "paused_seconds": past,
            "paused_since": None,
            "paused_until": None,
            "pause_reason": None,
            "pause_detail": None,
            "paused_by": None,
        }
    connection.execute(_X.update().where(where).values(values))


def _troubled(connection: Connection, report: AccountReport, at: datetime) -> Pause | None:
    row = connection.execute(
        _TROUBLED, {"of_account": report.account, "more": report.troubled}
    ).one_or_none()
    if row is None:
        return None
    probe_failed = _half_open(row, at)
    if row.paused_until is not None and row.paused_until > at:
        return None
    if row.consecutive < BREAKER_AFTER and not probe_failed:
        return None
    wait = min(BREAKER_PAUSE * 2 ** min(row.failures, 10), BREAKER_PAUSE_MOST)
    return Pause(report.account, "", PauseReason.BREAKER, at + wait, report.words)


_TROUBLED = (
    _X.update()
    .where(_X.c.account == bindparam("of_account", type_=Text()), _X.c.scope == "")
    .values(consecutive=_X.c.consecutive + bindparam("more", type_=Integer()))
    .returning(_X.c.consecutive, _X.c.failures, _X.c.paused_until, _X.c.pause_reason)
)


@cache
def _standing(dialect: str) -> Any:
    v = unpacked(dialect, {"account": Text})
    return select(
        _X.c.account,
        _X.c.paused_until,
        _X.c.pause_reason,
        _X.c.failures,
        _X.c.consecutive,
    ).where(_X.c.account == v.c.account, _X.c.scope == "")


@cache
def _lock(dialect: str) -> Any:
    v = unpacked(dialect, {"account": Text})
    return (
        select(_X.c.account)
        .where(
            _X.c.account.in_(select(v.c.account)),
            _X.c.scope == "",
            or_(_X.c.probe_until.is_(None), _X.c.probe_until <= now()),
        )
        .with_for_update(skip_locked=True)
    )


@cache
def _probing(dialect: str) -> Any:
    v = unpacked(dialect, {"account": Text})
    return (
        _X.update()
        .where(_X.c.account.in_(select(v.c.account)), _X.c.scope == "")
        .values(probe_until=bindparam("until", type_=Instant()))
    )
