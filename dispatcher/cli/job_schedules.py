"""``postroom jobs schedules …``: the subjects of jobs, and what is different for each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from dispatcher.cli.filters import actor as who
from dispatcher.cli.job_errors import needed, told_clearly
from dispatcher.cli.job_reports import schedule_row
from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.output import Column, plain, say, say_json, say_note, say_table
from dispatcher.cli.verbs import Actor

if TYPE_CHECKING:
    from dispatcher.schedule_verbs import Said
    from outbox.records_schedules import ScheduleRow

schedules_app = typer.Typer(
    help="The subjects of jobs: add, change, pause, resume, end.",
    rich_markup_mode=None,
    add_completion=False,
)

AS_THE_JOB = "job"
"""What to write for "as the job says"."""

_Job: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="A job by name.")]
_Subject: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="What its runs are about.")
]
_Subjects: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="SUBJECT", help="Subjects by name.")
]
_All: TypeAlias = Annotated[
    bool, typer.Option("--all", help="The whole job, with the subjects to come.")
]
_Zone: TypeAlias = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="An IANA name like Europe/Berlin.")
]
_Rule: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--rule", metavar="TEXT", help='Its own rule: "weekly first=sun", "cron 30 2 * * *".'
    ),
]
_Missed: TypeAlias = Annotated[
    str | None, typer.Option("--missed", metavar="HOW", help="all, latest or none.")
]
_Overlap: TypeAlias = Annotated[
    str | None, typer.Option("--overlap", metavar="HOW", help="wait, skip or allow.")
]
_Due: TypeAlias = Annotated[
    str | None, typer.Option("--due", metavar="SPAN", help="Due so long after a period's end.")
]
_Useful: TypeAlias = Annotated[
    str | None, typer.Option("--useful-for", metavar="SPAN", help="How late a run may start.")
]
_Overdue: TypeAlias = Annotated[
    str | None, typer.Option("--overdue-after", metavar="SPAN", help="From when on it is overdue.")
]
_Attributes: TypeAlias = Annotated[
    str | None,
    typer.Option("--attributes", metavar="JSON", help="What its function is told, a JSON object."),
]
_Reason: TypeAlias = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")]  # fmt: skip


@schedules_app.command("list")
def list_(
    context: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Of one job only.")] = None,
    *,
    as_json: Json = False,
) -> int:
    """List schedules: each subject of each job, with what is due next."""
    from dispatcher import schedule_verbs

    at, found = schedule_verbs.listed(configuration(context), job)
    subjects = [row for row in found if row.subject]
    if as_json:
        say_json({"at": at, "schedules": [_json(row) for row in subjects]})
        return 0
    if not subjects:
        say_note("there are no schedules" + (f" of {job}" if job else ""))
        return 0
    columns = [
        Column("JOB", folds=True),
        Column("SUBJECT", folds=True),
        Column("STATE"),
        Column("TIME ZONE"),
        Column("NEXT DUE"),
        Column("RECORDED UNTIL"),
        Column("OWN", folds=True, spare=True),
    ]
    say_table(columns, [(row.job, *schedule_row(row)) for row in subjects])
    return 0


@schedules_app.command()
def add(
    context: typer.Context,
    job: _Job,
    subject: _Subject,
    *,
    timezone: _Zone = None,
    rule: _Rule = None,
    due: _Due = None,
    missed: _Missed = None,
    overlap: _Overlap = None,
    useful_for: _Useful = None,
    overdue_after: _Overdue = None,
    attributes: _Attributes = None,
    reason: _Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Add a subject to a job. What is not given is as the job says. It makes up for nothing:
    its first run is the next that is due."""
    from dispatcher import schedule_verbs

    with told_clearly():
        said = _said(timezone, attributes, rule=rule, due=due, missed=missed, overlap=overlap,
                     useful_for=useful_for, overdue_after=overdue_after)  # fmt: skip
        row = schedule_verbs.add(
            configuration(context), job, subject, said, actor=who(actor), note=reason
        )
    return _tell(row, "added", as_json=as_json)


