"""What happens in a dispatcher, as typed values; metrics and logs listen to them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from outbox.states import AttemptOutcome, PauseReason, Phase, State


@dataclass(frozen=True, slots=True)
class Started:
    owner: str
    accounts: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class Stopping:
    in_flight: int
    grace: float


@dataclass(frozen=True, slots=True)
class Settled:
    """An attempt ended and its delivery's state was decided by it."""

    key: str
    account: str
    attempt: int
    outcome: AttemptOutcome
    state: State
    reason: str | None
    detail: str | None
    due_at: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """An attempt's answer came when its lease was no longer its own; only evidence was kept."""

    key: str
    attempt: int
    outcome: AttemptOutcome


@dataclass(frozen=True, slots=True)
class Recovered:
    """The sweep found a lapsed lease."""

    key: str
    phase: Phase
    state: State


@dataclass(frozen=True, slots=True)
class AccountPaused:
    account: str
    reason: PauseReason
    until: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class DatabaseAway:
    """A round could not reach the database; what it held is kept and tried again."""

    error: str


@dataclass(frozen=True, slots=True)
class RoundSplit:
    """A round's transaction failed on its content and is being done row by row."""

    error: str


Event: TypeAlias = (
    Started | Stopping | Settled | LeaseLost | Recovered | AccountPaused | DatabaseAway | RoundSplit
)
Listener: TypeAlias = Callable[[Event], None]
