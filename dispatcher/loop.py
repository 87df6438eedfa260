"""The loops of a dispatcher: rounds and sends, and beside them the sweep.

Everything that can be delayed is: a round runs when a send wants something, a
slot is free and rows may be due, or a lease wants renewing. When the last claim
found less than it asked for, the next one waits for the poll interval.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.clock import running
from dispatcher.events import Listener, Stopping
from dispatcher.rounds import Rounds
from dispatcher.send import Sender
from dispatcher.sweep import Sweep
from dispatcher.transactions import reading
from dispatcher.wishes import Terms
from outbox.records import Backlog, Claimed
from outbox.store import dispatchers
from outbox.store.queue import domain_of

Mode: TypeAlias = Literal["forever", "once", "drain"]

ALIVE_EVERY = 5.0
"""Seconds between two signs of life."""
KNOCK_EVERY = 0.2
"""Seconds between two tries to reach a database that is away."""
QUARANTINE_PATIENCE = 60.0
"""Seconds for which a row in quarantine waits for an idle moment of this process."""
GIVE_UP_AFTER = 30.0
"""Seconds without a database after which ``--once`` and ``--drain`` end."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the loop moves: slots, poll interval, and how long a stop may take."""

    slots: int
    poll_interval: timedelta
    grace: timedelta


