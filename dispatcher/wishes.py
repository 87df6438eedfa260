"""What sends ask of the database, while it waits for a round; see :mod:`dispatcher.rounds`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from dispatcher.backoff import RetryPolicy
from dispatcher.doubt import Means
from outbox.records import Claimed, Granted, Lane, Mark, Pause, Refused, Settlement
from outbox.states import WhenUnsure
from providers.contract import Finding, Result


@dataclass(frozen=True, slots=True)
class WithheldEnd:
    """Sending was refused before a complete message could leave."""

    reason: str


@dataclass(frozen=True, slots=True)
class InvalidEnd:
    """The row cannot be made into a message."""

    problem: str


@dataclass(frozen=True, slots=True)
class LookUpEnd:
    """What the provider answered when it was asked. ``counts``: "not found" is a proof."""

    finding: Finding
    counts: bool


End: TypeAlias = Result | WithheldEnd | InvalidEnd | LookUpEnd


@dataclass(frozen=True, slots=True)
class Terms:
    """What rounds need to know of the configuration and of this process."""

    owner: str
    lease: timedelta
    default_from: str | None
    namespace: UUID
    lanes: tuple[Lane, ...]
    policies: Mapping[str, RetryPolicy]
    means: Mapping[str, Means]
    when_unsure: Mapping[str, WhenUnsure]


@dataclass(slots=True)
class Open:
    """A delivery under our lease. ``deadline`` and ``started`` are of :mod:`dispatcher.clock`."""

    claimed: Claimed
    deadline: float
    started: float


@dataclass(frozen=True, slots=True)
class WantedMark:
    """A mark, and who waits for it."""

    mark: Mark
    answer: asyncio.Future[Granted | Refused]

    @property
    def id(self) -> int:
        return self.mark.id


@dataclass(frozen=True, slots=True)
class WantedSettle:
    """An attempt's end, and who waits until it is written."""

    claimed: Claimed
    end: End
    done: asyncio.Future[None]

    @property
    def id(self) -> int:
        return self.claimed.id


Wish = TypeVar("Wish", WantedMark, WantedSettle)


@dataclass(slots=True)
class Committed:
    """What one committed transaction came to; ``at`` is the database's instant of it."""

    at: datetime
    marks: Mapping[int, Granted | Refused]
    settlements: Sequence[Settlement]
    decided: set[int]
    renewed: set[int]
    claimed: list[Claimed]
    pauses: Sequence[Pause] = ()


def one_each(wishes: Sequence[Wish]) -> tuple[list[Wish], list[Wish]]:
    """The first wish of each delivery, and those that have to wait for the next round."""
    first: dict[int, Wish] = {}
    later = [wish for wish in wishes if first.setdefault(wish.id, wish) is not wish]
    return list(first.values()), later


def without_words(end: End) -> End:
    """The outcome and the provider's id alone, for a text that no table takes."""
    if not isinstance(end, Result):
        return InvalidEnd("unstorable") if isinstance(end, InvalidEnd) else end
    changes: dict[str, Any] = {"reason": "unstorable"} if hasattr(end.outcome, "reason") else {}
    return Result(replace(end.outcome, **changes), status_code=end.status_code)
