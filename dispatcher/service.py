"""The composition root: a configuration becomes a running dispatcher."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.config import Account, Config
from dispatcher.doubt import Means
from dispatcher.events import Listener, Started
from dispatcher.identity import myself
from dispatcher.journal import log_lines
from dispatcher.loop import Loop, Mode, Pace, backlog
from dispatcher.rounds import Rounds
from dispatcher.send import Sender
from dispatcher.sweep import Sweep
from dispatcher.transactions import writing
from dispatcher.wishes import Terms
from outbox import migrations
from outbox.database import open_async_engine
from outbox.errors import InvalidDatabase
from outbox.records import Backlog, Dispatcher, Lane
from outbox.store import accounts, dispatchers, reads
from providers import registry
from providers.contract import Provider

STOPPING = (signal.SIGTERM, signal.SIGINT)


async def run(config: Config, mode: Mode, *, log: Callable[[str], None]) -> Backlog:
    """Dispatch in ``mode`` until it is over or a signal (SIGTERM, SIGINT) says stop.

    Returns what is left. Raises ConfigError, InvalidDatabase, SchemaTooOld or
    SchemaTooNew before anything is claimed.
    """
    providers = {name: _open(account) for name, account in config.accounts.items()}
    try:
        return await dispatch(config, mode, providers, log_lines(log))
    finally:
        for _, provider in providers.values():
            await provider.aclose()


async def dispatch(
    config: Config,
    mode: Mode,
    providers: Mapping[str, tuple[str, Provider]],
    emit: Listener,
    *,
    signals: Sequence[signal.Signals] = STOPPING,
) -> Backlog:
    """:func:`run` with accounts that are open already: name -> (kind of provider, provider).

    ``signals`` are those that say stop; a host that handles its own passes none.
    """
    engine = open_async_engine(config.database_url(), schema=config.schema)
    try:
        return await _dispatch(config, mode, engine, providers, emit, signals=signals)
    finally:
        await engine.dispose()


async def _dispatch(
    config: Config,
    mode: Mode,
    engine: AsyncEngine,
    providers: Mapping[str, tuple[str, Provider]],
    emit: Listener,
    *,
    signals: Sequence[signal.Signals],
) -> Backlog:
    me = myself(config.dispatcher.concurrency)
    names = tuple(providers)
    terms = await _prepare(engine, config, providers, me)
    rounds = Rounds(engine, terms, emit)
    sweep = Sweep(engine, me, names, emit, rounds.holds)
    pace = Pace(
        config.dispatcher.concurrency,
        config.dispatcher.poll_interval,
        config.dispatcher.shutdown_grace,
    )
    loop = Loop(engine, terms, rounds, sweep, pace=pace, emit=emit)
    sender = Sender(engine, rounds, providers, terms.means, lambda: loop.stopping)
    running = asyncio.get_running_loop()
    for number in signals:
        running.add_signal_handler(number, loop.stop)
    emit(Started(me.owner, names, me.slots))
    await loop.run(sender, mode)
    await sweep.gone()
    return await backlog(engine, terms)


async def _prepare(
    engine: AsyncEngine,
    config: Config,
    providers: Mapping[str, tuple[str, Provider]],
    me: Dispatcher,
) -> Terms:
    """Check the database, make this process and its accounts known, and read the namespace."""

    def work(connection: Connection) -> Terms:
        migrations.check(connection)
        _check_durability(connection)
        dispatchers.raise_epoch(connection)
        accounts.publish(
            connection,
            (
                (name, kind, provider.identity, _limits(provider))
                for name, (kind, provider) in providers.items()
            ),
        )
        return Terms(
            owner=me.owner,
            lease=config.dispatcher.lease,
            default_from=config.defaults.sender,
            namespace=reads.namespace(connection),
            lanes=tuple(
                Lane(name, provider.identity, 0, takes_unnamed=name == config.defaults.account)
                for name, (_, provider) in providers.items()
            ),
            policies={name: account.retry for name, account in config.accounts.items()},
            means={
                name: _means(config.accounts[name], provider)
                for name, (_, provider) in providers.items()
            },
            when_unsure={name: a.when_unsure for name, a in config.accounts.items()},
        )

    return await writing(engine, work)


def _open(account: Account) -> tuple[str, Provider]:
    return account.provider, registry.open_account(account.name, account.provider, account.settings)


def _means(account: Account, provider: Provider) -> Means:
    return Means(
        identity=provider.identity,
        capabilities=provider.capabilities,
        longest_send=timedelta(seconds=provider.longest_send),
        replay_margin=account.replay_margin,
        evidence_wait=account.evidence_wait,
        assume_absent_after=account.assume_absent_after,
    )


def _limits(provider: Provider) -> dict[str, int]:
    """What the account cannot carry, as data that a producer can be checked against."""
    capabilities = provider.capabilities
    known = {
        "max_message_bytes": capabilities.max_message_bytes,
        "max_recipients": capabilities.max_recipients,
    }
    return {name: value for name, value in known.items() if value is not None}


def _check_durability(connection: Connection) -> None:
    """A mark is only as good as its commit."""
    if connection.dialect.name == "postgresql":
        setting = connection.execute(text("SHOW synchronous_commit")).scalar_one()
        if setting == "off":
            raise InvalidDatabase(
                "this server keeps synchronous_commit off for our sessions, so a commit may vanish "
                "and a message leave twice: ALTER ROLE … SET synchronous_commit = on"
            )
        return
    level = connection.execute(text("PRAGMA synchronous")).scalar_one()
    if int(level) < 2:  # 2 is FULL, 3 is EXTRA: sqlite.org/pragma.html#pragma_synchronous
        raise InvalidDatabase("SQLite's synchronous setting is below FULL on our connection")
