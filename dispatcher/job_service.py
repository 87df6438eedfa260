"""Jobs put together: the configuration becomes a database, a catalog, and a process that works."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine

from dispatcher.config import Config
from dispatcher.config_file import ConfigError, Problem
from dispatcher.operator import sqlite_file
from outbox.database import open_engine
from outbox.errors import SchemaTooOld
from outbox.jobs import wakers
from outbox.jobs.catalog import Catalog, load_catalog
from outbox.jobs.errors import InvalidJob
from outbox.jobs.events import Listener
from outbox.jobs.wakers import Settings, Stop, Ticked

CONNECTIONS = 4
"""That an attempt may need at once: its own transaction, its beat, its end, and one to spare."""


def catalog(config: Config) -> Catalog:
    """The jobs of the configured modules, which are looked for beside the configuration file.

    Raises ConfigError if none is configured, or one cannot be imported.
    """
    variable = config.document.variable(("jobs", "modules"))
    if not config.jobs.modules:
        text = 'is empty: name the modules that declare jobs, like modules = ["myapp.jobs"]'
        raise ConfigError([Problem("jobs.modules", text, variable)])
    try:
        return load_catalog(config.jobs.modules, config.document.folder)
    except InvalidJob as error:
        raise ConfigError([Problem("jobs.modules", str(error), variable)]) from error


@contextmanager
def engine_of(config: Config) -> Iterator[Engine]:
    """An engine for as many attempts as may be under way; the database must be there.

    Raises ConfigError, InvalidDatabase, and SchemaTooOld when an SQLite file is missing.
    """
    url = config.database_url()
    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise SchemaTooOld(f'there is no database {file} yet: run "postroom migrate"')
    size = CONNECTIONS * config.jobs.concurrency
    engine = open_engine(url, schema=config.schema, connections=size)
    if engine.dialect.name == "postgresql":
        # What is read after a lock was waited for has to be what is there then.
        engine = engine.execution_options(isolation_level="READ COMMITTED")
    try:
        yield engine
    finally:
        engine.dispose()


def settings(config: Config) -> Settings:
    """How a process of this configuration works on jobs."""
    return Settings(
        concurrency=config.jobs.concurrency,
        poll_interval=config.jobs.poll_interval,
        shutdown_grace=config.jobs.shutdown_grace,
        alerts_to=config.jobs.alerts_to,
    )


def tick(config: Config, *, budget: timedelta | None, emit: Listener) -> Ticked:
    """Plan what is due and run it, until it is done or a signal says stop.

    budget: how long runs may be started; nothing: plan only; None: until all is done.

    Raises ConfigError, InvalidDatabase, SchemaTooOld, SchemaTooNew, or the driver's error.
    """
    jobs = catalog(config)
    with engine_of(config) as engine, _stopped_by_signals() as stop:
        return wakers.tick(engine, jobs, settings(config), emit=emit, stop=stop, budget=budget)


def work(config: Config, *, emit: Listener) -> None:
    """Plan and run what is due until SIGTERM or SIGINT. Raises as :func:`tick`."""
    jobs = catalog(config)
    with engine_of(config) as engine, _stopped_by_signals() as stop:
        wakers.work(engine, jobs, settings(config), emit=emit, stop=stop)


@contextmanager
def _stopped_by_signals() -> Iterator[Stop]:
    stop = Stop()

    def asked(number: int, frame: Any) -> None:
        del number, frame
        stop.set()

    before = {each: signal.signal(each, asked) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
