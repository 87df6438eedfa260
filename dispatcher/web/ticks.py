"""What a process does when it is woken over HTTP, and how much of it at once.

A tick plans, and with a budget it also runs what is due. Ticks that overlap do no harm: what
one has planned or claimed, the other leaves alone. But each costs connections and threads, and
whoever wakes us may do so faster than we can plan. So one tick with a budget goes on at a time
(a second one plans only, and says so), and few that only plan; more than that are sent away
until later.

Planning asks the application's code for subjects, and running is its code. Both happen in
threads that do not keep the process from ending when that code hangs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, TypeVar, cast

from outbox.jobs.wakers import Stop, Ticked

Tick: TypeAlias = Callable[[timedelta, Stop], Ticked]
"""Plan, and run for so long: nothing, only plan. Blocks. :func:`outbox.jobs.wakers.tick`."""

PLANNING = 4
"""Ticks at once that only plan."""

NOTHING = timedelta()

T = TypeVar("T")


class TooManyTicks(Exception):
    """As many ticks as may be are going on; come back later."""


@dataclass(frozen=True, slots=True)
class Woken:
    """What a tick did. ``worked``: whether it was one that runs what is due."""

    done: Ticked
    worked: bool


class Ticks:
    """The ticks of one process. Used from its event loop only."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._planning = 0
        self._working = False
        self._stops: set[Stop] = set()

    async def once(self, budget: timedelta) -> Woken:
        """Tick, with this budget if no other tick has one just now.

        Raises TooManyTicks, or what the tick raises.
        """
        works = budget > NOTHING and not self._working
        if not works and self._planning >= PLANNING:
            raise TooManyTicks
        stop = Stop()
        self._stops.add(stop)
        self._count(works=works, by=1)
        try:
            done = await in_thread(lambda: self._tick(budget if works else NOTHING, stop))
        finally:
            self._stops.discard(stop)
            self._count(works=works, by=-1)
        return Woken(done, worked=works)

    def stop(self) -> None:
        """Start no run any more; those under way have their grace."""
        for each in self._stops:
            each.set()

    def _count(self, *, works: bool, by: int) -> None:
        if works:
            self._working = by > 0
        else:
            self._planning += by


async def in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, from a thread that ends with the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # whoever waited has been cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  (it is raised where it is waited for)
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="tick", daemon=True).start()
    return await future
