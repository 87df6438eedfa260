"""A run as the function of a declared job sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from outbox.jobs.finishing import Finish
from outbox.jobs.rules import Period
from outbox.jobs.run import Run
from outbox.jobs.subjects import Subject


class JobRun:
    """What a declared job's function is called with: ``def website_audit(run)``.

    ``run.subject`` knows its time zone and its attributes (``run.subject.url``), and
    ``run.period`` is the whole period. For the rest it is the run of :func:`outbox.open_run`.
    """

    def __init__(
        self,
        run: Run,
        subject: Subject,
        period: Period,
        inputs: Mapping[str, Any],
        *,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._run = run
        self._stopping = stopping
        self.subject = subject
        """What it is about."""
        self.period = period
        """Its period, with instants in UTC."""
        self.inputs = inputs
        """What the job's ``inputs`` function gave."""

    @property
    def key(self) -> str:
        """The run's identity as text."""
        return self._run.key

    @property
    def job(self) -> str:
        """The job's name."""
        return self._run.job

    @property
    def label(self) -> str:
        """The label of the period."""
        return self.period.label

    @property
    def start(self) -> datetime:
        """The first instant of the period."""
        return self.period.start

    @property
    def end(self) -> datetime:
        """The first instant behind the period."""
        return self.period.end

    @property
    def due(self) -> datetime:
        """When the run is due."""
        return self.period.due

    @property
    def revision(self) -> int:
        """1, unless it replaces an earlier result."""
        return self._run.revision

    @property
    def replaces(self) -> str | None:
        """The key of the revision whose rows this one replaces."""
        return self._run.replaces

    @property
    def attempt(self) -> int | None:
        """The number of this attempt."""
        return self._run.attempt

    @property
    def deliveries(self) -> bool:
        """Whether what the run enqueues is written."""
        return self._run.deliveries

    @property
    def stopping(self) -> bool:
        """Whether this process was asked to stop: an attempt that cannot end soon is given back."""
        return self._stopping()

    def check(self) -> None:
        """Go on only if the run is still ours. Raises LeaseLost."""
        self._run.check()

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the work is."""
        self._run.progress(done, total)

    def log(self, line: str) -> None:
        """Keep a line with the attempt."""
        self._run.log(line)

    def output(
        self,
        location: str | None = None,
        *,
        records: int | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what the run made. Raises InvalidMessage."""
        self._run.output(location, records=records, summary=summary)

    def explain(self) -> str:
        """How the run stands, in a sentence."""
        return self._run.explain()

    def finish(self, connection: Any = None) -> Finish:
        """The run's one transaction: ``with run.finish() as tx``; see ``open_run``.

        Without a connection it is an SQLAlchemy session on the configured database.
        """
        return self._run.finish(connection)
