"""Accounts for people: what they are, why one does not send, stop, start. Data, no printing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from dispatcher import status as statuses
from dispatcher.config import Config
from dispatcher.operator import outbox_engine, setup_of
from dispatcher.status_records import AccountLine
from outbox import migrations
from outbox.database import reading
from outbox.records_verbs import AccountRow, Audited
from outbox.states import PauseReason
from outbox.store import account_verbs, audit, overview
from outbox.store.account_verbs import UNTIL_RESUMED
from outbox.store.reads import database_now
from providers.contract import Capabilities

__all__ = ["Paused", "Seen", "UnknownAccounts", "audited", "pause", "resume", "seen"]


class UnknownAccounts(ValueError):
    """Accounts that no configuration and no dispatcher knows; one line for people."""


@dataclass(frozen=True, slots=True)
class Paused:
    """A pause that is running. ``scope``: the sender domain, "" for the whole account.
    ``until`` None: until it is resumed."""

    scope: str
    reason: PauseReason
    since: datetime | None
    until: datetime | None
    by: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """One account: what is configured, what the tables say, and what waits for it.

    ``capabilities`` is None where it is not configured here; ``identity`` is the one that a
    dispatcher last published.
    """

    account: str
    provider: str
    configured: bool
    default: bool
    identity: str | None
    capabilities: Capabilities | None
    pauses: tuple[Paused, ...]
    failures: int
    line: AccountLine | None


def seen(config: Config) -> tuple[datetime, tuple[Seen, ...]]:
    """Every account that is configured, or that any dispatcher ever published or paused.

    Raises what :func:`dispatcher.operator.status` raises.
    """
    with outbox_engine(config) as engine, reading(engine) as connection:
        migrations.check(connection)
        whole = overview.overview(connection)
        rows = account_verbs.rows(connection)
    lines = {each.account: each for each in statuses.status(whole, setup_of(config)).accounts}
    by_name: dict[str, list[AccountRow]] = {name: [] for name in config.accounts}
    for row in rows:
        by_name.setdefault(row.account, []).append(row)
    found = (_seen(name, by_name[name], config, lines, whole.at) for name in sorted(by_name))
    return whole.at, tuple(found)


def pause(
    config: Config, names: Iterable[str] | None, *, until: datetime | None, actor: str, note: str
) -> tuple[str, ...]:
    """Stop accounts for every dispatcher; ``names`` None: all that are known. ``until``
    None: until they are resumed. The names.

    Raises :class:`UnknownAccounts`, and what :func:`seen` raises.
    """
    with _writing(config, names) as (connection, chosen, at):
        account_verbs.pause(connection, chosen, until=until, actor=actor, note=note, at=at)
    return chosen


def resume(
    config: Config, names: Iterable[str] | None, *, actor: str, note: str
) -> tuple[str, ...]:
    """End every pause of accounts, and start their failures anew. The names of those that
    were paused or had failed. Raises as :func:`pause`."""
    with _writing(config, names) as (connection, chosen, at):
        ended = account_verbs.resume(connection, chosen, actor=actor, note=note, at=at)
    return tuple(sorted(ended))


def audited(config: Config, *, subject: str | None, limit: int) -> Sequence[Audited]:
    """The audit trail, newest first. Raises what :func:`seen` raises."""
    with outbox_engine(config) as engine, reading(engine) as connection:
        migrations.check(connection)
        return audit.entries(connection, subject=subject, limit=limit)


@contextmanager
def _writing(
    config: Config, names: Iterable[str] | None
) -> Iterator[tuple[Connection, tuple[str, ...], datetime]]:
    with outbox_engine(config) as engine, engine.begin() as connection:
        migrations.check(connection)
        known = {row.account for row in account_verbs.rows(connection)} | set(config.accounts)
        chosen = known if names is None else set(names)
        if strange := sorted(chosen - known):
            raise UnknownAccounts(
                f"there is no account {', '.join(strange)}; known: {', '.join(sorted(known))}"
            )
        yield connection, tuple(sorted(chosen)), database_now(connection)


def _seen(
    name: str,
    rows: Sequence[AccountRow],
    config: Config,
    lines: Mapping[str, AccountLine],
    at: datetime,
) -> Seen:
    configured = config.accounts.get(name)
    whole = next((row for row in rows if not row.scope), None)
    return Seen(
        account=name,
        provider=configured.provider if configured else (whole.provider if whole else ""),
        configured=configured is not None,
        default=name == config.defaults.account,
        identity=whole.identity if whole else None,
        capabilities=configured.capabilities if configured else None,
        pauses=tuple(paused for row in rows if (paused := _paused(row, at)) is not None),
        failures=whole.failures if whole else 0,
        line=lines.get(name),
    )


def _paused(row: AccountRow, at: datetime) -> Paused | None:
    if row.paused_until is None or row.pause_reason is None or row.paused_until <= at:
        return None
    return Paused(
        scope=row.scope,
        reason=row.pause_reason,
        since=row.paused_since,
        until=None if row.paused_until >= UNTIL_RESUMED else row.paused_until,
        by=row.paused_by,
        detail=row.pause_detail,
    )
