"""APScheduler's jobs as schedules: what each would become, in words, for somebody to approve.

Nothing is stored here. The text ends with what to type, or to write into the code, once somebody
has looked at the instants. Reads a scheduler, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Final

from outbox.jobs.apscheduler_compare import Comparison, Instant, compare
from outbox.jobs.apscheduler_triggers import Translated, translate
from outbox.jobs.rules import Rule

WAKER: Final = "postroom"
"""The id of our own job in a scheduler."""

_SHORT: Final = 60
"""Seconds of misfire_grace_time below which it says nothing of what a run is worth."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One job of a scheduler. ``missed``, ``overlap``, ``useful_for``: the policies that come
    nearest to its settings."""

    id: str
    trigger: str
    translated: Translated
    comparison: Comparison | None
    missed: str
    overlap: str
    useful_for: str | None

    @property
    def text(self) -> str:
        """For people: the rule, its next instants beside APScheduler's, what to do then."""
        return "\n".join(_lines(self))


def import_jobs(
    scheduler: Any, *, since: datetime | None = None, count: int = 10
) -> list[Imported]:
    """What the jobs of an APScheduler 3 scheduler would be as schedules; our own is left out.

    since: the next ``count`` instants from then on are compared; None: from now on.
    """
    begin = (since or datetime.now(UTC)).astimezone(UTC)
    return [_imported(job, begin, count) for job in scheduler.get_jobs() if job.id != WAKER]


def approval(scheduler: Any, *, since: datetime | None = None, count: int = 10) -> str:
    """The texts of :func:`import_jobs`, to be printed."""
    return "\n\n".join(each.text for each in import_jobs(scheduler, since=since, count=count))


def _imported(job: Any, since: datetime, count: int) -> Imported:
    translated = translate(job.trigger)
    rule = translated.rule
    grace = getattr(job, "misfire_grace_time", None)
    overlap = "skip" if getattr(job, "max_instances", 1) == 1 else "allow"
    missed = "latest" if getattr(job, "coalesce", True) else "all"
    if (missed, overlap) == ("all", "skip"):
        overlap = "wait"
    return Imported(
        id=job.id,
        trigger=f"{job.trigger}, {getattr(job.trigger, 'timezone', 'UTC')}",
        translated=translated,
        comparison=None if rule is None else compare(job.trigger, rule, since=since, count=count),
        missed=missed,
        overlap=overlap,
        useful_for=f"{grace}s" if isinstance(grace, int) and grace >= _SHORT else None,
    )


# --------------------------------------------------------------------------- #
# Words
# --------------------------------------------------------------------------- #


def _lines(job: Imported) -> Iterator[str]:
    yield f"{job.id}: {job.trigger}"
    rule, found = job.translated.rule, job.comparison
    if rule is None or found is None:
        yield f"  cannot be a schedule: {job.translated.problem}"
        return
    yield f"  {rule.to_text()}"
    for remark in job.translated.remarks:
        yield f"  note: {remark}"
    yield ""
    yield f"  {'POSTROOM':<30}  {'APSCHEDULER':<30}  LABEL"
    for row in found.rows:
        yield _row(row, rule)
    yield ""
    yield from _differing(found, rule)
    yield ""
    yield "  in code:"
    yield f"    @outbox.job({_arguments(job, rule)})"
    yield "  as a schedule of a job that is declared:"
    yield f"    {_command(rule)}"


def _row(row: Instant, rule: Rule) -> str:
    local = row.at.astimezone(rule.zone)
    text = f"{local:%a %Y-%m-%d %H:%M:%S} {local.isoformat()[-6:]}"
    ours = text if row.label is not None else "-"
    theirs = text if row.fires else "-"
    if row.same:
        theirs = "the same"
    return f"  {ours:<30}  {theirs:<30}  {row.label or ''}".rstrip()


def _differing(found: Comparison, rule: Rule) -> Iterator[str]:
    where = (
        "" if found.complete else " (looked at: the first of them, and each change of the clock)"
    )
    if not found.differences:
        yield f"  within a year both are the same{where}"
        return
    count = len(found.differences) + found.more
    yield f"  within a year {count} instants differ{where}:"
    for row in found.differences:
        yield _row(row, rule)
    if found.more:
        yield f"  and {found.more} more"


def _arguments(job: Imported, rule: Rule) -> str:
    useful = () if job.useful_for is None else (f'useful_for="{job.useful_for}"',)
    words: Iterable[str] = (
        f'"{job.id}"',
        f'period="{rule.to_text()}"',
        f'missed="{job.missed}"',
        f'overlap="{job.overlap}"',
        *useful,
    )
    return ", ".join(words)


def _command(rule: Rule) -> str:
    timezone = rule.timezone or "UTC"
    text = rule.to_text().removesuffix(f" timezone={timezone}")
    return (
        f"postroom jobs schedules add JOB SUBJECT --rule {quote(text)} --timezone {quote(timezone)}"
    )
