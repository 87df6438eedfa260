"""What a run that was found means for whoever opens it. Pure.

Asked in this order, and the order is the point:

1. *It has succeeded.* The same inputs: complete. Others: an error, unless a new revision was
   asked for; an old result never stands for new input. ``revision="new"`` with inputs that
   have not changed is the run that is there: a cron script may say it at every start.
2. *Somebody is working on it.* Their lease lives, else it would have been rescued before.
3. *It has ended without success*: nothing happens, unless it is to be tried again.
4. *It is to be tried later*, because its job said so.
5. *It is too late* to be worth it.
6. *Another run of the same job and subject is running*: the policy decides.
7. It is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, assert_never

from outbox.jobs.inputs import differing
from outbox.records_runs import FoundRun, Inputs, OpenAttempt, RunningRun
from outbox.states_jobs import OverlapPolicy, RunKind, RunState, SkippedReason


@dataclass(frozen=True, slots=True)
class Wish:
    """What the opener wants of a run.

    ``revision``: ``"new"`` asks for one more if the inputs have changed. ``deadline``: the
    last instant for a start, if the run's row does not say. ``again``: also if it has failed
    for good, was skipped or cancelled.
    """

    inputs: Inputs
    revision: Literal["new"] | int | None = None
    overlap: OverlapPolicy = OverlapPolicy.WAIT
    deadline: datetime | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Mine:
    """Claim it."""


@dataclass(frozen=True, slots=True)
class NewRevision:
    """Make the revision of this number, and decide about that."""

    number: int


@dataclass(frozen=True, slots=True)
class Complete:
    """It has succeeded from the same inputs."""


@dataclass(frozen=True, slots=True)
class Changed:
    """It has succeeded from other inputs; these differ."""

    was: Inputs
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else is working on it."""

    attempt: OpenAttempt | None


@dataclass(frozen=True, slots=True)
class Ended:
    """It has failed for good, was skipped, or cancelled."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """It failed, and is to be tried again from this instant on."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Waits:
    """Another run of the same job and subject goes first."""

    other: RunningRun


@dataclass(frozen=True, slots=True)
class Skip:
    """It is not done; that is to be written down."""

    reason: SkippedReason
    detail: str


Decision: TypeAlias = Mine | NewRevision | Complete | Changed | Busy | Ended | NotYet | Waits | Skip


def decide(run: FoundRun, wish: Wish, others: tuple[RunningRun, ...], *, now: datetime) -> Decision:
    """What ``run`` means for somebody with this ``wish`` at the database's instant ``now``.

    ``others``: the runs of the same job and subject that are being worked on.
    """
    match run.state:
        case RunState.SUCCEEDED:
            return _succeeded(run, wish)
        case RunState.RUNNING:
            return Busy(run.attempt)
        case RunState.FAILED | RunState.SKIPPED | RunState.CANCELLED:
            return _free(run, wish, others, now) if wish.again else Ended()
        case RunState.PLANNED:
            if run.attempts and run.next_attempt_at > now and not wish.again:
                return NotYet(run.next_attempt_at)
            return _free(run, wish, others, now)
        case _:
            assert_never(run.state)


def _succeeded(run: FoundRun, wish: Wish) -> Decision:
    if run.input_hash is None or run.input_hash == wish.inputs.hash:
        return Complete()
    if wish.revision == "new":
        return NewRevision(run.revision + 1)
    was = Inputs(run.input_hash, run.inputs or "{}", run.input_version)
    return Changed(was, differing(was, wish.inputs))


def _free(run: FoundRun, wish: Wish, others: tuple[RunningRun, ...], now: datetime) -> Decision:
    deadline = run.deadline_at or wish.deadline
    if deadline is not None and now > deadline and not wish.again:
        return Skip(SkippedReason.TOO_LATE, f"it could start until {_text(deadline)}")
    if not others:
        return Mine()
    match wish.overlap:
        case OverlapPolicy.ALLOW:
            return Mine()
        case OverlapPolicy.WAIT:
            return Waits(others[0])
        case OverlapPolicy.SKIP:
            # Work on the past never costs a live run; it only waits for the end of one.
            live = next((each for each in others if each.kind is not RunKind.BACKFILL), None)
            if live is None:
                return Waits(others[0])
            return Skip(SkippedReason.OVERLAP, f"{live.key} was running")
        case _:
            assert_never(wish.overlap)


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%SZ}"
