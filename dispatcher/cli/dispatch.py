"""``postroom dispatch``: deliver what is due."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.options import WrongUsage, configuration
from dispatcher.cli.output import cleaned, say
from dispatcher.cli.words import plural

if TYPE_CHECKING:
    from dispatcher.loop import Mode
    from outbox.records import Backlog


def dispatch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Make one round, then end.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing is due and nothing is being sent.")
    ] = False,
) -> int:
    """Claim, send and settle deliveries until SIGTERM or SIGINT."""
    if once and drain:
        raise WrongUsage("--once and --drain exclude each other")
    import asyncio

    from dispatcher.config import ConfigError
    from dispatcher.config_report import unreadable
    from dispatcher.operator import outbox_engine
    from dispatcher.service import run

    config = configuration(context)
    if missing := unreadable(config):
        raise ConfigError(missing)
    with outbox_engine(config):
        pass
    mode: Mode = "once" if once else "drain" if drain else "forever"
    left = asyncio.run(run(config, mode, log=_log))
    if mode == "forever":
        return 0
    say(left_over(left))
    return 1 if left.in_doubt or left.held else 0


def left_over(backlog: Backlog) -> str:
    """What a round, or draining, has left, in one line."""
    parts = [
        f"{count:,} {words}"
        for count, words in (
            (backlog.due, "due"),
            (backlog.sending, "being sent"),
            (backlog.waiting, "waiting for a retry, a time or an account"),
            (backlog.in_doubt, "in doubt"),
            (backlog.held, "held"),
        )
        if count
    ]
    if not parts:
        return "nothing is left"
    total = plural(sum(_counts(backlog)), "delivery is left", "deliveries are left")
    return f"{total}: {', '.join(parts)}"


def _counts(backlog: Backlog) -> tuple[int, ...]:
    return backlog.due, backlog.sending, backlog.waiting, backlog.in_doubt, backlog.held


def _log(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S}Z {cleaned(line)}\n")
    sys.stderr.flush()
