"""What an operator can ask, as functions that return frozen data. No printing.

The command line prints what these return; a console or an interface can serve
it. Blind recipients are left out unless they are asked for by name of the
parameter: this is the one place where that is decided, so that no caller can
forget it. A text that a provider sent may quote an address; blind ones are
taken out of it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, Engine

from dispatcher import status as statuses
from dispatcher.blind import without_blind, without_blind_rows
from dispatcher.config import Config
from dispatcher.mail_summary import MailSummary, mail_summary
from dispatcher.status_records import Known, Setup, Status
from dispatcher.story import Around, Told, told
from dispatcher.waiting import waiting_for
from outbox import migrations
from outbox._version import __version__
from outbox.database import open_engine, parse_url, reading
from outbox.errors import SchemaTooOld
from outbox.jobs.overdue import overdue
from outbox.reports import AccountState, Buried, Filter, Group, Overview, Story, Summary
from outbox.states import State, WaitingFor, WhenUnsure
from outbox.store import overview, queries, stories
from outbox.store.reads import database_now


@dataclass(frozen=True, slots=True)
class Listed:
    """One delivery in a list; ``waiting_for`` only for a pending one. ``summary.account``
    is the account it goes by, also where its producer named none."""

    summary: Summary
    waiting_for: WaitingFor | None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of deliveries. ``next_before`` is what to ask with for the next one."""

    at: datetime
    rows: tuple[Listed, ...]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class Shown:
    """The whole story of one delivery. ``blind`` is how many recipients are left out."""

    at: datetime
    account: str
    provider: str
    story: Story
    when_unsure: WhenUnsure
    told: Told
    mail: MailSummary | None
    blind: int


@dataclass(frozen=True, slots=True)
class Several:
    """What was asked for names more than one delivery."""

    rows: tuple[Summary, ...]


@contextmanager
def outbox_engine(config: Config) -> Iterator[Engine]:
    """An engine on the configured database, which must be there.

    Raises ConfigError, InvalidDatabase, and SchemaTooOld when an SQLite file is missing:
    opening it would make an empty one.
    """
    url = config.database_url()
    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise SchemaTooOld(f'there is no database {file} yet: run "postroom migrate"')
    engine = open_engine(url, schema=config.schema)
    try:
        yield engine
    finally:
        engine.dispose()


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for other databases."""
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database is None:
        return None
    return None if parsed.database.startswith("file:") else Path(parsed.database)


def database_name(url: str) -> str:
    """A database's name for people: a file, or ``host/name``; no password."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return parsed.database or ""
    return f"{parsed.host or 'localhost'}/{parsed.database or ''}"


def status(config: Config) -> Status:
    """Does anything need a person? Raises what :func:`outbox_engine` raises, and
    SchemaTooOld or SchemaTooNew."""
    with _reading(config) as connection:
        seen = overview.overview(connection)
        late = overdue(connection, at=seen.at)
    return statuses.status(seen, setup_of(config), late)


def deliveries(
    config: Config, wanted: Filter, *, limit: int = 50, before: int | None = None
) -> Page:
    """One page of deliveries, newest first. Errors as in :func:`status`."""
    with _reading(config) as connection:
        rows = queries.deliveries(connection, wanted, limit=limit + 1, before=before)
        at = database_now(connection)
        paused = _paused(connection, at)
    page = tuple(_listed(row, config, paused, at) for row in rows[:limit])
    return Page(at, page, page[-1].summary.id if len(rows) > limit else None)


def by_account(config: Config, wanted: Filter, account: str | None) -> Filter:
    """``wanted``, of one account only. Rows that name none are the default account's."""
    if account is None:
        return wanted
    unnamed = ("",) if account == config.defaults.account else ()
    return replace(wanted, accounts=(account, *unnamed))


def groups(config: Config, wanted: Filter) -> tuple[Group, ...]:
    """How many for each account, state and reason. Errors as in :func:`status`."""
    with _reading(config) as connection:
        found = queries.groups(connection, wanted)
    together: dict[tuple[str, State, str | None], Group] = {}
    for each in found:
        group = replace(each, account=_account(each.account, config))
        place = (group.account, group.state, group.reason)
        known = together.get(place)
        together[place] = (
            group
            if known is None
            else replace(
                known, rows=known.rows + group.rows, oldest=min(known.oldest, group.oldest)
            )
        )
    return tuple(sorted(together.values(), key=lambda group: -group.rows))


def delivery(
    config: Config, reference: str, *, show_bcc: bool = False
) -> Shown | Several | Buried | None:
    """The story of the delivery that ``reference`` names: its key, id, public id,
    Message-ID, or the provider's id. Errors as in :func:`status`."""
    with _reading(config) as connection:
        ids = queries.matching(connection, reference)
        if not ids:
            return stories.buried(connection, reference)
        found = [story for id_ in ids if (story := stories.story(connection, id_))]
        if len(found) != 1:
            return Several(tuple(without_blind_rows(story.summary) for story in found))
        seen = overview.overview(connection)
    return _shown(config, found[0], seen, show_bcc=show_bcc)


# --------------------------------------------------------------------------- #
# Parts
# --------------------------------------------------------------------------- #


@contextmanager
def _reading(config: Config) -> Iterator[Connection]:
    with outbox_engine(config) as engine, reading(engine) as connection:
        migrations.check(connection)
        yield connection


def setup_of(config: Config) -> Setup:
    return Setup(
        version=__version__,
        schema_needed=migrations.HEAD,
        database=database_name(config.database_url())
        + (f"/{config.schema}" if config.schema else ""),
        default_account=config.defaults.account,
        lease=config.dispatcher.lease,
        accounts={
            name: Known(account.provider, account.capabilities.delivers)
            for name, account in config.accounts.items()
        },
    )


def _account(name: str, config: Config) -> str:
    return name or config.defaults.account


def _paused(connection: Connection, at: datetime) -> dict[str, AccountState]:
    return {
        each.account: each
        for each in overview.accounts(connection)
        if not each.scope and each.paused_until is not None and each.paused_until > at
    }


def _listed(row: Summary, config: Config, paused: dict[str, AccountState], at: datetime) -> Listed:
    account = _account(row.account, config)
    waits = None
    if row.state is State.PENDING:
        waits = waiting_for(
            due=row.due_at <= at, attempted=row.claims > 0, account_paused=account in paused
        )
    return Listed(replace(without_blind_rows(row), account=account), waits)


def _shown(config: Config, story: Story, seen: Overview, *, show_bcc: bool) -> Shown:
    account = _account(story.summary.account, config)
    configured = config.accounts.get(account)
    setup = setup_of(config)
    alive = statuses.status(seen, setup).dispatchers
    paused = next(
        (
            each
            for each in seen.accounts
            if each.account == account
            and not each.scope
            and each.paused_until is not None
            and each.paused_until > seen.at
        ),
        None,
    )
    around = Around(
        at=seen.at,
        account=account,
        provider=configured.provider if configured else "",
        configured=configured is not None,
        paused=paused,
        dispatchers=len(alive),
        max_attempts=configured.retry.attempts if configured else 0,
    )
    mail = mail_summary(story, config.defaults.sender)
    blind = 0
    if not show_bcc:
        story, mail, blind = without_blind(story, mail)
    unsure = configured.when_unsure if configured else config.defaults.when_unsure
    return Shown(
        at=seen.at,
        account=account,
        provider=around.provider,
        story=story,
        when_unsure=story.when_unsure or unsure,
        told=told(story, around),
        mail=mail,
        blind=blind,
    )
