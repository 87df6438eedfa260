"""Working on a run: open it by its identity, do the work, and finish it once.

    with outbox.open_run("website-audit", subject="site-42", period=week) as run:
        if not run.mine:
            return run.explain()
        rows = collect(…)                          # no transaction is open; the lease beats
        with run.finish(connection) as tx:         # one fenced transaction
            …

However the block is left, the run's row says so: finished, failed with a traceback, or given
back. If the process dies, nothing is written, and whoever opens the run once the lease has
lapsed takes it over. No transaction is open but inside ``run.finish``.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Engine

from outbox.characters import check_line
from outbox.deliveries import Enqueued
from outbox.errors import InvalidMessage, LeaseLost, RunNotFinished
from outbox.jobs.beat import Beat
from outbox.jobs.explain_run import counted, explain
from outbox.jobs.failures import failed_attempt
from outbox.jobs.finishing import Finish
from outbox.jobs.inputs import inputs_of
from outbox.jobs.opening import Opened, writing
from outbox.jobs.requests import RunRequest
from outbox.jobs.run_keys import run_key
from outbox.records_runs import DeliveryCounts, Progress, Result, RunClaim
from outbox.states_jobs import RunState
from outbox.store import run_ends
from outbox.store.reads import database_now
from outbox.texts import cleaned

_log = logging.getLogger("outbox.jobs")

LOG_LINES = 100
LOG_CHARACTERS = 500
OUTPUT_CHARACTERS = 2_000


class Run:
    """One run, as whoever opened it sees it. Made by :func:`outbox.open_run`."""

    def __init__(self, engine: Engine, request: RunRequest, opened: Opened) -> None:
        run, self._claim = opened.run, opened.claim
        self._engine = engine
        self._request = request
        self._sentence = explain(run, opened.decision, opened.deliveries, now=opened.at)
        self._began = time.monotonic()
        self._progress: tuple[int | None, int | None] = (None, None)
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._results = Result()
        self._beat: Beat | None = None
        self._complete = run.state is RunState.SUCCEEDED
        self.key: str = run.key
        """The run's identity as text."""
        self.job, self.subject, self.label = run.job, run.subject, run.label
        self.start, self.end, self.due = run.period_start, run.period_end, run.due_at
        """Of its period, as UTC; None for a run that has only a label."""
        self.revision: int = run.revision
        self.deliveries: bool = run.deliveries
        """Whether what the run enqueues is written."""
        if self._claim is not None:
            self._sentence = f"{run.key} is running here (attempt {self._claim.attempt})"
            self._beat = Beat(engine, self._claim, request.policy.lease, self._said)
            self._beat.start()

    @property
    def mine(self) -> bool:
        """Whether the work is ours to do, and not done yet."""
        return self._claim is not None

    @property
    def complete(self) -> bool:
        """Whether its results are committed, by us or before. A run that is neither ours nor
        complete is somebody else's, or has ended without a result: :meth:`explain` says which."""
        return self._complete

    @property
    def attempt(self) -> int | None:
        """The number of this attempt; None if the run is not ours."""
        return self._claim.attempt if self._claim else None

    @property
    def replaces(self) -> str | None:
        """The key of the revision whose rows this one replaces; None for the first."""
        if self.revision == 1:
            return None
        wanted = self._request.run
        return run_key(
            self.job, self.subject, self.label, kind=wanted.kind, revision=self.revision - 1
        )

    def explain(self) -> str:
        """How the run stands, in a sentence: whose it is, or since when it is complete."""
        return self._sentence

    def check(self) -> None:
        """Go on only if the run is still ours. Cheap; call it as often as you like.

        Raises LeaseLost if somebody has taken the run over, or it was cancelled.
        """
        self._claimed()
        if self._beat is not None and self._beat.lost():
            raise LeaseLost(
                f"{self.key}: attempt {self.attempt} does not own this run any more; stop working "
                "on it, nothing of it will be written"
            )

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the work is. Shown to people; written with the next beat."""
        self._progress = (int(done), None if total is None else int(total))

    def log(self, line: str) -> None:
        """Keep a line with the attempt. The last 100 are kept, 500 characters of each."""
        self._log.append(cleaned(str(line), LOG_CHARACTERS) or "")

    def output(
        self,
        location: str | None = None,
        *,
        records: int | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what the run made: where it is, how many records, a summary of plain values.

        What is left out stays as it was said before. Recorded when the run is finished.
        Raises InvalidMessage for what cannot be stored.
        """
        was = self._results
        if location is not None:
            check_line("location", location, OUTPUT_CHARACTERS)
        if records is not None and (type(records) is not int or records < 0):
            raise InvalidMessage("records", f"{records!r} is no number from 0 on")
        self._results = Result(
            records=was.records if records is None else records,
            output=was.output if location is None else location,
            summary=was.summary if summary is None else inputs_of(summary, None).text,
        )

    def finish(self, connection: Any = None) -> Finish:
        """The run's one transaction: ``with run.finish(connection) as tx``.

        connection: what :func:`outbox.enqueue` takes, in no transaction; left out, an
          SQLAlchemy session on the run's own database (``tx.session``). With an asynchronous
          connection, ``async with``.

        It begins a transaction, makes sure that the run is ours, and at the end makes it
        complete and commits. An exception rolls everything back, and the run stays ours.

        Raises LeaseLost if it is not ours (any more), NotInTransaction if a transaction is
        open already, RunNotFinished if less was made than the run expects,
        InvalidDatabase if the connection is to another database, and RetryTransaction.
        """
        return Finish(self, connection)

    def give_back(self) -> None:
        """Stop without a result: the attempt does not count, and anybody may start the run."""
        claim = self._claimed()
        self._stop()
        with writing(self._engine) as connection:
            ours = run_ends.give_back(connection, claim, self._said())
        word = "was given back; it may be started at once" if ours else "is not ours any more"
        self._sentence = f"{self.key} {word}"

    # What the parts of a run say to each other

    def _claimed(self) -> RunClaim:
        if self._claim is None:
            raise LeaseLost(f"this run is not ours to work on: {self._sentence}")
        return self._claim

    def _said(self) -> Progress:
        done, total = self._progress
        return Progress(done, total, "\n".join(self._log) or None)

    def _result(self) -> Result:
        """Raises RunNotFinished if it is less than the run expects."""
        said = self._results
        self._request.policy.expects.check(self.key, said)
        seconds = round(time.monotonic() - self._began, 3)
        return Result(said.records, said.output, said.summary, seconds)

    def _stop(self) -> None:
        self._claim = None
        if self._beat is not None:
            self._beat.stop()

    def _completed(self, enqueued: Iterable[Enqueued]) -> None:
        """The transaction is committed. What is left to do can be done by a rescue too."""
        claim = self._claimed()
        states = Counter(str(each.state) for each in enqueued)
        self._sentence = f"{self.key} is complete: {counted(DeliveryCounts(states))}"
        self._complete = True
        self._stop()
        try:
            with writing(self._engine) as connection:
                run_ends.close(connection, claim, self._said())
        except Exception as error:  # noqa: BLE001  (the run is complete; a rescue ends the attempt)
            _log.warning("%s: its attempt could not be ended: %s", self.key, error)

    def _left(self, error: BaseException | None) -> None:
        """The block was left. Raises RunNotFinished if it was left as if all were well."""
        if self._claim is None or isinstance(error, LeaseLost):
            self._stop()
            return
        if error is None:
            missing = RunNotFinished(
                f"{self.key}: the block ended without run.finish(…), so the run is not complete"
            )
            if self._fail(missing):
                raise missing
            return
        if isinstance(error, Exception):
            self._recorded(error, self._fail)
        else:
            self._recorded(error, lambda _: self.give_back())

    def _recorded(self, error: BaseException, write: Any) -> None:
        try:
            write(error)
        except Exception as problem:  # noqa: BLE001  (the job's own error is the one to see)
            error.add_note(f"outbox: how this attempt ended could not be written: {problem}")

    def _fail(self, error: Exception) -> bool:
        """Whether that was ours to say."""
        claim, policy = self._claimed(), self._request.policy
        self._stop()
        with writing(self._engine) as connection:
            end = failed_attempt(
                error,
                declared=policy.permanent,
                counted=claim.counted,
                most=claim.max_attempts,
                backoff=policy.backoff,
                at=database_now(connection),
            )
            ours = run_ends.fail(connection, claim, end, self._said())
        then = f"failed for good ({end.reason})" if end.reason else "may be tried again"
        self._sentence = f"{self.key} {then}; attempt {claim.attempt} failed: {end.error}"
        return ours
