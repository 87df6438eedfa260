"""What is asked of a run, checked before anything is asked of a database. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from outbox.errors import InvalidKey, InvalidMessage, RunNotFinished
from outbox.jobs.decide_run import Wish
from outbox.jobs.failures import Backoff
from outbox.jobs.inputs import inputs_of
from outbox.jobs.rules import Period
from outbox.jobs.run_keys import EVERYTHING, run_key
from outbox.records_runs import FoundRun, Inputs, NewRun, Result
from outbox.shapes import check_members, kind
from outbox.states_jobs import OverlapPolicy, RunKind

Revision: TypeAlias = Literal["new"] | int | None

SHORTEST_LEASE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Expects:
    """What a run must have produced to be a success: at least that many records, an output."""

    records: int = 0
    output: bool = False

    def check(self, key: str, result: Result) -> None:
        """Raises RunNotFinished if ``result`` is less than that."""
        if (result.records or 0) < self.records:
            raise RunNotFinished(
                f"{key}: {result.records or 0} records, and at least {self.records} are expected: "
                "nothing is written"
            )
        if self.output and result.output is None:
            raise RunNotFinished(f"{key}: an output is expected, and none was named")


@dataclass(frozen=True, slots=True)
class Policy:
    """How attempts are made. ``lease``: how long a silent worker keeps a run. ``attempts``:
    how many a run has before it fails for good, None: any number. ``permanent``: errors
    that this job holds to be permanent."""

    lease: timedelta = timedelta(seconds=60)
    attempts: int | None = 10
    backoff: Backoff = field(default_factory=Backoff)
    permanent: tuple[type[BaseException], ...] = ()
    expects: Expects = field(default_factory=Expects)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run that somebody wants to work on.

    ``run`` is what its row is made of, should there be none.
    """

    run: NewRun
    wish: Wish
    policy: Policy = field(default_factory=Policy)


def request(
    job: str,
    *,
    subject: str | int = EVERYTHING,
    period: Period | str,
    inputs: Mapping[str, Any] | None = None,
    input_version: str | None = None,
    revision: Revision = None,
    again: bool = False,
    useful_for: timedelta | None = None,
    overdue_after: timedelta | None = None,
    overlap: str = "wait",
    lease: timedelta = timedelta(seconds=60),
    attempts: int | None = 10,
    permanent: tuple[type[BaseException], ...] = (),
    expects: Mapping[str, Any] | None = None,
) -> RunRequest:
    """The request that the arguments of ``open_run`` make.

    Raises InvalidKey, InvalidMessage (for ``inputs``), or ValueError with the argument's name.
    """
    _check_revision(revision)
    if overlap not in set(OverlapPolicy):
        raise ValueError(f'overlap is "wait", "skip" or "allow", not {overlap!r}')
    if lease < SHORTEST_LEASE:
        raise ValueError(f"lease is {lease}; at least one second is needed to renew it in time")
    if attempts is not None and attempts < 1:
        raise ValueError(f"attempts is {attempts}; a run has at least one, or None for any number")
    run = _run(job, _subject(subject), period, revision if isinstance(revision, int) else 1)
    deadline = _after(run.due_at, useful_for, "useful_for")
    return RunRequest(
        run=_with(run, deadline, _after(run.due_at, overdue_after, "overdue_after"), attempts),
        wish=Wish(
            inputs=inputs_of(inputs, input_version),
            revision=revision,
            overlap=OverlapPolicy(overlap),
            deadline=deadline,
            again=again,
        ),
        policy=Policy(
            lease=lease,
            attempts=attempts,
            permanent=permanent,
            expects=expected(expects),
        ),
    )


def request_for(
    run: FoundRun,
    *,
    inputs: Inputs,
    policy: Policy,
    overlap: OverlapPolicy = OverlapPolicy.WAIT,
    definition_version: str | None = None,
) -> RunRequest:
    """The request for a run that has a row: what a worker asks for that found it planned."""
    return RunRequest(
        run=NewRun(
            key=run.key,
            job=run.job,
            subject=run.subject,
            label=run.label,
            kind=run.kind,
            revision=run.revision,
            period_start=run.period_start,
            period_end=run.period_end,
            origin=run.origin,
            deliveries=run.deliveries,
            due_at=run.due_at,
            deadline_at=run.deadline_at,
            definition_version=definition_version,
        ),
        wish=Wish(inputs=inputs, revision=run.revision, overlap=overlap),
        policy=policy,
    )


def expected(given: Mapping[str, Any] | None) -> Expects:
    """``{"records": 1, "output": True}`` as a value. Raises ValueError for anything else."""
    if given is None:
        return Expects()
    try:
        known = check_members("expects", given, ("records", "output"))
    except InvalidMessage as error:
        raise ValueError(str(error)) from None
    records, output = known.get("records", 0), known.get("output", False)
    if type(records) is not int or records < 0 or type(output) is not bool:
        raise ValueError("expects: records is a number from 0 on, output is True or False")
    return Expects(records, output)


def _check_revision(revision: object) -> None:
    number = isinstance(revision, int) and not isinstance(revision, bool) and revision >= 1
    if revision is not None and revision != "new" and not number:
        raise ValueError(f'revision is "new", or a number from 1 on, not {revision!r}')


def _subject(subject: object) -> str:
    if isinstance(subject, int) and not isinstance(subject, bool):
        return str(subject)
    if not isinstance(subject, str):
        raise InvalidKey(f"the subject of a run is {kind(subject)}; use text or a whole number")
    return subject


def _run(job: str, subject: str, period: Period | str, revision: int) -> NewRun:
    if isinstance(period, str):
        key = run_key(job, subject, period, kind=RunKind.LABEL, revision=revision)
        return NewRun(key, job, subject, period, kind=RunKind.LABEL, revision=revision)
    if not isinstance(period, Period):
        raise ValueError(f"period is {kind(period)}; pass a Period, or a label as text")
    return NewRun(
        run_key(job, subject, period.label, revision=revision),
        job,
        subject,
        period.label,
        revision=revision,
        period_start=period.start,
        period_end=period.end,
        adjusted=period.adjusted,
        due_at=period.due,
    )


def _after(due: datetime | None, wait: timedelta | None, name: str) -> datetime | None:
    if wait is None:
        return None
    if due is None:
        raise ValueError(f"{name} counts from when a period is due; a label alone is never due")
    return due + wait


def _with(
    run: NewRun, deadline: datetime | None, overdue: datetime | None, attempts: int | None
) -> NewRun:
    return replace(run, deadline_at=deadline, overdue_at=overdue, max_attempts=attempts)
