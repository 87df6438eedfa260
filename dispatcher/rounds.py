"""Rounds: one transaction for what many sends want from the database.

Each send wants a mark, then a settle; the loop wants claims; long sends want
their leases renewed. Committing each alone would cost a disk flush apiece. So
they queue here, and :meth:`Rounds.run_once` does what has gathered in one
transaction: marks, settles, renewals, then claims, with a number of statements
that does not depend on the number of rows.

What can go wrong, and why it does no harm:

*The connection is lost, perhaps during COMMIT.* Nobody's future is answered.
Marks and settles go back into the queue and are done again; both recognise
their own earlier result (a mark by the attempt's phase, a settle by its
outcome). A send waits for its mark all the while, so nothing leaves unmarked.
A claim that was committed unseen is found by :meth:`Rounds.forgotten` and
given back.

*The transaction fails on its content.* One unstorable text must not cost a
hundred acceptances their settle: each is then done in a transaction of its own,
and one that still fails keeps its outcome and id, and loses its words.

*One row is here twice.* Its lease lapsed while an attempt stood still, it came
back, and this very process claimed it again. The old attempt's token says that
it may not send and may not settle; a round takes one wish of a row at a time,
so that none is taken for the other.

*This process stands still past its leases.* The deadline kept here is read
from a clock that runs through suspends, *before* the statement that set the
lease was sent; so it ends before the lease does, and :class:`SendPermit` looks
at it before the first and before the last byte.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import decide, settling, shares
from dispatcher.clock import running
from dispatcher.database_errors import connection_lost, first_line
from dispatcher.events import AccountPaused, DatabaseAway, LeaseLost, Listener, RoundSplit, Settled
from dispatcher.reconcile import reconcile
from dispatcher.transactions import writing
from dispatcher.wishes import (
    Committed,
    End,
    Open,
    Terms,
    WantedMark,
    WantedSettle,
    one_each,
    without_words,
)
from outbox.records import (
    Claimed,
    Gate,
    Granted,
    Lane,
    Mark,
    OpenAttempt,
    Pause,
    Refused,
    Settlement,
)
from outbox.states import Phase
from outbox.store import accounts, claim, gates, marks, queue, reads, settle, sweep, tallies

LEASE_MARGIN = 0.1
"""The part of a lease that this process does not rely on: room for clocks that drift."""


class Rounds:
    """The queue before the database, for one dispatcher process."""

    def __init__(self, engine: AsyncEngine, terms: Terms, emit: Listener) -> None:
        self._engine = engine
        self._terms = terms
        self._emit = emit
        self._open: dict[int, Open] = {}
        self._marks: list[WantedMark] = []
        self._settles: list[WantedSettle] = []
        self._turn = 0
        self._gates: dict[str, Gate] = {}
        self.quarantined = False
        """Rows in quarantine were due when this process last claimed."""
        self.solo = False
        """The next claim, if nothing is in flight, is for one of them."""
        self.wanted = asyncio.Event()
        self.suspicious = False
        """A connection was lost: claims may have been committed that nobody saw."""

    # -- what sends ask for ------------------------------------------------- #

    async def mark(self, mark: Mark) -> Granted | Refused:
        """Ask that bytes may leave; answered when a round has committed it."""
        answer: asyncio.Future[Granted | Refused] = asyncio.get_running_loop().create_future()
        self._marks.append(WantedMark(mark, answer))
        self.wanted.set()
        return await answer

    async def settle(self, claimed: Claimed, end: End) -> None:
        """Write an attempt's end; returns when a round has committed it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settles.append(WantedSettle(claimed, end, done))
        self.wanted.set()
        await done

    def lease_deadline(self, claimed: Claimed) -> float:
        """Until when (:func:`dispatcher.clock.running`) this process may rely on a lease."""
        return self._open[claimed.id].deadline if self.holds(claimed.id, claimed.token) else 0.0

    # -- what the loop does ------------------------------------------------- #

    @property
    def in_flight(self) -> int:
        """Claimed deliveries that are not settled yet."""
        return len(self._open)

    def holds(self, delivery_id: int, token: int) -> bool:
        """Whether this process has claimed the delivery under ``token`` and not settled it yet."""
        entry = self._open.get(delivery_id)
        return entry is not None and entry.claimed.token == token

    def renewal_due(self) -> float | None:
        """When (:func:`dispatcher.clock.running`) the next lease wants renewing; None without any."""
        if not self._open:
            return None
        return min(e.deadline for e in self._open.values()) - self._terms.lease.total_seconds() / 2

    async def run_once(self, want: int) -> list[Claimed]:
        """Do what has gathered, and claim up to ``want`` deliveries.

        Raises DBAPIError when the database cannot be reached; then everything
        is kept for the next round.
        """
        self.wanted.clear()
        wanted_marks, self._marks = one_each(self._marks)
        wanted_settles, self._settles = one_each(self._settles)
        if self._marks or self._settles:
            self.wanted.set()
        wanted_marks = [each for each in wanted_marks if not each.answer.done()]
        renewals = self._renewals({each.id for each in wanted_settles})
        if not (wanted_marks or wanted_settles or renewals or want > 0):
            return []
        before = running()
        try:
            outcome = await self._transact(wanted_marks, wanted_settles, renewals, want)
        except Exception as error:
            self._marks[:0], self._settles[:0] = wanted_marks, wanted_settles
            if connection_lost(error):
                self.suspicious = True
                self._emit(DatabaseAway(first_line(error)))
                raise
            if not (wanted_marks or wanted_settles):
                raise  # nobody's row to blame: this process cannot claim
            self._emit(RoundSplit(first_line(error)))
            await self._one_by_one()
            return []
        self._resolve(outcome, wanted_marks, wanted_settles, before)
        return outcome.claimed

    async def forgotten(self) -> list[OpenAttempt]:
        """Claims under this owner that this process does not know of, now given back (or in doubt)."""

        def work(connection: Connection) -> list[OpenAttempt]:
            at = reads.database_now(connection)
            found = sweep.left_behind(
                connection, owner=self._terms.owner, known=self._open.keys(), at=at
            )
            # A claim that nobody saw has sent nothing; what was transmitting may have been taken.
            decisions = [
                decide.withheld(each, "shutdown")
                if each.phase is Phase.CLAIMED
                else decide.lapsed(each)
                for each in found
            ]
            settle.apply(connection, decisions, at=at, shard=self._shard)
            return found

        found = await writing(self._engine, work)
        self.suspicious = False
        return found

    # -- inside ------------------------------------------------------------- #

    @property
    def _shard(self) -> int:
        return tallies.shard_of(self._terms.owner)

    def _renewals(self, settling: set[int]) -> list[tuple[int, int]]:
        due = running() + self._terms.lease.total_seconds() / 2
        return [
            (id_, entry.claimed.token)
            for id_, entry in self._open.items()
            if entry.deadline <= due and id_ not in settling
        ]

    async def _transact(
        self,
        wanted_marks: Sequence[WantedMark],
        wanted_settles: Sequence[WantedSettle],
        renewals: Sequence[tuple[int, int]],
        want: int,
    ) -> Committed:
        jitters = [random.random() for _ in wanted_settles]  # noqa: S311  (spreads retries)

        def work(connection: Connection) -> Committed:
            terms = self._terms
            at = reads.database_now(connection)
            answers = marks.mark(
                connection,
                [each.mark for each in wanted_marks],
                owner=terms.owner,
                at=at,
                lease=terms.lease,
            )
            settlements = self._decide(connection, wanted_settles, jitters, at)
            decided = settle.apply(connection, settlements, at=at, shard=self._shard)
            pauses = self._write_accounts(connection, settlements, at)
            renewed = (
                marks.renew(connection, renewals, owner=terms.owner, expires=at + terms.lease)
                if renewals
                else set()
            )
            claimed = self._claim(connection, want, at) if want > 0 else []
            return Committed(at, answers, settlements, decided, renewed, claimed, pauses)

        return await writing(self._engine, work)

    def _claim(self, connection: Connection, want: int, at: datetime) -> list[Claimed]:
        """Rows in doubt first: their windows close. Then pending ones, account by account.

        Rows in quarantine are claimed one at a time and only by a process that has
        nothing else in hand.
        """
        terms = self._terms
        alone = self.solo and not self._open
        self.solo = False
        names = [lane.account for lane in terms.lanes]
        self._gates = gates.gates(connection, names, at=at)
        claimed = reconcile(
            connection, terms, 1 if alone else want, self._gates, at=at, alone=alone,
            shard=self._shard,
        )  # fmt: skip
        left = (1 if alone else want) - len(claimed)
        claimed += claim.claim(
            connection,
            self._shares(left, claimed),
            owner=terms.owner,
            lease=terms.lease,
            default_from=terms.default_from,
            namespace=terms.namespace,
            alone=alone,
        )
        self.quarantined = not alone and queue.quarantined(connection, names)
        probes = {each.account for each in claimed if self._gates[each.account].most == 1}
        gates.probing(connection, probes, until=at + terms.lease)
        return claimed

    def _decide(
        self,
        connection: Connection,
        wanted: Sequence[WantedSettle],
        jitters: Sequence[float],
        at: datetime,
    ) -> list[Settlement]:
        if not wanted:
            return []
        rows = settle.load(connection, ((w.claimed.id, w.claimed.attempt) for w in wanted), at=at)
        return [
            settling.decision(rows[each.claimed.id], each.end, self._terms, at=at, jitter=jitter)
            for each, jitter in zip(wanted, jitters, strict=True)
            if each.claimed.id in rows
        ]

    def _write_accounts(
        self, connection: Connection, settlements: Sequence[Settlement], at: datetime
    ) -> list[Pause]:
        """Pauses that answers asked for, and what the round says of each account."""
        pauses = [each.pause for each in settlements if each.pause is not None]
        owner = self._terms.owner
        accounts.pause(connection, pauses, at=at, by=owner)
        reports = shares.reports(settlements)
        return pauses + gates.judge(connection, reports, self._gates, at=at, by=owner)

    def _shares(self, want: int, claimed: Sequence[Claimed]) -> list[Lane]:
        self._turn += 1
        probed = {each.account for each in claimed}
        return shares.shares(
            self._terms.lanes, self._gates, want=want, turn=self._turn, probed=probed
        )

    def _resolve(
        self,
        outcome: Committed,
        wanted_marks: Sequence[WantedMark],
        wanted_settles: Sequence[WantedSettle],
        before: float,
    ) -> None:
        deadline = before + self._terms.lease.total_seconds() * (1 - LEASE_MARGIN)
        for wanted in wanted_marks:
            answer = outcome.marks[wanted.mark.id]
            # A mark that was only read back extended its lease earlier, not now.
            fresh = isinstance(answer, Granted) and answer.at == outcome.at
            if fresh and wanted.mark.id in self._open:
                self._open[wanted.mark.id].deadline = deadline
            if not wanted.answer.done():
                wanted.answer.set_result(answer)
        for id_ in outcome.renewed & self._open.keys():
            self._open[id_].deadline = deadline
        for claimed in outcome.claimed:
            self._open[claimed.id] = Open(claimed, deadline, before)
        self._announce(outcome)
        for settled in wanted_settles:
            self._close(settled)

    def _close(self, settled: WantedSettle) -> None:
        if self.holds(settled.id, settled.claimed.token):
            del self._open[settled.id]
        if not settled.done.done():
            settled.done.set_result(None)

    def _announce(self, outcome: Committed) -> None:
        for each in outcome.settlements:
            attempt = each.attempt
            if attempt.id not in outcome.decided:
                self._emit(LeaseLost(attempt.key, attempt.number, each.end.outcome))
                continue
            entry = self._open.get(attempt.id)
            self._emit(
                Settled(
                    key=attempt.key,
                    account=attempt.account,
                    attempt=attempt.number,
                    outcome=each.end.outcome,
                    state=each.state,
                    reason=each.reason,
                    detail=each.last_error,
                    due_at=each.due_at,
                    seconds=running() - entry.started if entry is not None else 0.0,
                )
            )
        for pause in outcome.pauses:
            self._emit(AccountPaused(pause.account, pause.reason, pause.until, pause.detail))

    async def _one_by_one(self) -> None:
        """Each mark and settle in a transaction of its own; what is not done stays queued."""
        while self._marks:
            await self._mark_alone(self._marks[0])
            del self._marks[0]
        while self._settles:
            await self._settle_alone(self._settles[0])
            del self._settles[0]

    async def _mark_alone(self, wanted: WantedMark) -> None:
        """Granted, or refused: a mark that cannot be written lets nothing leave."""
        try:
            await self._alone([wanted], [])
        except Exception as error:
            if connection_lost(error):
                raise
            self._emit(RoundSplit(f"mark of delivery {wanted.mark.id}: {first_line(error)}"))
            if not wanted.answer.done():
                wanted.answer.set_result(Refused("lease"))

    async def _settle_alone(self, settling: WantedSettle) -> None:
        """With its words, else without them, else not at all: the lease will lapse."""
        plain = replace(settling, end=without_words(settling.end))
        for wanted in (settling, plain):
            try:
                await self._alone([], [wanted])
            except Exception as error:
                if connection_lost(error):
                    raise
                self._emit(RoundSplit(f"{settling.claimed.key}: {first_line(error)}"))
            else:
                return
        self._close(settling)

    async def _alone(
        self, wanted_marks: list[WantedMark], wanted_settles: list[WantedSettle]
    ) -> None:
        before = running()
        outcome = await self._transact(wanted_marks, wanted_settles, [], 0)
        self._resolve(outcome, wanted_marks, wanted_settles, before)
