"""One state of everything: the rows, the time, what each dispatcher has in memory, and the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeAlias

from dispatcher.backoff import RetryPolicy
from dispatcher.wishes import End
from outbox.records import Claimed, Gate, Mark
from outbox.states import WhenUnsure
from providers.contract import Capabilities
from tests.explorer.stores import Rows

LEASE = 60.0
LONGEST_SEND = 40.0
RETENTION = 400.0
MARGIN = 70.0
LAG = 20.0
LOOK_UP_RETENTION = 700.0
EVIDENCE_WAIT = 45.0
SEND_BEFORE = 500.0
"""Seconds. Chosen so that each window can close before and after each other one."""
DRAIN = 60.0
"""How long bytes may be on their way after they left."""

KINDS: dict[str, Capabilities] = {
    "key": Capabilities(means=("replay",), replay="same_response", key_retention=RETENTION),
    "duplicate": Capabilities(
        means=("look_up", "replay"),
        replay="duplicate_error",
        key_retention=RETENTION,
        look_up="by_key",
        index_lag=LAG,
        look_up_retention=LOOK_UP_RETENTION,
    ),
    "look-up": Capabilities(
        means=("look_up",),
        look_up="by_message_id",
        index_lag=LAG,
        look_up_retention=LOOK_UP_RETENTION,
    ),
    "neither": Capabilities(),
}
"""Providers by what they offer when an answer is lost."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is explored: a kind of provider, a policy, one recipient or two.

    ``send_before`` in seconds; None: the delivery may leave at any time. ``believed``: what the
    adapter says of its provider, where that is not what the provider does. ``people``: an
    operator types verbs, and never says what is not true. ``mixed``: the provider answers for
    each recipient by itself, and may know of one and not of the other.
    """

    kind: str
    when_unsure: WhenUnsure
    recipients: int = 1
    send_before: float | None = SEND_BEFORE
    believed: Capabilities | None = None
    people: bool = False
    mixed: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return KINDS[self.kind]

    @property
    def policy(self) -> RetryPolicy:
        """Without a delay, what may be tried again may be so at once: no steps are spent on
        waiting. Only "duplicate" says nothing new when it is asked again at once."""
        delay = timedelta(seconds=10 if self.kind == "duplicate" else 0)
        return RetryPolicy(attempts=3, window=timedelta(days=1), first_delay=delay)

    def __str__(self) -> str:
        people = "" if self.recipients == 1 else f", {self.recipients} recipients"
        verbs = ", verbs" if self.people else ""
        mixed = ", mixed answers" if self.mixed else ""
        return f"{self.kind}, {self.when_unsure.value}{people}{verbs}{mixed}"


@dataclass(frozen=True, slots=True)
class Copy:
    """One message that the provider has taken. ``attempt`` is the one whose bytes they were."""

    id: str
    attempt: int
    positions: tuple[int, ...]
    key: str
    digest: str
    at: float


@dataclass(frozen=True, slots=True)
class Flying:
    """A complete message that has left and has not arrived; it does so before ``until``, or never."""

    attempt: int
    positions: tuple[int, ...]
    key: str
    digest: str
    until: float


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happened, which no dispatcher can see."""

    copies: tuple[Copy, ...] = ()
    flying: tuple[Flying, ...] = ()

    def of(self, position: int) -> list[Copy]:
        """The copies that one recipient gets."""
        return [copy for copy in self.copies if position in copy.positions]


Stage: TypeAlias = Literal["claimed", "marking", "granted", "sent", "ended", "settling"]


@dataclass(frozen=True, slots=True)
class Task:
    """One claimed delivery in the memory of one dispatcher, and how far its attempt is.

    ``latest`` and ``started`` are what its permit holds. In ``sent`` an ``end`` is the answer
    that waits in the socket; None: no answer yet.
    """

    claimed: Claimed
    owner: str
    stage: Stage = "claimed"
    mark: Mark | None = None
    asked_at: float = 0.0
    latest: float | None = None
    started: bool = False
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """What a dispatcher's rounds remember of a row under its lease."""

    claimed: Claimed
    deadline: float
    started: float


@dataclass(frozen=True, slots=True)
class Process:
    """One dispatcher: everything that a crash takes away."""

    name: str
    boot: int = 1
    tasks: tuple[Task, ...] = ()
    lease: Lease | None = None
    suspicious: bool = False
    quarantined: bool = False
    gate: Gate | None = None

    @property
    def owner(self) -> str:
        return f"{self.name}{self.boot}"

    def crashed(self) -> Process:
        """Killed, and started again."""
        return Process(self.name, self.boot + 1)

    def with_task(self, index: int, task: Task | None) -> Process:
        """With one task changed, or gone."""
        new = () if task is None else (task,)
        return replace(self, tasks=self.tasks[:index] + new + self.tasks[index + 1 :])


@dataclass(frozen=True, slots=True)
class World:
    """One state. ``told``: ids of the copies that a written answer has named.
    ``stopped``: what the producer was answered who wanted to cancel (the name of the answer)."""

    rows: Rows
    processes: tuple[Process, ...]
    now: float = 0.0
    truth: Truth = Truth()
    told: frozenset[str] = frozenset()
    stopped: str | None = None

    def with_process(self, index: int, process: Process) -> World:
        """With one dispatcher changed."""
        before, after = self.processes[:index], self.processes[index + 1 :]
        return replace(self, processes=(*before, process, *after))

    def holds(self, task: Task) -> bool:
        """Whether a task still has the lease that the row names."""
        row = self.rows.delivery
        return (row["lease_owner"], row["lease_token"]) == (task.owner, task.claimed.token)
