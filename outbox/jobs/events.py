"""What happens while jobs are planned and run, as values; logs and reports listen. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from outbox.states_jobs import RunState


@dataclass(frozen=True, slots=True)
class SubjectsChanged:
    """A job's code names other subjects than before."""

    job: str
    added: int
    ended: int


@dataclass(frozen=True, slots=True)
class Planned:
    """Periods of one subject were recorded: as runs, and as left out."""

    job: str
    subject: str
    runs: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Replanned:
    """What had not started was planned anew, since the calendar itself has changed."""

    job: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    """An attempt began."""

    key: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """An attempt ended. ``state`` and ``reason`` are the run's now; ``sentence`` is for people."""

    key: str
    attempt: int
    state: RunState
    reason: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class RunLeft:
    """A run was looked at and not started: skipped, or somebody else's."""

    key: str
    sentence: str


@dataclass(frozen=True, slots=True)
class RunRescued:
    """A run was taken from a worker that gives no sign of life."""

    key: str
    state: RunState


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that a person has to put right; everything else goes on. ``what`` names it."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Alerted:
    """A delivery that tells people about a run was enqueued."""

    key: str


Event: TypeAlias = (
    SubjectsChanged
    | Planned
    | Replanned
    | RunStarted
    | RunEnded
    | RunLeft
    | RunRescued
    | Trouble
    | Alerted
)
Listener: TypeAlias = Callable[[Event], None]


def line(event: Event) -> str:
    """The event in one line for people."""
    match event:
        case SubjectsChanged(job, added, ended):
            return f"{job}: {added} subjects are new, {ended} are gone"
        case Planned(job, subject, runs, skipped):
            left = f", {skipped} left out" if skipped else ""
            return f"{job} {subject}: {runs} planned{left}"
        case Replanned(job, subject, text):
            return f"{job} {subject}: planned anew: {text}"
        case RunStarted(key, attempt):
            return f"{key}: attempt {attempt} begins"
        case RunEnded() | RunLeft():
            return event.sentence
        case RunRescued(key, state):
            return f"{key}: taken from a worker that gives no sign of life; it is {state.value}"
        case Trouble(what, text):
            return f"{what}: {text}"
        case Alerted(key):
            return f"told people: {key}"
