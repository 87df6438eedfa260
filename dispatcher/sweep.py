"""The sweep: what no dispatcher's own settle will move on. See ``outbox.store.sweep``.

Looks first, in a transaction that only reads: on SQLite a sweep that finds
nothing must not stand in the writers' way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import decide, endings
from dispatcher.events import Listener, Recovered
from dispatcher.transactions import reading, writing
from outbox.records import Dispatcher
from outbox.store import dispatchers, finish, reads, settle, sweep, tallies

FORGET_AFTER = timedelta(days=1)


class Sweep:
    """One dispatcher's share of the sweeping, and its sign of life.

    ``at_work`` tells whether this process is itself at work under a lease (delivery id, token).
    """

    def __init__(
        self,
        engine: AsyncEngine,
        me: Dispatcher,
        accounts: Sequence[str],
        emit: Listener,
        at_work: Callable[[int, int], bool],
    ) -> None:
        self._engine = engine
        self._me = me
        self._accounts = tuple(accounts)
        self._emit = emit
        self._at_work = at_work

    async def alive(self, slots_used: int) -> None:
        """Say that this dispatcher lives."""

        def work(connection: Connection) -> None:
            dispatchers.seen(connection, self._me, slots_used=slots_used)

        await writing(self._engine, work)

    async def gone(self) -> None:
        """Say that it has ended in good order."""

        def work(connection: Connection) -> None:
            dispatchers.gone(connection, self._me.owner)
            dispatchers.prune(connection, older_than=FORGET_AFTER)

        await writing(self._engine, work)

    async def run_once(self) -> int:
        """Sweep until there is nothing left to sweep; how many rows were moved on."""
        total = 0
        while await self._anything():
            moved = await writing(self._engine, self._sweep)
            total += moved
            if not moved:
                break  # others hold them
        return total

    async def _anything(self) -> bool:
        return await reading(
            self._engine, lambda connection: sweep.anything(connection, self._accounts)
        )

    def _sweep(self, connection: Connection) -> int:
        at = reads.database_now(connection)
        shard = tallies.shard_of(self._me.owner)
        # What this very process still works on is not lost, however long the database was away.
        found = [
            row for row in sweep.lapsed(connection, at=at) if not self._at_work(row.id, row.token)
        ]
        decisions = [decide.lapsed(attempt) for attempt in found]
        changed = settle.apply(connection, decisions, at=at, shard=shard)
        for decision in decisions:
            if decision.attempt.id in changed:
                attempt = decision.attempt
                self._emit(Recovered(attempt.key, attempt.phase, decision.state))
        late = [endings.overdue(row) for row in sweep.overdue(connection)]
        lost = [
            endings.unknown_account(row) for row in sweep.unclaimable(connection, self._accounts)
        ]
        stuck = [endings.blocked_too_long(row) for row in sweep.blocked(connection, at=at)]
        ended = late + lost + stuck
        return len(changed) + finish.finish(connection, ended, at=at, shard=shard)
