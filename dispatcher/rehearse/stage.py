"""The stage of a rehearsal: its database, its clock, and dispatchers to order.

*Time.* No drill waits for a time to come. Time passes by moving every instant in the scratch
database back, all of them by the same amount, and the fakes' clock on: for everything that
compares instants that is the same as having waited. So the windows that are rehearsed are the
configured ones, and not smaller models of them.

*Dispatchers* are composed by :func:`dispatcher.service.dispatch`, as in production, and make
one round of claims each. It takes SIGTERM and SIGINT for itself; here they are given back at
once, because Ctrl-C means the rehearsal.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Interval, func, literal, select, type_coerce
from sqlalchemy.dialects.postgresql import TIMESTAMP

import outbox
from dispatcher.events import Event, Started
from dispatcher.loop import Mode
from dispatcher.rehearse.fakes import FakeProvider, Fault, Kind, Ledger, Pause, Traits
from dispatcher.rehearse.setup import Setup
from dispatcher.service import dispatch
from dispatcher.transactions import reading, writing
from outbox import schema
from outbox.columns import Instant
from outbox.database import open_async_engine
from outbox.records import Backlog
from outbox.states import FINAL, State
from outbox.store.reads import database_now
from providers.contract import Provider

T = TypeVar("T")
STEPS = 40
"""Rounds after which a delivery that still moves is left alone: a drill ends."""
NOT_WAITED = timedelta(milliseconds=20)
"""Added to every passing of time: instants are stored in milliseconds."""
_HANDLED = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Row:
    """A delivery as a drill looks at it."""

    id: int
    state: State
    reason: str | None
    attempts: int
    last_attempt: int
    copies: int
    token: int
    due_at: datetime
    extra: str | None

    @property
    def settled(self) -> bool:
        """Nothing moves it by itself any more."""
        return self.state in FINAL or self.state is State.HELD


class Gate:
    """Where a send stalls, until the drill lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    async def __call__(self, point: str) -> None:
        """Stall; ``point`` says where, and here it is known."""
        del point
        self.reached.set()
        await self._open.wait()

    def open(self) -> None:
        """Let the stalled send go on."""
        self._open.set()


async def _never(point: str) -> None:
    raise RuntimeError(f"a send stalled at {point}, and nobody would have let it go on")


