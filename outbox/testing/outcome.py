"""What became of a run that a test has performed: plain, frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from outbox import schema_jobs
from outbox.states_jobs import RunOrigin, RunState
from outbox.testing.points import CrashPoint

_R, _A = schema_jobs.runs, schema_jobs.run_attempts


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as its row says. ``lease_expires_at``: of the attempt that holds it, if one does.

    ``attempts`` counts those that count; ``records``, ``output`` and ``summary`` (JSON) are
    what the run said with ``run.output``.
    """

    key: str
    job: str
    subject: str
    label: str
    revision: int
    origin: RunOrigin
    state: RunState
    reason: str | None
    detail: str | None
    attempts: int
    due_at: datetime | None
    next_attempt_at: datetime
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    records: int | None
    output: str | None
    summary: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened.

    runs: the runs that were opened, as they are now, in their order.
    returned: what the function gave back.
    error: what it raised, if the test has asked for that to be kept.
    crashed_at: where it was killed.
    points: where it could have been.
    """

    runs: tuple[RunRecord, ...]
    sentence: str
    returned: Any = None
    error: BaseException | None = None
    crashed_at: CrashPoint | None = None
    points: tuple[CrashPoint, ...] = ()

    @property
    def state(self) -> RunState | None:
        """The state of the run; None if there is none (yet).

        Raises ValueError if there are several that do not agree.
        """
        found = {run.state for run in self.runs}
        if len(found) > 1:
            said = ", ".join(f"{run.key} is {run.state.value}" for run in self.runs)
            raise ValueError(f"there are several runs, look at .runs: {said}")
        return next(iter(found), None)

    @property
    def key(self) -> str | None:
        """The key of the run. Raises ValueError if there are several."""
        keys = [run.key for run in self.runs]
        if len(keys) > 1:
            raise ValueError(f"there are several runs, look at .runs: {', '.join(keys)}")
        return keys[0] if keys else None

    def explain(self) -> str:
        """How the run stands, in a sentence."""
        return self.sentence


def records(connection: Connection, keys: Iterable[str] | None = None) -> list[RunRecord]:
    """The runs of these keys in the order of the keys; or all, in the order they were made."""
    opened = (_A.c.run_id == _R.c.id) & _A.c.outcome.is_(None)
    query = select(_R, _A.c.lease_expires_at).select_from(_R.outerjoin(_A, opened))
    found = {row.run_key: _record(row) for row in connection.execute(query.order_by(_R.c.id))}
    return list(found.values()) if keys is None else [found[key] for key in keys if key in found]


def _record(row: Any) -> RunRecord:
    return RunRecord(
        key=row.run_key,
        job=row.job,
        subject=row.subject,
        label=row.label,
        revision=row.revision,
        origin=RunOrigin(row.origin),
        state=RunState(row.state),
        reason=row.reason,
        detail=row.detail,
        attempts=row.attempts,
        due_at=row.due_at,
        next_attempt_at=row.next_attempt_at,
        lease_expires_at=row.lease_expires_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        records=row.records,
        output=row.output,
        summary=row.output_summary,
        last_error=row.last_error,
    )


def obituary(point: CrashPoint, runs: Sequence[RunRecord]) -> str:
    """What a kill has left, in a sentence."""
    said = [f"killed at {point}"]
    for run in runs:
        lease = run.lease_expires_at
        until = f", its lease until {lease:%Y-%m-%d %H:%M:%SZ}" if lease else ""
        said.append(f"{run.key} is {run.state.value}{until}")
    return "; ".join(said)
