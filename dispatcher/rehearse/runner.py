"""A rehearsal from its configuration to its report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatcher.config import Account, Config
from dispatcher.config_report import unsafe_pairs
from dispatcher.database_errors import connection_lost, first_line
from dispatcher.rehearse import (
    drills_answers,
    drills_claims,
    drills_crash,
    drills_producer,
    interruption,
    scratch,
)
from dispatcher.rehearse.drill import Drill, Played
from dispatcher.rehearse.report import Line, Report
from dispatcher.rehearse.setup import Setup
from dispatcher.rehearse.stage import Stage, stop_if_asked
from dispatcher.unsafe import Finding
from outbox.store.reads import database_now

DRILLS: tuple[Drill, ...] = (
    *drills_producer.DRILLS,
    *drills_claims.DRILLS,
    *drills_answers.DRILLS,
    *drills_crash.DRILLS,
)
PATIENCE = 60.0
"""Seconds after which a drill that does not end is a miss: a dispatcher that hangs is one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Who is told while it goes on: of each drill when it begins and when it has ended."""

    begins: Callable[[int, int, str], None]
    ends: Callable[[Line], None]


def rehearse(
    config: Config, account: Account, drills: Sequence[Drill], progress: Progress
) -> Report:
    """Play ``drills`` with the times of ``account`` in a scratch database.

    Raises ConfigError and InvalidDatabase before anything is played, DBAPIError when the
    database goes away meanwhile, and KeyboardInterrupt after Ctrl-C or SIGTERM. The scratch is
    gone at the end in any case.
    """
    began = time.monotonic()
    pairs = unsafe_pairs(config, account.name)
    lines = [_configuration(pairs)]
    with interruption.noted() as interrupted, scratch.opened(config) as made:
        interrupted.obeyed()
        setup = Setup.of(config, account, url=made.url, schema=made.schema, folder=made.folder)
        played, passed = interrupted.run(_play(setup, drills, progress))
        lines += played
        kind = made.kind
    return Report(
        database=kind,
        account=account.name,
        provider=account.provider,
        setup=setup,
        lines=tuple(lines),
        warnings=tuple(pair for pair in pairs if not pair.unsafe),
        passed=passed,
        seconds=time.monotonic() - began,
    )


def _configuration(pairs: Sequence[Finding]) -> Line:
    """The configuration itself is tried first: no drill can make good what it forbids."""
    wrong = tuple(f"{pair.key}: {pair.text}" for pair in pairs if pair.unsafe)
    fine = "times that can be safe together"
    return Line("configuration", "the account's times", (fine,), wrong or (fine,), 0.0)


async def _play(
    setup: Setup, drills: Sequence[Drill], progress: Progress
) -> tuple[list[Line], float]:
    lines = []
    wanted = sum(drill.children for drill in drills)
    async with Stage(setup, wanted) as stage:
        for number, drill in enumerate(drills, 1):
            stop_if_asked()
            progress.begins(number, len(drills), drill.tried)
            line = await _line(stage, drill)
            progress.ends(line)
            lines.append(line)
        return lines, stage.passed.total_seconds()


async def _line(stage: Stage, drill: Drill) -> Line:
    began = time.monotonic()
    played = await _played(stage, drill)
    seconds = time.monotonic() - began
    return Line(drill.name, drill.tried, played.expected, played.happened, seconds)


async def _played(stage: Stage, drill: Drill) -> Played:
    """Whatever happens in a drill is its result; only a database that is away ends them all."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await drill.play(stage)
    except TimeoutError:
        problem = f"it had not ended after {PATIENCE:g} s"
    except Exception as error:
        if connection_lost(error):
            raise
        problem = f"{type(error).__name__}: {first_line(error)}"
    await stage.read(database_now)
    return Played(("it ends",), (problem,))
