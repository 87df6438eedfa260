"""Drills of claims and leases: who may send, and what a late owner may still do.

The old worker is a whole dispatcher whose send stalls. Meanwhile its lease lapses (the row's
instants are moved), as it would under a process that was stopped, or a machine that slept.
"""

from __future__ import annotations

import asyncio

from sqlalchemy import Connection

from dispatcher import decide
from dispatcher.rehearse.drill import Drill, Played, played, spoken, state, times
from dispatcher.rehearse.fakes import FakeProvider, Fault, Kind
from dispatcher.rehearse.stage import Stage
from dispatcher.rehearse.tables import Row
from outbox.states import State, WhenUnsure
from outbox.store import reads, settle
from providers.contract import Accepted, Result

_TOGETHER = 8
"""Rows that two dispatchers start on at once."""


async def concurrent(stage: Stage) -> Played:
    """Two dispatchers on the same rows, and one that starts while the other is sending."""
    many = stage.fake(Kind.NOTHING)
    keys = [f"concurrent-{number}" for number in range(_TOGETHER)]
    for key in keys:
        await stage.enqueue(key, many.name)
    await asyncio.gather(stage.dispatch(many), stage.dispatch(stage.again(many)))
    one = stage.fake(Kind.NOTHING, Fault.STALLS_AFTER)
    await stage.enqueue("concurrent", one.name)
    async with stage.stalled(one):
        await stage.dispatch(stage.again(one))
        asked = stage.ledger.count(one.name, "request")
    copies = stage.ledger.copies(many.name)
    together = spoken(await stage.states(*keys))
    return played(
        (f"{_TOGETHER} at once: accepted", f"{_TOGETHER} at once: {together}"),
        ("each taken once", times("each taken", max(copies.values(), default=0))),
        ("one being sent: sent once", f"one being sent: {times('sent', asked)}"),
        ("accepted", state(await stage.row("concurrent"))),
    )


async def lapsed_mark(stage: Stage) -> Played:
    """A lease lapses before anything left: its owner, waking up, may not send any more."""
    fake = stage.fake(Kind.NOTHING, Fault.STALLS_BEFORE)
    await stage.enqueue("lapsed-mark", fake.name)
    async with stage.stalled(fake):
        await stage.outlive_the_lease()
    late = stage.ledger.count(fake.name, "request")
    row = await stage.to_the_end("lapsed-mark", stage.again(fake))
    return played(
        ("its mark is refused", "it sent" if late else "its mark is refused"),
        ("then accepted", f"then {state(row)}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def taken_over(stage: Stage) -> Played:
    """The same, when another dispatcher has claimed the row meanwhile, and is about to send."""
    fake = stage.fake(Kind.NOTHING, Fault.STALLS_BEFORE)
    await stage.enqueue("taken-over", fake.name)
    async with stage.stalled(fake) as old:
        await stage.outlive_the_lease()
        async with stage.stalled(stage.again(fake, Fault.STALLS_BEFORE)):
            await old.goes_on()
            late = stage.ledger.count(fake.name, "request")
    row = await stage.row("taken-over")
    return played(
        ("its mark is refused", "it sent" if late else "its mark is refused"),
        ("the other one: accepted", f"the other one: {state(row)}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def stale_answer(stage: Stage) -> Played:
    """A late "not sent" of the old owner must not touch the row that another one is sending."""
    fake = stage.fake(Kind.NOTHING, Fault.STALLS_UNREACHABLE)
    await stage.enqueue("stale-answer", fake.name)
    async with stage.stalled(fake) as old:
        await stage.outlive_the_lease()
        async with stage.stalled(stage.again(fake, Fault.STALLS_AFTER)):
            before = await stage.row("stale-answer")
            await old.goes_on()
            after = await stage.row("stale-answer")
    row = await stage.row("stale-answer")
    ours = after.state is State.SENDING and after.token == before.token
    return played(
        ("still being sent", "still being sent" if ours else f"became {state(after)}"),
        ("then accepted", f"then {state(row)}"),
        ("no attempt used", _used(row.attempts)),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def late_answer(stage: Stage) -> Played:
    """The old owner's late "accepted" is kept, settles the doubt, and stops everything else."""
    fake = stage.fake(Kind.NOTHING, Fault.STALLS_AFTER)
    between = await _answered_late(stage, "late-answer", fake)
    row = await stage.row("late-answer")
    await stage.dispatch(stage.again(fake))
    return played(
        (_without_proof(stage), state(between)),
        ("then accepted", f"then {state(row)}"),
        ("evidence: answer taken", f"evidence: {', '.join(await stage.verdicts('late-answer'))}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def repeated_answer(stage: Stage) -> Played:
    """The same late answer, come twice, is no second acceptance."""
    fake = stage.fake(Kind.NOTHING, Fault.STALLS_AFTER)
    await _answered_late(stage, "repeated-answer", fake)
    once = await stage.row("repeated-answer")
    await _answer_again(stage, once.id, fake)
    row = await stage.row("repeated-answer")
    return played(
        ("accepted, 1 copy", f"{state(once)}, {_copies(once.copies)}"),
        ("again: accepted, 1 copy", f"again: {state(row)}, {_copies(row.copies)}"),
    )


async def _answered_late(stage: Stage, key: str, fake: FakeProvider) -> Row:
    """An answer comes when its lease is long gone; how the row stood before it came."""
    await stage.enqueue(key, fake.name)
    async with stage.stalled(fake):
        await stage.outlive_the_lease()
        await stage.dispatch(stage.again(fake))
        return await stage.row(key)


async def _answer_again(stage: Stage, delivery_id: int, fake: FakeProvider) -> None:
    """What a dispatcher does whose connection was lost in the commit of a settle: it repeats it."""
    [taken] = stage.ledger.entries(fake.name, "taken")
    policy = stage.setup.config(fake.name).accounts[fake.name].retry

    def work(connection: Connection) -> None:
        at = reads.database_now(connection)
        [attempt] = settle.load(connection, [(delivery_id, 1)], at=at).values()
        decision = decide.settle(
            attempt, Result(Accepted(taken.answer)), policy, now=at, jitter=0.5
        )
        settle.apply(connection, [decision], at=at, shard=0)

    await stage.do(work)


def _without_proof(stage: Stage) -> str:
    """Where a delivery is whose lease lapsed while it was transmitted, as long as nobody knows."""
    again = stage.setup.when_unsure is WhenUnsure.SEND_AGAIN
    return "in doubt" if again else "held"


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _used(attempts: int) -> str:
    return f"{attempts} attempts used" if attempts else "no attempt used"


DRILLS = (
    Drill("concurrent", "two dispatchers start on the same rows", concurrent),
    Drill("lapsed-mark", "a lease lapses before its owner sends", lapsed_mark),
    Drill("taken-over", "a lease lapses, and another dispatcher is faster", taken_over),
    Drill("stale-answer", 'a late "not sent" while another dispatcher sends', stale_answer),
    Drill("late-answer", 'a late "accepted" when the lease is long gone', late_answer),
    Drill("repeated-answer", "the same late answer twice", repeated_answer),
)
