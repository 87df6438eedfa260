"""The queue: which rows are due, in which order, and which are left out of it.

A row that has brought down several dispatchers is claimed alone; a row whose sender's domain
is blocked waits for that domain, and nobody else waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Integer,
    Text,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from outbox import schema
from outbox.columns import now
from outbox.message import Address
from outbox.records import Lane
from outbox.store.rows import packed, unpacked

_D, _X = schema.deliveries, schema.accounts

QUARANTINE_AFTER = 3
"""Crashes after which a row is claimed alone: it hurts nobody else, and nobody hurts it."""


def sender_blocked(account: Any) -> Any:
    """Whether a row's sender domain is paused at ``account``, or has a probe on its way.
    Rows that name no sender have the configuration's (parameter ``default_domain``)."""
    domain = func.coalesce(_D.c.sender_domain, bindparam("default_domain", type_=Text()))
    return exists().where(
        _X.c.account == account,
        _X.c.scope != "",
        _X.c.scope == domain,
        or_(_X.c.paused_until > now(), _X.c.probe_until > now()),
    )


def due(
    connection: Connection, lane: Lane, *, default_domain: str | None, alone: bool
) -> Iterator[Any]:
    """Due rows of one account, locked; ``alone``: those in quarantine instead of all others."""
    statement = _ALONE if alone else _TOGETHER
    left = lane.limit
    for account in (lane.account, "") if lane.takes_unnamed else (lane.account,):
        if left <= 0:
            return
        rows = connection.execute(
            statement,
            {
                "account": account,
                "lane": lane.account,
                "default_domain": default_domain,
                "limit": left,
            },
        ).all()
        left -= len(rows)
        yield from rows


def domain_of(mailbox: str | None) -> str | None:
    """The domain of a mailbox, for comparing with a blocked one."""
    if mailbox is None:
        return None
    return Address.parse(mailbox).domain.lower()


def quarantined(connection: Connection, names: Iterable[str]) -> bool:
    """Whether a row in quarantine of one of these accounts is due."""
    parameters = packed({"account": name} for name in ("", *names))
    return bool(connection.execute(_quarantined(connection.dialect.name), parameters).scalar())


def _due(*, quarantined: bool) -> Any:
    """Due rows of one account whose sender's domain is not blocked there."""
    blocked = sender_blocked(bindparam("lane", type_=Text()))
    crashes = _D.c.crashes
    return (
        select(
            _D.c.id,
            _D.c.delivery_key,
            _D.c.public_id,
            _D.c.message,
            _D.c.default_from,
            _D.c.fingerprint,
            _D.c.sender_domain,
            _D.c.send_after,
            _D.c.due_at,
            _D.c.send_before,
        )
        .where(
            _D.c.account == bindparam("account", type_=Text()),
            _D.c.state == "pending",
            _D.c.due_at <= now(),
            _D.c.send_before.is_(None) | (_D.c.send_before > now()),
            crashes >= QUARANTINE_AFTER if quarantined else crashes < QUARANTINE_AFTER,
            ~blocked,
        )
        .order_by(_D.c.priority.desc(), _D.c.due_at, _D.c.id)
        .limit(bindparam("limit", type_=Integer()))
        .with_for_update(of=_D, skip_locked=True)
    )


_TOGETHER, _ALONE = _due(quarantined=False), _due(quarantined=True)


@cache
def _quarantined(dialect: str) -> Any:
    v = unpacked(dialect, {"account": Text})
    return select(
        exists().where(
            _D.c.account == v.c.account,
            _D.c.crashes >= literal_column(str(QUARANTINE_AFTER)),
            _D.c.state.in_(["pending", "in_doubt"]),
            _D.c.due_at <= now(),
        )
    )
