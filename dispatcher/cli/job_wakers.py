"""``postroom jobs tick | work``: plan what is due, and run it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.output import cleaned, plain, say, say_json
from dispatcher.cli.words import plural

if TYPE_CHECKING:
    from datetime import timedelta

    from outbox.jobs.events import Event
    from outbox.jobs.wakers import Ticked


def tick(
    context: typer.Context,
    *,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Plan what is due, and run nothing.")
    ] = False,
    within: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Start no run after this time: 50s; else until all is done."),
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Plan what is due and run it, then end. For cron, timers and the like.

    Any number of ticks at once do no more than one. Exit code 1 if a run failed for good, or
    something has to be put right.
    """
    from dispatcher import job_service

    if plan_only and within is not None:
        raise WrongUsage("--plan-only runs nothing, so it takes no --within")
    budget = _budget(within, plan_only=plan_only)
    done = job_service.tick(configuration(context), budget=budget, emit=_what_matters)
    if as_json:
        say_json({"needs_a_person": done.needs_a_person, **plain(done)})
    else:
        say(_summary(done))
    return 1 if done.needs_a_person else 0


def work(
    context: typer.Context,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as one line of JSON.")
    ] = False,
) -> int:
    """Plan and run what is due until SIGTERM or SIGINT.

    Then no run is started; those under way may finish within [jobs] shutdown_grace, and what
    is left is given back: its attempt does not count.
    """
    from dispatcher import job_service

    job_service.work(configuration(context), emit=_json_lines if as_json else _lines)
    return 0


def _budget(within: str | None, *, plan_only: bool) -> timedelta | None:
    from datetime import timedelta

    from providers.settings import parse_duration

    if plan_only:
        return timedelta()
    if within is None:
        return None
    try:
        return parse_duration(within)
    except ValueError as error:
        raise WrongUsage(f"--within: {error}") from None


def _what_matters(event: Event) -> None:
    """What somebody whom cron writes to wants to read: nothing, where all is well."""
    from outbox.jobs.events import Planned, RunEnded, RunStarted, SubjectsChanged
    from outbox.states_jobs import RunState

    well = isinstance(event, RunEnded) and event.state is RunState.SUCCEEDED
    if not well and not isinstance(event, Planned | RunStarted | SubjectsChanged):
        _lines(event)


def _lines(event: Event) -> None:
    from outbox.jobs.events import line

    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S}Z {cleaned(line(event))}\n")
    sys.stderr.flush()


def _json_lines(event: Event) -> None:
    fields = {"event": type(event).__name__, **plain(event)}
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _summary(done: Ticked) -> str:
    parts = [
        f"{count:,} {words}"
        for count, words in (
            (done.succeeded, "complete"),
            (done.retry, "to be tried again"),
            (done.failed, "failed for good"),
            (done.given_back, "given back"),
        )
        if count
    ]
    ran = ", ".join(parts) or "none run"
    left = f", {plural(done.skipped, 'period')} left out" if done.skipped else ""
    trouble = f"; {plural(done.troubles, 'thing')} to put right" if done.troubles else ""
    return f"{plural(done.planned, 'run')} planned{left}; {ran}{trouble}"
