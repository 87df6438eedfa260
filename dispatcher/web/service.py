"""The web process put together: a configuration becomes listeners that answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

from sqlalchemy import Engine

from dispatcher import job_service
from dispatcher.config import Config
from dispatcher.config_file import ConfigError, Problem
from dispatcher.web.application import application
from dispatcher.web.bearer import unusable
from dispatcher.web.listening import Listener, bound, serve
from dispatcher.web.tick import tick_routes
from dispatcher.web.ticks import Tick, Ticks
from outbox import migrations
from outbox.database import reading
from outbox.jobs import events, wakers
from outbox.jobs.wakers import Stop, Ticked
from providers.settings import Secret, is_loopback


def run(config: Config, *, log: Callable[[str], None]) -> None:
    """Answer until SIGTERM or SIGINT.

    Raises ConfigError, InvalidDatabase, SchemaTooOld, SchemaTooNew, the driver's error, or
    OSError for an address that cannot be had, before anything is answered.
    """
    token = tick_token(config)
    with ExitStack() as stack:
        ticks = Ticks(_tick(config, stack.enter_context(job_service.engine_of(config)), log))
        address = config.web.public.listen
        socket = stack.enter_context(bound("web.public.listen", address))
        app = application(tick_routes(ticks, token, log), log)
        public = Listener("public", socket, app)
        log(f"{public.name}: listening on {public.url}")
        if not is_loopback(socket.getsockname()[0]):
            log(f"{public.name}: this is no loopback address, and HTTP hides no token: "
                "let only a proxy with TLS reach it")  # fmt: skip
        asyncio.run(serve([public], stopping=ticks.stop, grace=config.jobs.shutdown_grace))
        log("stopped")


def tick_token(config: Config) -> Secret:
    """The token of the tick. Raises ConfigError if there is none, or it cannot be used."""
    token = config.web.public.tick_token
    variable = config.document.variable(("web", "public", "tick_token"))
    if token is None:
        text = 'is missing: write tick_token = "env:POSTROOM_TICK_TOKEN"'
    else:
        try:
            wrong = unusable(token.reveal())
        except ValueError as error:
            text = str(error)
        else:
            if wrong is None:
                return token
            text = f"{token} {wrong}"
    raise ConfigError([Problem("web.public.tick_token", text, variable)])


def _tick(config: Config, engine: Engine, log: Callable[[str], None]) -> Tick:
    """The one place where this room meets what plans and runs."""
    jobs, settings = job_service.catalog(config), job_service.settings(config)
    with reading(engine) as connection:
        migrations.check(connection)

    def tick(budget: timedelta, stop: Stop) -> Ticked:
        return wakers.tick(
            engine,
            jobs,
            settings,
            emit=lambda event: log(events.line(event)),
            stop=stop,
            budget=budget,
        )

    return tick
