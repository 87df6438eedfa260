"""Which dispatchers are alive, and what is left to do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Integer, Text, bindparam, case, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema
from outbox.records import Backlog, Dispatcher
from outbox.schema import now
from outbox.store.queue import sender_blocked
from outbox.store.reads import database_now
from outbox.store.rows import packed, unpacked

_D, _P, _X, _I = schema.deliveries, schema.dispatchers, schema.accounts, schema.instance


def seen(connection: Connection, dispatcher: Dispatcher, *, slots_used: int) -> None:
    """Say that this dispatcher is alive; makes its row if it is not there (any more)."""
    connection.execute(
        _seen(connection.dialect.name),
        {
            "its_owner": dispatcher.owner,
            "its_host": dispatcher.host,
            "its_machine_boot": dispatcher.machine_boot,
            "its_pid": dispatcher.pid,
            "its_process_start": dispatcher.process_start,
            "its_version": dispatcher.version,
            "its_slots": dispatcher.slots,
            "its_slots_used": slots_used,
        },
    )


def gone(connection: Connection, owner: str) -> None:
    """A dispatcher has stopped in good order."""
    connection.execute(_P.delete().where(_P.c.owner == owner))


def prune(connection: Connection, *, older_than: timedelta) -> None:
    """Forget dispatchers not seen for long. Nothing is ever decided from these rows."""
    connection.execute(_P.delete().where(_P.c.seen_at < database_now(connection) - older_than))


def raise_epoch(connection: Connection) -> int:
    """Count one more start of a dispatcher on this installation."""
    epoch: int = connection.execute(
        _I.update().values(epoch=_I.c.epoch + 1).returning(_I.c.epoch)
    ).scalar_one()
    return epoch


def backlog(
    connection: Connection,
    accounts: Iterable[str],
    *,
    default_account: str = "",
    default_domain: str | None = None,
) -> Backlog:
    """What is left: due for ``accounts`` now, being sent by anybody, waiting, in doubt, held.

    Rows of a paused account, or of a paused sender domain, wait for a time; they are not due.
    """
    parameters = {
        "default_account": default_account,
        "default_domain": default_domain,
        **packed({"account": account} for account in ("", *accounts)),
    }
    row = connection.execute(_backlog(connection.dialect.name), parameters).one()
    return Backlog(*(int(value or 0) for value in row))


@cache
def _seen(dialect: str) -> Any:
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert(_P).values(
        owner=bindparam("its_owner", type_=Text()),
        host=bindparam("its_host", type_=Text()),
        machine_boot=bindparam("its_machine_boot", type_=Text()),
        pid=bindparam("its_pid", type_=Integer()),
        process_start=bindparam("its_process_start", type_=Text()),
        version=bindparam("its_version", type_=Text()),
        slots=bindparam("its_slots", type_=Integer()),
        slots_used=bindparam("its_slots_used", type_=Integer()),
    )
    return statement.on_conflict_do_update(
        index_elements=["owner"],
        set_={"seen_at": now(), "slots_used": statement.excluded.slots_used},
    )


@cache
def _backlog(dialect: str) -> Any:
    v = unpacked(dialect, {"account": Text})
    paused = select(_X.c.account).where(_X.c.scope == "", _X.c.paused_until > now())
    account = case(
        (_D.c.account == "", bindparam("default_account", type_=Text())), else_=_D.c.account
    )
    due = (
        _D.c.state.in_(["pending", "in_doubt"])
        & (_D.c.due_at <= now())
        & or_(_D.c.send_before.is_(None), _D.c.send_before > now())
        & _D.c.account.in_(select(v.c.account))
        & account.not_in(paused)
        & ~sender_blocked(account)
    )

    def count(condition: Any) -> Any:
        return func.sum(case((condition, 1), else_=0))

    return select(
        count(due),
        count(_D.c.state == "sending"),
        count((_D.c.state == "pending") & ~due),
        count(_D.c.state == "in_doubt"),
        count(_D.c.state == "held"),
    ).where(_D.c.state.in_(["pending", "sending", "in_doubt", "held"]))