class Loop:
    """One dispatcher at work, until it is told to stop or has nothing left to do."""

    def __init__(
        self,
        engine: AsyncEngine,
        terms: Terms,
        rounds: Rounds,
        sweep: Sweep,
        *,
        pace: Pace,
        emit: Listener,
    ) -> None:
        self._engine = engine
        self._terms = terms
        self._rounds = rounds
        self._sweep = sweep
        self._pace = pace
        self._emit = emit
        self._sender: Sender | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_claim = 0.0
        self._solo = self._was_solo = False
        """A row in quarantine is on its way; the last claim was for one."""
        self._patience_ends = running() + QUARANTINE_PATIENCE
        self._idle = False
        """The last claim found less than it asked for."""
        self._claims_left: int | None = None
        self._away_since: float | None = None
        self._failure: BaseException | None = None
        self._swept = asyncio.Event()
        self._stop_at: float | None = None

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for: no new claims, no new marks."""
        return self._stop_at is not None

    def stop(self) -> None:
        """Claim nothing more; what is on its way may finish within the grace period.

        What is claimed and not on its way goes back at once. Asked a second time,
        the grace period is over.
        """
        if self._stop_at is not None:
            self._abort()
            return
        grace = self._pace.grace.total_seconds()
        self._stop_at = running() + grace
        self._emit(Stopping(len(self._tasks), grace))
        asyncio.get_running_loop().call_later(grace, self._abort)
        if self._sender is not None:
            self._sender.release()
        self._rounds.wanted.set()

    async def run(self, sender: Sender, mode: Mode) -> None:
        """Work in ``mode``: for ever, one round of claims, or until nothing is due."""
        self._sender = sender
        self._claims_left = 1 if mode == "once" else None
        with contextlib.suppress(DBAPIError, OSError):  # the rounds wait for the database
            await self._sweep.alive(0)
            await self._sweep.run_once()
        sweeper = asyncio.create_task(self._sweep_forever())
        try:
            while True:
                for each in await self._round():
                    task = asyncio.create_task(sender.send(each))
                    self._tasks.add(task)
                    task.add_done_callback(self._sent)
                if await self._finished(mode):
                    return
                await self._wait()
                self._raise_failures(sweeper)
        finally:
            self._swept.set()
            await self._abandon()
            await sweeper

    async def _round(self) -> list[Claimed]:
        want = self._wanted()
        try:
            if self._rounds.suspicious:
                await self._rounds.forgotten()
            claimed = await self._rounds.run_once(want)
        except (DBAPIError, OSError):
            self._away_since = self._away_since or running()
            self._next_claim = running() + min(1.0, self._pace.poll_interval.total_seconds())
            return []
        self._away_since = None
        if want:
            if self._claims_left is not None:
                self._claims_left -= 1
            self._idle = len(claimed) < want
            pause = self._pace.poll_interval.total_seconds() if self._idle else 0.0
            self._next_claim = running() + pause
        return claimed

    def _wanted(self) -> int:
        """How many rows may be claimed now."""
        if self.stopping or self._claims_left == 0 or running() < self._next_claim:
            return 0
        if self._solo and self._tasks:
            return 0
        self._solo = False
        if self._rounds.quarantined and self._turn_of_quarantine():
            if self._tasks:
                return 0
            self._solo = self._rounds.solo = True
            self._patience_ends = running() + QUARANTINE_PATIENCE
            return 1
        return max(0, self._pace.slots - len(self._tasks))

    def _turn_of_quarantine(self) -> bool:
        """A row in quarantine goes when nothing else is in hand; after a minute of waiting
        it is made way for."""
        if not self._tasks and not self._was_solo:
            self._was_solo = True
            return True
        self._was_solo = False
        return running() >= self._patience_ends

    async def _finished(self, mode: Mode) -> bool:
        if self._away_since is not None:
            return self._gave_up(mode)
        if self._tasks or self._rounds.in_flight:
            return False
        if self.stopping:
            return True
        if mode == "once":
            return self._claims_left == 0
        return mode == "drain" and self._idle and await self._drained()

    async def _drained(self) -> bool:
        try:
            left = await backlog(self._engine, self._terms)
        except (DBAPIError, OSError):
            self._away_since = self._away_since or running()
            return False
        return left.due == 0 and left.sending == 0

    def _gave_up(self, mode: Mode) -> bool:
        """Without a database: results are kept for it, but not for ever when asked to end."""
        if self._stop_at is not None:
            return running() > self._stop_at
        assert self._away_since is not None  # noqa: S101  (asked only then)
        return mode != "forever" and running() - self._away_since > GIVE_UP_AFTER

    async def _wait(self) -> None:
        """Until something is wanted: by a send, a free slot, a lease, or the clock."""
        if self._away_since is not None:
            # Whatever is wanted, and however long it has been due: no faster than this.
            await asyncio.sleep(KNOCK_EVERY)
            return
        moments = []
        if not self.stopping and self._claims_left != 0 and len(self._tasks) < self._pace.slots:
            moments.append(self._next_claim)
        renewal = self._rounds.renewal_due()
        if renewal is not None:
            moments.append(renewal)
        timeout = max(0.0, min(moments) - running()) if moments else 1.0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rounds.wanted.wait(), timeout)

    async def _sweep_forever(self) -> None:
        """Sweep each poll interval, and show life every few seconds.

        Ended by an event, never by cancelling: a cancelled transaction may go on
        in the driver's thread and keep SQLite's only lock.
        """
        interval = max(0.05, self._pace.poll_interval.total_seconds())
        shown = running()
        while not await _elapsed(self._swept, interval):
            with contextlib.suppress(DBAPIError, OSError):
                if running() - shown >= ALIVE_EVERY:
                    await self._sweep.alive(len(self._tasks))
                    shown = running()
                await self._sweep.run_once()

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._rounds.wanted.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error

    def _raise_failures(self, sweeper: asyncio.Task[None]) -> None:
        """A send or a sweep that cannot go on ends the process: no silent half-life."""
        if self._failure is not None:
            raise self._failure
        if sweeper.done():
            sweeper.result()

    async def _abandon(self) -> None:
        """End the sends that are left when the loop ends early; their leases will lapse.

        Cancelled once, a send hands in its end, and nobody would write that any more.
        """
        while self._tasks:
            self._abort()
            await asyncio.wait(self._tasks, timeout=0.1)

    def _abort(self) -> None:
        """The grace period is over: what is still on its way is given up, as doubt."""
        for task in self._tasks:
            task.cancel()


async def _elapsed(event: asyncio.Event, seconds: float) -> bool:
    """Wait for ``seconds``, or for the event; whether it was the event."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def backlog(engine: AsyncEngine, terms: Terms) -> Backlog:
    """What is left to do, as one reading transaction sees it."""

    def work(connection: Connection) -> Backlog:
        return dispatchers.backlog(
            connection,
            [lane.account for lane in terms.lanes],
            default_account=next((x.account for x in terms.lanes if x.takes_unnamed), ""),
            default_domain=domain_of(terms.default_from),
        )

    return await reading(engine, work)
