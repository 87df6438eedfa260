"""Declared jobs: ``@outbox.job``.

    @outbox.job("website-audit", period=weekly("mon"), due="+8h", missed="latest",
                useful_for="3d", overlap="skip", overdue_after="4h")
    def website_audit(run):
        findings = collect(run.subject.url)
        with run.finish() as tx:
            tx.session.add(Report(run_key=run.key, findings=len(findings)))
            tx.enqueue(Email(…), name="owner")

Nothing is registered anywhere: the decorator returns a :class:`Job`, and whoever works on
jobs finds it in its module (:mod:`outbox.jobs.catalog`). What a job promises is its
*definition*; its version is a hash of that, and is stored with whatever it plans. Pure.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

from outbox.jobs.errors import InvalidJob
from outbox.jobs.failures import Backoff
from outbox.jobs.periods import parse_rule
from outbox.jobs.requests import SHORTEST_LEASE, Expects, Policy, expected
from outbox.jobs.rules import Rule
from outbox.limits_jobs import JOB_CHARACTERS
from outbox.shapes import kind, shown
from outbox.states_jobs import MissedPolicy, OverlapPolicy

Word = TypeVar("Word", MissedPolicy, OverlapPolicy)
Span = timedelta | str

FORM: Final = "1"
"""Version of the way in which a definition is hashed."""

_SPAN: Final = re.compile(r"\+?(\d{1,9})([dhms])")
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NO_TIME: Final = timedelta()
_VERSIONED: Final = (
    "name", "rule", "missed", "overlap", "useful_for", "overdue_after", "grace",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Definition:
    """What a job promises. ``rule`` holds the due offset; without a time zone it is a template.

    ``grace``: with ``missed = none``, how late a due period may be found and not be missed.
    ``per_round``: how many runs of one subject a planning round makes, at most.
    ``concurrency``: runs of the job at once, in all processes together; None: any number.
    """

    name: str
    rule: Rule
    missed: MissedPolicy = MissedPolicy.LATEST
    overlap: OverlapPolicy = OverlapPolicy.WAIT
    useful_for: timedelta | None = None
    overdue_after: timedelta | None = None
    grace: timedelta = timedelta(minutes=2)
    per_round: int = 100
    concurrency: int | None = None
    priority: int = 0
    policy: Policy = field(default_factory=Policy)

    @property
    def version(self) -> str:
        """``1:`` and a hash of what decides which runs there are and what they must give. The
        function's code is no part of it, nor is how its attempts are made."""
        said = {name: _plain(getattr(self, name)) for name in _VERSIONED}
        said["expects"] = [self.policy.expects.records, self.policy.expects.output]
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return f"{FORM}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _plain(value: object) -> object:
    match value:
        case Rule():
            return value.to_text()
        case timedelta():
            return value.total_seconds()
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Job:
    """A declared job. Calling it calls its function.

    ``subjects``: gives the subjects that the code knows; None: those of ``outbox_schedules``
    only, or the one subject ``all`` if the rule has a time zone.
    ``inputs``: gives what a run depends on, from its subject and its period.
    """

    definition: Definition
    function: Callable[[Any], Any]
    subjects: Callable[[], Iterable[Any]] | None = None
    inputs: Callable[[Any, Any], Mapping[str, Any]] | None = None

    @property
    def name(self) -> str:
        """The job's name."""
        return self.definition.name

    @property
    def is_async(self) -> bool:
        """Whether its function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def __call__(self, run: Any) -> Any:
        return self.function(run)


def job(
    name: str,
    *,
    period: Rule | str,
    due: Span | None = None,
    subjects: Callable[[], Iterable[Any]] | None = None,
    inputs: Callable[[Any, Any], Mapping[str, Any]] | None = None,
    missed: Literal["all", "latest", "none"] = "latest",
    grace: Span = "2m",
    useful_for: Span | None = None,
    overlap: Literal["wait", "skip", "allow"] = "wait",
    overdue_after: Span | None = None,
    attempts: int | None = 10,
    first_delay: Span = "1m",
    max_delay: Span = "1h",
    permanent: tuple[type[BaseException], ...] = (),
    expects: Mapping[str, Any] | None = None,
    lease: Span = "60s",
    concurrency: int | None = None,
    priority: int = 0,
    per_round: int = 100,
) -> Callable[[Callable[[Any], Any]], Job]:
    """Declare a job: ``@outbox.job("website-audit", period=weekly("mon"), due="+8h")``.

    Spans are timedeltas, or text like ``90m``, ``8h``, ``3d``.

    name: the first part of every run key; at most 100 characters. It never changes.
    period: a rule of :mod:`outbox.jobs`, or its text. Without a time zone each subject's own.
    due: how long after its end a period is due.
    subjects: a function without arguments that gives the subjects: each a ``Subject``, a
      text or a whole number. Left out, they are the rows of ``outbox_schedules``, or the
      one subject ``all`` if the rule has a time zone.
    inputs: a function of subject and period that gives what the result depends on.
    missed: of the periods that fell due while nobody planned: ``all`` of them, only the
      ``latest``, or ``none``. grace: with ``none``, how late one may be found and not be
      missed; longer than the time between two wakers.
    useful_for: how long after its due instant a run may start.
    overlap: while another run of the subject is running: ``wait``, ``skip`` or ``allow``.
    overdue_after: how long after its due instant a run is overdue if it is not complete.
    attempts, first_delay, max_delay: how often a run is tried, and how far apart: the delay
      doubles from the first to the last.
    permanent, expects: as in :func:`outbox.open_run`.
    lease: how long a worker that gives no sign of life keeps a run.
    concurrency: runs of this job at once, in all processes together.
    priority: among runs that are ready, higher goes first.
    per_round: runs that one round plans for a subject, at most; the rest is planned next.

    Raises InvalidJob, or InvalidRule for the period.
    """
    definition = Definition(
        name=_name(name),
        rule=_rule(name, period, due),
        missed=_word(name, "missed", MissedPolicy, missed),
        overlap=_word(name, "overlap", OverlapPolicy, overlap),
        useful_for=_optional(name, "useful_for", useful_for),
        overdue_after=_optional(name, "overdue_after", overdue_after),
        grace=span(f"job {name}: grace", grace),
        per_round=_count(name, "per_round", per_round),
        concurrency=None if concurrency is None else _count(name, "concurrency", concurrency),
        priority=priority,
        policy=Policy(
            lease=_lease(name, lease),
            attempts=None if attempts is None else _count(name, "attempts", attempts),
            backoff=Backoff(
                span(f"job {name}: first_delay", first_delay),
                span(f"job {name}: max_delay", max_delay),
            ),
            permanent=permanent,
            expects=_expects(name, expects),
        ),
    )
    check_policies(f"job {name}", definition.missed, definition.overlap)

    def declared(function: Callable[[Any], Any]) -> Job:
        if not callable(function):
            raise InvalidJob(f"job {name}: what is decorated is {kind(function)}, no function")
        return Job(definition, function, subjects, inputs)

    return declared


def check_policies(what: str, missed: MissedPolicy, overlap: OverlapPolicy) -> None:
    """Refuse what cannot be kept. Raises InvalidJob.

    To make up for every missed period and to leave out those that overlap are two orders:
    what is made up for at once would be left out again.
    """
    if missed is MissedPolicy.ALL and overlap is OverlapPolicy.SKIP:
        raise InvalidJob(
            f'{what}: missed="all" together with overlap="skip" would skip what it makes up '
            'for; use overlap="wait", or missed="latest"'
        )


def span(what: str, value: Span) -> timedelta:
    """A timedelta from 0 on, also from text like ``90m``, ``8h``, ``+3d``. Raises InvalidJob."""
    if isinstance(value, str) and (found := _SPAN.fullmatch(value)):
        value = timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    if isinstance(value, timedelta) and value >= _NO_TIME:
        return value
    said = shown(value) if isinstance(value, str) else str(value)
    raise InvalidJob(f"{what}: {said} is no span of time like 90m, 8h or 3d")


def _optional(name: str, argument: str, value: Span | None) -> timedelta | None:
    return None if value is None else span(f"job {name}: {argument}", value)


def _name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= JOB_CHARACTERS or not name.isprintable():
        raise InvalidJob(f"a job's name is printable text of 1 to {JOB_CHARACTERS} characters")
    return name


def _rule(name: str, period: object, due: Span | None) -> Rule:
    rule = parse_rule(period) if isinstance(period, str) else period
    if not isinstance(rule, Rule):
        raise InvalidJob(f"job {name}: period is {kind(period)}; write weekly(…), cron(…) …")
    return rule if due is None else rule.with_due(due)


def _word(name: str, argument: str, words: type[Word], value: str) -> Word:
    if value in set(words):
        return words(value)
    known = ", ".join(f'"{each.value}"' for each in words)
    raise InvalidJob(f"job {name}: {argument} is one of {known}, not {value!r}")


def _count(name: str, argument: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidJob(f"job {name}: {argument} is a whole number from 1 on, not {value!r}")
    return value


def _lease(name: str, value: Span) -> timedelta:
    lease = span(f"job {name}: lease", value)
    if lease < SHORTEST_LEASE:
        raise InvalidJob(f"job {name}: lease is {lease}; at least one second is needed")
    return lease


def _expects(name: str, given: Mapping[str, Any] | None) -> Expects:
    try:
        return expected(given)
    except ValueError as error:
        raise InvalidJob(f"job {name}: {error}") from None
