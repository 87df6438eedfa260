"""``postroom jobs``: the group, and ``preview``: what runs when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.cli import job_reports, job_verbs, job_wakers
from dispatcher.cli.backfills import backfill_app
from dispatcher.cli.job_errors import told_clearly
from dispatcher.cli.job_schedules import schedules_app
from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.output import Column, say, say_json, say_note, say_table, terminal_width

if TYPE_CHECKING:
    from outbox.jobs.periods import Rule
    from outbox.jobs.preview import Row

jobs_app = typer.Typer(
    help="Jobs: what runs when, and why.",
    no_args_is_help=False,
    rich_markup_mode=None,
    add_completion=False,
)

_ROOM = ((200, 7), (140, 5), (90, 3))
"""Cells of a terminal, and how many columns fit beside the notes."""

_KINDS = "hourly, daily, weekly, monthly, quarterly or yearly"


@jobs_app.callback()
def jobs() -> None:
    """Jobs: what runs when, and why."""


@jobs_app.command()
def preview(
    context: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="A job by name; else say which rule.")] = None,
    subject: Annotated[str | None, typer.Argument(metavar="SUBJECT", help="In the time zone, by the rule of this one.")] = None,
    *,
    cron: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help='Periods between the ticks of a crontab expression: "30 2 * * *".'),
    ] = None,
    period: Annotated[str | None, typer.Option(metavar="KIND", help=f"{_KINDS.capitalize()}.")] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="An IANA name like Europe/Berlin; else UTC, or the job's.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="T", help="Those due from then on: a local date, or an instant; else now."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many.")] = 10,
    at: Annotated[str | None, typer.Option(metavar="HH:MM", help="Due at this local time of the day on which they end.")] = None,
    due: Annotated[str | None, typer.Option(metavar="SPAN", help="Due so long after their end: 8h.")] = None,
    first: Annotated[str | None, typer.Option(metavar="WEEKDAY", help="Weeks begin on it; else on mon.")] = None,
    day: Annotated[str | None, typer.Option(metavar="DAY", help="Months begin on it: 1 to 31, or last.")] = None,
    month: Annotated[str | None, typer.Option(metavar="MONTH", help="Years, or a quarter, begin in it: 1 to 12.")] = None,
    short_months: Annotated[
        str | None, typer.Option(metavar="HOW", help="Months without that day: last (their last day), or skip.")
    ] = None,
    starts: Annotated[str | None, typer.Option(metavar="HH:MM", help="Days begin at this local time; else at midnight.")] = None,
    minute: Annotated[str | None, typer.Option(metavar="MM", help="Hours begin at this minute; else at 0.")] = None,
    every: Annotated[str | None, typer.Option(metavar="N", help="So many days, weeks … at once.")] = None,
    anchor: Annotated[str | None, typer.Option(metavar="DATE", help="With --every: counted from the one that holds it.")] = None,
    repeated: Annotated[
        str | None, typer.Option(metavar="PASS", help="A local time that comes twice: its first, or second.")
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Show the next periods of a job or of a rule, in UTC and in local time, and what the clock does."""
    from outbox.jobs import preview as previews
    from outbox.jobs.errors import InvalidPeriod, InvalidRule

    values = {
        "at": at, "due": due, "first": first, "day": day, "month": month, "short_months": short_months,
        "starts": starts, "minute": minute, "every": every, "anchor": anchor, "repeated": repeated,
    }  # fmt: skip
    given = {name: v for name, v in values.items() if v is not None}
    try:
        if job is not None:
            if cron or period or given:
                raise WrongUsage("a job has its own rule: leave out what describes another")
            rule = _rule_of(context, job, subject, timezone)
        else:
            rule = _rule(cron, period, given, timezone or "UTC")
        start = previews.parse_since(since, rule.zone) if since else datetime.now(UTC)
        rows = previews.preview(rule, since=start, count=count)
    except (InvalidRule, InvalidPeriod) as error:
        raise WrongUsage(str(error)) from None
    show_rows(rule, rows, as_json=as_json)
    return 0  # fmt: skip


def _rule_of(context: typer.Context, job: str, subject: str | None, timezone: str | None) -> Rule:
    from dispatcher import job_reports as reports

    with told_clearly():
        return reports.rule_of(configuration(context), job, subject, timezone=timezone)


def _rule(cron: str | None, kind: str | None, values: dict[str, str], timezone: str) -> Rule:
    from outbox.jobs.periods import make_rule

    if (cron is None) == (kind is None):
        raise WrongUsage('say which periods: --cron "30 2 * * *" or --period weekly, one of them')
    if kind == "cron":
        raise WrongUsage('write the expression instead: --cron "30 2 * * *"')
    named = {**values, "timezone": timezone}
    return make_rule("cron" if kind is None else kind, named, expression=cron or "")


def show_rows(rule: Rule, rows: list[Row], *, as_json: bool) -> None:
    """Print periods of ``rule``: one row each, and beside them what is easily misread."""
    from outbox.jobs.preview import remarks

    if as_json:
        for remark in remarks(rule):
            say_note(remark)
        say_json([_json(each) for each in rows])
        return
    say(str(rule))
    for remark in remarks(rule):
        say(remark)
    say()
    kept = _columns(terminal_width())
    say_table(
        [Column(title, folds=title == "NOTE") for title in kept],
        [[text for title, text in _texts(each).items() if title in kept] for each in rows],
    )


def _columns(width: int | None) -> list[str]:
    """The columns that fit a terminal; without one all of them. The local due has its offset,
    so that it says the instant alone."""
    titles = ["PERIOD", "DUE LOCAL", "DUE", "START", "END", "START LOCAL", "END LOCAL"]
    kept = next((n for least, n in _ROOM if width is None or width >= least), 2)
    return [*titles[:kept], "NOTE"]


def _texts(row: Row) -> dict[str, str]:
    period = row.period
    return {
        "PERIOD": period.label,
        "DUE LOCAL": _local(row.due_local),
        "DUE": _utc(period.due),
        "START": _utc(period.start),
        "END": _utc(period.end),
        "START LOCAL": _local(row.start_local),
        "END LOCAL": _local(row.end_local),
        "NOTE": row.note,
    }


def _json(row: Row) -> dict[str, Any]:
    period = row.period
    return {
        "label": period.label,
        "start": _instant(period.start),
        "end": _instant(period.end),
        "due": _instant(period.due),
        "due_local": row.due_local.isoformat(),
        "start_local": row.start_local.isoformat(),
        "end_local": row.end_local.isoformat(),
        "adjusted": period.adjusted,
        "note": row.note,
    }


def _instant(value: datetime) -> str:
    """Whole seconds, since periods have no parts of one: ``2026-03-28T01:30:00Z``."""
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def _utc(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M}Z" if not value.second else f"{value:%Y-%m-%d %H:%M:%S}Z"


def _local(value: datetime) -> str:
    """With the weekday, which tells how an expression's numbers were read."""
    shown = f"{value:%a %Y-%m-%d %H:%M}" if not value.second else f"{value:%a %Y-%m-%d %H:%M:%S}"
    return f"{shown} {value.isoformat()[19:]}"


jobs_app.command("list")(job_reports.list_)
jobs_app.command()(job_reports.show)
jobs_app.command()(job_reports.explain)
jobs_app.command()(job_reports.overdue)
jobs_app.command()(job_wakers.tick)
jobs_app.command()(job_wakers.work)
jobs_app.command()(job_verbs.retry)
jobs_app.command()(job_verbs.cancel)
jobs_app.add_typer(schedules_app, name="schedules")
jobs_app.add_typer(backfill_app, name="backfill")