class Stage:
    """One scratch database, and what happens on it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.ledger = Ledger(Path(setup.folder))
        self.passed = timedelta()
        """How much time has passed that nobody waited for."""
        self._engine = open_async_engine(setup.url, schema=setup.schema)
        self._handlers = {number: signal.getsignal(number) for number in _HANDLED}
        self._fakes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._engine.dispose()

    # -- providers ---------------------------------------------------------- #

    def clock(self) -> float:
        """The rehearsal's instant, in seconds."""
        return time.time() + self.passed.total_seconds()

    def fake(self, kind: Kind, *faults: Fault, pause: Pause = _never) -> FakeProvider:
        """A provider nobody knows yet, with an account of its own: no drill disturbs another."""
        self._fakes += 1
        return self._fake(f"fake{self._fakes}-{kind.value}", kind, faults, pause)

    def again(self, fake: FakeProvider, *faults: Fault, pause: Pause = _never) -> FakeProvider:
        """The same provider, as another dispatcher sees it."""
        return self._fake(fake.name, fake.kind, faults, pause)

    def _fake(
        self, name: str, kind: Kind, faults: tuple[Fault, ...], pause: Pause
    ) -> FakeProvider:
        return FakeProvider(
            name,
            kind,
            self.ledger,
            traits(self.setup),
            clock=self.clock,
            pause=pause,
            faults=faults,
        )

    # -- the producer's side ------------------------------------------------ #

    async def enqueue(self, key: str, account: str, *, text: str = "Hello") -> bool:
        """Enqueue one message in a transaction of its own; whether it was new."""
        return await self.do(lambda connection: enqueue(connection, key, account, text=text))

    # -- dispatchers -------------------------------------------------------- #

    async def dispatch(
        self,
        fake: FakeProvider,
        *,
        mode: Mode = "once",
        slots: int = 20,
        still: bool = False,
    ) -> list[Event]:
        """One dispatcher for the fake's account; what happened in it."""
        config = self.setup.config(fake.name, slots=slots, still=still)
        _, events = await self.dispatch_by(config, {fake.name: ("rehearsal", fake)}, mode)
        return events

    async def dispatch_by(
        self, config: Any, providers: dict[str, tuple[str, Provider]], mode: Mode
    ) -> tuple[Backlog, list[Event]]:
        """One dispatcher with these accounts; what it left, and what happened in it."""
        events: list[Event] = []

        def listen(event: Event) -> None:
            if isinstance(event, Started):
                self._give_signals_back()
            events.append(event)

        return await dispatch(config, mode, providers, listen), events

    async def to_the_end(self, key: str, fake: FakeProvider) -> Row:
        """Dispatch, and let time pass until the delivery is due, until nothing moves it."""
        for _ in range(STEPS):
            await self.dispatch(fake)
            row = await self.row(key)
            if row.settled:
                return row
            await self.until_due(key)
        return await self.row(key)

    def _give_signals_back(self) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    # -- time --------------------------------------------------------------- #

    async def pass_time(self, duration: timedelta) -> None:
        """As if ``duration`` had been waited for."""
        duration += NOT_WAITED
        await self.do(lambda connection: _move_back(connection, duration))
        self.passed += duration

    async def until_due(self, key: str) -> None:
        """As if the delivery's own time had been waited for."""
        left = (await self.row(key)).due_at - await self.read(database_now)
        if left > timedelta():
            await self.pass_time(left)

    async def outlive_the_lease(self) -> None:
        """As if every lease that is held now had not been renewed."""
        await self.pass_time(timedelta(seconds=self.setup.lease))

    # -- looking ------------------------------------------------------------ #

    async def row(self, key: str) -> Row:
        """The delivery as it is now."""
        return await self.read(lambda connection: _row(connection, key))

    async def known(self, key: str) -> bool:
        """Whether there is a delivery with this key at all."""
        found = select(schema.deliveries.c.id).where(schema.deliveries.c.delivery_key == key)
        return await self.read(lambda connection: connection.execute(found).first() is not None)

    async def states(self, *keys: str) -> list[State]:
        """The states of several deliveries, in order."""
        return [(await self.row(key)).state for key in keys]

    async def paused(self, account: str) -> str | None:
        """Why the account is paused at this instant; None if it is not."""
        accounts = schema.accounts
        why = select(accounts.c.pause_reason).where(
            accounts.c.account == account,
            accounts.c.scope == "",
            accounts.c.paused_until > schema.now(),
        )
        return await self.read(lambda connection: connection.execute(why).scalar())

    async def verdicts(self, key: str) -> list[str]:
        """What evidence says of the delivery, in order: ``answer taken``, …"""
        evidence, deliveries = schema.evidence, schema.deliveries
        joined = evidence.join(deliveries, evidence.c.delivery_id == deliveries.c.id)
        found = (
            select(evidence.c.kind, evidence.c.verdict)
            .select_from(joined)
            .where(deliveries.c.delivery_key == key)
            .order_by(evidence.c.id)
        )
        rows = await self.read(lambda connection: connection.execute(found).all())
        return [f"{row.kind} {row.verdict}" for row in rows]

    async def do(self, work: Callable[[Connection], T]) -> T:
        """``work`` in a transaction of its own."""
        return await writing(self._engine, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """``work`` in a transaction that only reads."""
        return await reading(self._engine, work)


def traits(setup: Setup) -> Traits:
    """The times of the fakes."""
    return Traits(setup.longest_send, setup.key_retention, setup.index_lag)


def enqueue(connection: Connection, key: str, account: str, *, text: str = "Hello") -> bool:
    """What a producer does; whether the delivery was new. Raises KeyConflict."""
    mail = outbox.Email(to="rehearsal@example.org", subject=f"Rehearsal {key}", text=text)
    return outbox.enqueue(connection, mail, key=key, account=account).created


def _row(connection: Connection, key: str) -> Row:
    d = schema.deliveries.c
    found = connection.execute(
        select(
            d.id, d.state, d.reason, d.attempts, d.last_attempt, d.copies, d.lease_token,
            d.due_at, d.extra_transmission,
        ).where(d.delivery_key == key)
    ).one()  # fmt: skip
    return Row(
        id=found.id,
        state=State(found.state),
        reason=found.reason,
        attempts=found.attempts,
        last_attempt=found.last_attempt,
        copies=found.copies,
        token=found.lease_token,
        due_at=found.due_at,
        extra=found.extra_transmission,
    )


def _move_back(connection: Connection, duration: timedelta) -> None:
    """Every instant of every table, by the same amount: their order stays as it was."""
    for table in schema.metadata.sorted_tables:
        instants = [column for column in table.columns if isinstance(column.type, Instant)]
        if not instants:
            continue
        moved = {column: _earlier(connection.dialect.name, column, duration) for column in instants}
        connection.execute(table.update().values(moved))


def _earlier(dialect: str, column: Any, duration: timedelta) -> Any:
    if dialect == "postgresql":
        return type_coerce(column, TIMESTAMP(timezone=True)) - literal(duration, Interval())
    seconds = f"-{duration.total_seconds():.3f} seconds"
    return func.strftime("%Y-%m-%dT%H:%M:%fZ", column, seconds)
