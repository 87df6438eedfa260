"""The stage of a rehearsal: its database, its clock, and dispatchers to order.

*Time.* No drill waits for a time to come. Time passes by moving every instant in the scratch
database back, all of them by the same amount, and the fakes' clock on: for everything that
compares instants that is the same as having waited. So the windows that are rehearsed are the
configured ones, and not smaller models of them.

*Dispatchers* are composed by :func:`dispatcher.service.dispatch`, as in production, and make
one round of claims each. They leave the signals alone: Ctrl-C means the rehearsal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, select

from dispatcher.events import Event
from dispatcher.loop import Mode
from dispatcher.rehearse.children import Children
from dispatcher.rehearse.fakes import FakeProvider, Fault, Kind, Ledger
from dispatcher.rehearse.producer import enqueued
from dispatcher.rehearse.setup import Setup
from dispatcher.rehearse.tables import Row, move_back, read_row
from dispatcher.service import dispatch
from dispatcher.transactions import reading, writing
from outbox import schema
from outbox.database import open_async_engine
from outbox.records import Backlog
from outbox.states import State
from outbox.store.reads import database_now
from providers.contract import Provider

T = TypeVar("T")
STEPS = 25
"""Rounds after which a delivery that still moves is left alone: a drill ends."""
NOT_WAITED = timedelta(milliseconds=20)
"""Added to every passing of time: instants are stored in milliseconds."""
ENDS_WITHIN = 20.0
"""Seconds for a dispatcher to end that stood still and goes on."""


def stop_if_asked() -> None:
    """Raises CancelledError when this task was cancelled and something has swallowed that:
    ``asyncio.wait_for`` did so before Python 3.12 when its future was done at that moment."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


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


class Stalled:
    """A dispatcher that stands still in the middle of a send."""

    def __init__(self, gate: Gate, worker: asyncio.Task[list[Event]]) -> None:
        self._gate = gate
        self._worker = worker

    async def goes_on(self) -> None:
        """Let it go on, and wait until it has ended."""
        self._gate.open()
        await asyncio.wait({self._worker}, timeout=ENDS_WITHIN)
        if not self._worker.done():
            self._worker.cancel()
            await asyncio.wait({self._worker})
        if self._worker.cancelled():
            raise RuntimeError(f"a dispatcher had not ended after {ENDS_WITHIN:g} s")
        await self._worker


class Stage:
    """One scratch database, and what happens on it."""

    def __init__(self, setup: Setup, children: int = 0) -> None:
        """``children``: how many processes will be asked for, at most."""
        self.setup = setup
        self.children = Children(setup, children)
        self.ledger = Ledger(Path(setup.folder))
        self.passed = timedelta()
        """How much time has passed that nobody waited for."""
        self._engine = open_async_engine(setup.url, schema=setup.schema)
        self._fakes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.children.close()
        await self._engine.dispose()

    # -- providers ---------------------------------------------------------- #

    def clock(self) -> float:
        """The rehearsal's instant, in seconds."""
        return time.time() + self.passed.total_seconds()

    def fake(self, kind: Kind, *faults: Fault) -> FakeProvider:
        """A provider nobody knows yet, with an account of its own: no drill disturbs another."""
        self._fakes += 1
        return self._fake(f"fake{self._fakes}-{kind.value}", kind, faults)

    def again(self, fake: FakeProvider, *faults: Fault) -> FakeProvider:
        """The same provider, as another dispatcher sees it."""
        return self._fake(fake.name, fake.kind, faults)

    def _fake(self, name: str, kind: Kind, faults: tuple[Fault, ...]) -> FakeProvider:
        return FakeProvider(
            name,
            kind,
            self.ledger,
            self.setup.traits,
            clock=self.clock,
            pause=Gate(),
            faults=faults,
        )

    # -- the producer's side ------------------------------------------------ #

    async def enqueue(self, key: str, account: str, *, text: str = "Hello") -> bool:
        """Enqueue one message in a transaction of its own; whether it was new."""
        return await self.do(lambda connection: enqueued(connection, key, account, text=text))

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
        left = await dispatch(config, mode, providers, events.append, signals=())
        stop_if_asked()
        return left, events

    @asynccontextmanager
    async def stalled(self, fake: FakeProvider) -> AsyncIterator[Stalled]:
        """A dispatcher whose send has stalled; it goes on at the end of the block, or earlier."""
        gate = fake.pause
        assert isinstance(gate, Gate)  # noqa: S101  (every fake of a stage has one)
        worker = asyncio.create_task(self.dispatch(fake, still=True))
        reached = asyncio.create_task(gate.reached.wait())
        stalled = Stalled(gate, worker)
        try:
            await asyncio.wait({worker, reached}, return_when=asyncio.FIRST_COMPLETED)
            if not gate.reached.is_set():
                await worker
                raise RuntimeError("the dispatcher never came to send")
            yield stalled
        finally:
            reached.cancel()
            await stalled.goes_on()

    async def to_the_end(self, key: str, fake: FakeProvider) -> Row:
        """Dispatch, and let time pass until the delivery is due, until nothing moves it."""
        for _ in range(STEPS):
            await self.dispatch(fake)
            row = await self.row(key)
            if row.settled:
                return row
            await self.until_due(key)
        return await self.row(key)

    # -- time --------------------------------------------------------------- #

    async def pass_time(self, duration: timedelta) -> None:
        """As if ``duration`` had been waited for."""
        duration += NOT_WAITED
        await self.do(lambda connection: move_back(connection, duration))
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
        return await self.read(lambda connection: read_row(connection, key))

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
