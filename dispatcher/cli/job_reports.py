"""``postroom jobs list | show | explain | overdue``: what runs, and why it did or did not."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dispatcher.cli.job_errors import told_clearly
from dispatcher.cli.options import Json, configuration
from dispatcher.cli.output import Column, say, say_json, say_note, say_pairs, say_table
from dispatcher.cli.words import instant, plural, span

if TYPE_CHECKING:
    from datetime import datetime

    from dispatcher.job_reports import Explained, JobLine, ShownJob
    from outbox.jobs.overdue import Overdue
    from outbox.records_job_reports import RunRow
    from outbox.records_schedules import ScheduleRow

_Job: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="A job by name.")]


def list_(context: typer.Context, *, as_json: Json = False) -> int:
    """List the jobs: their rules, their subjects, what is due next, and how their runs stand."""
    from dispatcher import job_reports

    at, found = job_reports.listed(configuration(context))
    if as_json:
        say_json({"at": at, "jobs": found})
        return 0
    if not found:
        say_note(
            'there are no jobs: name their modules in [jobs] modules, then "postroom jobs tick"'
        )
        return 0
    columns = [
        Column("JOB", folds=True),
        Column("RULE", folds=True, spare=True),
        Column("subjects", right=True),
        Column("NEXT DUE"),
        Column("planned", right=True),
        Column("running", right=True),
        Column("failed", right=True),
        Column("LAST SUCCESS"),
        Column("STATE", folds=True),
    ]
    say_table(columns, [_row(each) for each in found])
    return 0  # fmt: skip


def show(context: typer.Context, job: _Job, *, as_json: Json = False) -> int:
    """Show one job: its definition as it was seen last, its subjects, and its last runs."""
    from dispatcher import job_reports

    with told_clearly():
        found = job_reports.shown(configuration(context), job)
    if as_json:
        say_json(found)
    else:
        _print(found)
    return 0


def explain(
    context: typer.Context,
    job: _Job,
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="What the run is about; all for a job without.")
    ],
    period: Annotated[
        str, typer.Argument(metavar="PERIOD", help="The label of the period: 2026-W48.")
    ],
    *,
    as_json: Json = False,
) -> int:
    """Say why the run of a period did, or did not, happen: a sentence for each thing to know.

    Exit code 1 if that run failed for good, or is overdue.
    """
    from dispatcher import job_reports

    with told_clearly():
        found = job_reports.explanation(configuration(context), job, subject, period)
    if as_json:
        say_json(found)
    else:
        for sentence in found.sentences:
            say(sentence)
        _attempts(found)
    return 1 if found.needs_a_person else 0


def overdue(context: typer.Context, *, as_json: Json = False) -> int:
    """List the runs that should be complete and are not, also those that nothing ever started.

    Reads the tables only, so it works while no worker does. Exit code 1 if there are any.
    """
    from dispatcher import job_reports

    at, found = job_reports.overdue(configuration(context))
    if as_json:
        say_json({"at": at, "overdue": found})
    elif not found:
        say("nothing is overdue")
    else:
        columns = [
            Column("RUN", folds=True),
            Column("OVERDUE"),
            Column("DUE"),
            Column("STATE", folds=True),
            Column("WHY", folds=True),
        ]
        say_table(columns, [_late(each, at) for each in found])
        first = found[0]
        say_note(f"postroom jobs explain {first.job} {first.subject} {first.label}")
    return 1 if found else 0


# --------------------------------------------------------------------------- #
# Printing
# --------------------------------------------------------------------------- #


def _row(each: JobLine) -> tuple[str, ...]:
    counts = each.counts
    paused = f" ({counts.paused} paused)" if counts.paused else ""
    state = "" if each.state == "active" else each.state
    if each.declared is False:
        state = "not declared here"
    elif not each.known:
        state = "nothing has planned it yet"
    return (
        each.job,
        each.rule if "timezone=" in each.rule else f"{each.rule} (each subject's time zone)",
        f"{counts.active}{paused}",
        instant(counts.next_due_at) or "-",
        f"{counts.planned:,}",
        f"{counts.running:,}",
        f"{counts.failed:,}",
        instant(counts.last_success_at) or "-",
        state,
    )


def _late(each: Overdue, at: datetime) -> tuple[str, ...]:
    more = f"; {plural(each.more, 'period')} before it too" if each.more else ""
    state = each.state or "never planned"
    why = each.last_error or ("nothing has planned it" if each.state is None else "")
    return (
        each.key,
        span(at - each.overdue_at),
        instant(each.due_at),
        state,
        why + more,
    )


def _print(found: ShownJob) -> None:
    line, row = found.line, found.definition
    say(line.job + ("" if line.state == "active" else f"   {line.state}"), style="bold")
    say()
    pairs = [("Rule", line.rule)]
    if row is not None:
        pairs += [
            ("Missed", row.overrides.missed or "-"),
            ("Overlap", row.overrides.overlap or "-"),
            ("Useful for", span(row.overrides.useful_for) if row.overrides.useful_for else "always"),
            ("Overdue after", span(row.overrides.overdue_after) if row.overrides.overdue_after else "never"),
            ("Version", row.definition_version or "-"),
        ]  # fmt: skip
    say_pairs([(label, str(text)) for label, text in pairs], label_width=16)
    say()
    say_table(
        [
            Column("SUBJECT", folds=True),
            Column("STATE"),
            Column("TIME ZONE"),
            Column("NEXT DUE"),
            Column("RECORDED UNTIL"),
            Column("OWN", folds=True, spare=True),
        ],
        [schedule_row(each) for each in found.schedules],
    )
    say()
    say_table(
        [
            Column("RUN", folds=True),
            Column("STATE"),
            Column("DUE"),
            Column("FINISHED"),
            Column("took", right=True),
            Column("WHY", folds=True, spare=True),
        ],
        [_run(each) for each in found.runs],
    )


def schedule_row(each: ScheduleRow) -> tuple[str, ...]:
    """One schedule in a table: subject, state, zone, next due, recorded until, its own policies."""
    own = {f.name: getattr(each.overrides, f.name) for f in fields(each.overrides)}
    return (
        each.subject or "(the job)",
        each.state.value,
        each.timezone,
        instant(each.next_due_at) or "-",
        instant(each.planned_until) or "-",
        ", ".join(f"{name} {_own(value)}" for name, value in own.items() if value is not None)
        or "-",
    )


def _own(value: object) -> str:
    return span(value) if isinstance(value, timedelta) else str(value)


def _run(each: RunRow) -> tuple[str, ...]:
    state = each.state + (f" ({each.reason})" if each.reason else "")
    took = "-" if each.duration is None else f"{each.duration:,.1f} s"
    return (
        each.key,
        state,
        instant(each.due_at) or "-",
        instant(each.finished_at) or "-",
        took,
        each.detail or each.last_error or "",
    )


def _attempts(found: Explained) -> None:
    if not found.attempts:
        return
    say()
    say_table(
        [
            Column("attempt", right=True),
            Column("STARTED"),
            Column("ENDED"),
            Column("OUTCOME"),
            Column("BY", folds=True),
            Column("ERROR", folds=True),
        ],
        [
            (
                f"{each.number}",
                instant(each.started_at),
                instant(each.finished_at) or "-",
                each.outcome or "under way",
                each.owner.rpartition(":")[0] or each.owner,
                each.error or "",
            )
            for each in found.attempts
        ],
    )
