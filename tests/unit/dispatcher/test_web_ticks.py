"""How much of its work a process does at once when it is woken over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.web.ticks import NOTHING, PLANNING, Ticks, TooManyTicks, Woken, in_thread
from outbox.jobs.wakers import Stop, Ticked

MINUTE = timedelta(minutes=1)
AT = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class Gated:
    """A tick that waits until it may end, or is told to stop."""

    def __init__(self) -> None:
        self.begun: list[timedelta] = []
        self.stopped = 0
        self.changed = threading.Condition()
        self.open = False

    def __call__(self, budget: timedelta, stop: Stop) -> Ticked:
        stop.also(self.notify)
        with self.changed:
            self.begun.append(budget)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.open or stop.asked, 60)
            self.stopped += stop.asked
        return Ticked(AT)

    def notify(self, *, opened: bool = False) -> None:
        with self.changed:
            self.open = self.open or opened
            self.changed.notify_all()

    async def until(self, begun: int) -> None:
        """When so many have begun."""
        await in_thread(lambda: self._wait_for(begun))

    def _wait_for(self, begun: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= begun, 60)


@pytest.fixture
async def gated() -> AsyncIterator[Gated]:
    tick = Gated()
    yield tick
    tick.notify(opened=True)


async def test_one_tick_works_and_the_others_plan(gated: Gated) -> None:
    """A second budget is not used while the first is; when that is over, one works again."""
    ticks = Ticks(gated)
    first = asyncio.create_task(ticks.once(MINUTE))
    await gated.until(1)
    second = asyncio.create_task(ticks.once(MINUTE))
    await gated.until(2)
    gated.notify(opened=True)
    assert [(await first).worked, (await second).worked] == [True, False]
    assert gated.begun == [MINUTE, NOTHING]
    assert (await ticks.once(MINUTE)).worked


async def test_more_ticks_than_may_be_are_sent_away(gated: Gated) -> None:
    """Those that plan are counted, one that works is not; when they have ended there is room."""
    ticks = Ticks(gated)
    planning = [asyncio.create_task(ticks.once(NOTHING)) for _ in range(PLANNING)]
    await gated.until(PLANNING)
    with pytest.raises(TooManyTicks):
        await ticks.once(NOTHING)
    working = asyncio.create_task(ticks.once(MINUTE))
    await gated.until(PLANNING + 1)
    with pytest.raises(TooManyTicks):
        await ticks.once(MINUTE)
    gated.notify(opened=True)
    await asyncio.gather(*planning, working)
    assert await ticks.once(NOTHING) == Woken(Ticked(AT), worked=False)


async def test_a_stop_reaches_every_tick(gated: Gated) -> None:
    """All that go on are told, and their counts still come."""
    ticks = Ticks(gated)
    going = [asyncio.create_task(ticks.once(each)) for each in (MINUTE, NOTHING, NOTHING)]
    await gated.until(3)
    ticks.stop()
    await asyncio.gather(*going)
    assert gated.stopped == 3


async def test_a_tick_that_fails_leaves_room_for_the_next() -> None:
    """The error is raised where the tick was asked for; the budget is free again."""
    asked: list[timedelta] = []

    def failing(budget: timedelta, stop: Stop) -> Ticked:
        del stop
        asked.append(budget)
        raise OSError("the database is away")

    ticks = Ticks(failing)
    for _ in range(PLANNING + 1):
        for budget in (MINUTE, NOTHING):
            with pytest.raises(OSError, match="away"):
                await ticks.once(budget)
    assert asked == [MINUTE, NOTHING] * (PLANNING + 1)


async def test_a_thread_that_hangs_does_not_keep_the_process() -> None:
    """It is a daemon's, and whoever waited may go."""
    begun, let_go = threading.Event(), threading.Event()
    daemon: list[bool] = []

    def hang() -> None:
        daemon.append(threading.current_thread().daemon)
        begun.set()
        let_go.wait(60)

    waiting = asyncio.create_task(in_thread(hang))
    await in_thread(lambda: begun.wait(60))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    let_go.set()
    assert daemon == [True]
