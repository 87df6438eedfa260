"""What ``status`` is made of, as frozen values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from outbox.reports import DispatcherState
from outbox.states import PauseReason, WaitingFor


@dataclass(frozen=True, slots=True)
class Known:
    """A configured account, as far as a status needs to know it."""

    provider: str
    delivers: bool


@dataclass(frozen=True, slots=True)
class Setup:
    """What the configuration adds to the tables. ``lease`` is how long a dispatcher may be
    silent and still counts as alive."""

    version: str
    schema_needed: str
    database: str
    default_account: str
    lease: timedelta
    accounts: Mapping[str, Known]


@dataclass(frozen=True, slots=True)
class Notice:
    """One line of NEEDS YOU, or one note. ``count`` of ``what``; ``command`` is what to
    type next, "" where there is nothing to type."""

    count: int
    what: str
    account: str
    provider: str
    detail: str
    since: datetime | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class AccountLine:
    """One account's numbers. ``provider`` is "" for an account that is not configured."""

    account: str
    provider: str
    delivers: bool
    paused: PauseReason | None
    paused_until: datetime | None
    waiting_for: Mapping[WaitingFor, int]
    sending: int
    in_doubt: int
    held: int


@dataclass(frozen=True, slots=True)
class LastHour:
    """The last hour. Latencies are seconds from due to accepted; None without any.
    ``oldest_slot_seconds`` is for how long the first row has been waiting for a slot."""

    accepted: int
    failed: int
    expired: int
    median_seconds: float | None
    p99_seconds: float | None
    oldest_slot_seconds: float | None


@dataclass(frozen=True, slots=True)
class Status:
    """The answer to "does anything need me"."""

    version: str
    server: str
    database: str
    revision: str
    current: bool
    at: datetime
    needs: tuple[Notice, ...]
    notes: tuple[Notice, ...]
    accounts: tuple[AccountLine, ...]
    last_hour: LastHour
    dispatchers: tuple[DispatcherState, ...]

    @property
    def needs_a_person(self) -> bool:
        return bool(self.needs)