@schedules_app.command()
def change(
    context: typer.Context,
    job: _Job,
    subject: _Subject,
    *,
    timezone: _Zone = None,
    rule: _Rule = None,
    due: _Due = None,
    missed: _Missed = None,
    overlap: _Overlap = None,
    useful_for: _Useful = None,
    overdue_after: _Overdue = None,
    attributes: _Attributes = None,
    reason: _Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Change a subject's schedule; the value "job" goes back to what the job says.

    After another rule or time zone the first new period starts where the last recorded one
    ended. It is labelled by its bounds.
    """
    from dispatcher import schedule_verbs

    with told_clearly():
        said = _said(timezone, attributes, rule=rule, due=due, missed=missed, overlap=overlap,
                     useful_for=useful_for, overdue_after=overdue_after)  # fmt: skip
        if not (said.timezone or said.overrides or said.attributes is not None):
            raise WrongUsage("nothing is to be changed: name what")
        row = schedule_verbs.change(
            configuration(context), job, subject, said, actor=who(actor), note=reason
        )
    return _tell(row, "changed", as_json=as_json)


@schedules_app.command()
def pause(
    context: typer.Context,
    job: _Job,
    subjects: _Subjects = None,
    *,
    everything: _All = False,
    reason: _Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Plan and start nothing more of some subjects, or of the whole job. What is running is
    finished."""
    from dispatcher import schedule_verbs

    note, names = needed(reason), _named(subjects, everything=everything)
    with told_clearly():
        done = schedule_verbs.pause(configuration(context), job, names, actor=who(actor), note=note)
    return _tell_names(job, "paused", done, "nothing was active", as_json=as_json)


@schedules_app.command()
def resume(
    context: typer.Context,
    job: _Job,
    subjects: _Subjects = None,
    *,
    everything: _All = False,
    reason: _Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Go on from now. Nothing that fell due meanwhile is made up for; it is recorded as skipped."""
    from dispatcher import schedule_verbs

    note, names = needed(reason), _named(subjects, everything=everything)
    with told_clearly():
        done = schedule_verbs.resume(
            configuration(context), job, names, actor=who(actor), note=note
        )
    return _tell_names(job, "resumed", done, "nothing was paused", as_json=as_json)


@schedules_app.command()
def end(
    context: typer.Context,
    job: _Job,
    subjects: Annotated[list[str], typer.Argument(metavar="SUBJECT", help="Subjects by name.")],
    *,
    reason: _Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """End subjects: nothing more of them is planned, and what has not been done is cancelled."""
    from dispatcher import schedule_verbs

    note = needed(reason)
    with told_clearly():
        done, cancelled = schedule_verbs.end(
            configuration(context), job, subjects, actor=who(actor), note=note
        )
    if as_json:
        say_json({"job": job, "ended": done, "cancelled_runs": cancelled})
        return 0
    runs = f"; {cancelled} planned runs cancelled" if cancelled else ""
    say(f"ended: {', '.join(done)}{runs}" if done else "all of them had ended")
    return 0


# --------------------------------------------------------------------------- #


def _named(subjects: list[str] | None, *, everything: bool) -> list[str] | None:
    if bool(subjects) is everything:
        raise WrongUsage("name subjects, or say --all")
    return subjects or None


def _said(timezone: str | None, attributes: str | None, **given: str | None) -> Said:
    from dispatcher.schedule_verbs import Said

    overrides = {
        name: None if text == AS_THE_JOB else _READ[name](text)
        for name, text in given.items()
        if text is not None
    }
    if "due" in overrides:
        overrides["due_after"] = overrides.pop("due")
    return Said(timezone, _attributes(attributes), overrides)


def _attributes(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WrongUsage(f"--attributes is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise WrongUsage('--attributes is no JSON object: write {"url": "https://…"}')
    return found


def _rule(text: str) -> str:
    from outbox.jobs.periods import parse_rule

    return parse_rule(text).to_text()


def _missed(text: str) -> Any:
    from outbox.states_jobs import MissedPolicy

    return _word("--missed", MissedPolicy, text)


def _overlap(text: str) -> Any:
    from outbox.states_jobs import OverlapPolicy

    return _word("--overlap", OverlapPolicy, text)


def _word(option: str, words: Any, text: str) -> Any:
    try:
        return words(text)
    except ValueError:
        known = ", ".join(each.value for each in words)
        raise WrongUsage(f"{option} is one of {known}, or {AS_THE_JOB}") from None


def _span(option: str) -> Any:
    def read(text: str) -> Any:
        from outbox.jobs.job import span

        return span(option, text)

    return read


_READ: dict[str, Any] = {
    "rule": _rule,
    "due": _span("--due"),
    "missed": _missed,
    "overlap": _overlap,
    "useful_for": _span("--useful-for"),
    "overdue_after": _span("--overdue-after"),
}


def _json(row: ScheduleRow) -> dict[str, Any]:
    from outbox.store.schedules import override_values

    own = override_values(row.overrides)
    return {**plain(row), "overrides": own, "attributes": json.loads(row.attributes)}


def _tell(row: ScheduleRow, what: str, *, as_json: bool) -> int:
    if as_json:
        say_json(_json(row))
    else:
        say(f"{what}: {row.job} {row.subject} ({row.timezone})")
        say_note(f"postroom jobs preview {row.job} {row.subject}")
    return 0


def _tell_names(
    job: str, what: str, done: tuple[str, ...], otherwise: str, *, as_json: bool
) -> int:
    if as_json:
        say_json({"job": job, what: [name or None for name in done]})
    else:
        names = ", ".join(name or "the whole job" for name in done)
        say(f"{what}: {job}, {names}" if done else otherwise)
    return 0
