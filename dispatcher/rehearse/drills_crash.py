"""Drills of dispatchers that are killed, or stopped, in the middle of a send: real processes."""

from __future__ import annotations

from datetime import timedelta

from dispatcher.rehearse.child import Order
from dispatcher.rehearse.drill import Drill, Played, played, risked, spoken, state, times, undecided
from dispatcher.rehearse.fakes import FakeProvider, Fault, Kind
from dispatcher.rehearse.stage import Stage
from dispatcher.rehearse.tables import Row

_ROWS = 6
"""Rows of the drill of a stop; two of them are being sent when it comes."""


async def killed_claimed(stage: Stage) -> Played:
    """Killed between its claim and the first byte: nothing left, so it is simply sent."""
    fake = stage.fake(Kind.NOTHING)
    row = await _killed(stage, "killed-claimed", fake, Fault.STALLS_BEFORE, "claimed")
    return played(
        ("accepted", state(row)),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def killed_key(stage: Stage) -> Played:
    """Killed when the provider had it: asked again under the same key, it is accepted once."""
    fake = stage.fake(Kind.KEY)
    row = await _killed(stage, "killed-key", fake, Fault.STALLS_AFTER, "taken")
    return played(
        ("accepted", state(row)),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
        (
            "answer repeated once",
            times("answer repeated", stage.ledger.count(fake.name, "repeated")),
        ),
    )


async def killed_nothing(stage: Stage) -> Played:
    """Killed when the provider had it, and nothing will prove that: the policy decides."""
    fake = stage.fake(Kind.NOTHING)
    row = await _killed(stage, "killed-nothing", fake, Fault.STALLS_AFTER, "taken")
    return played(
        (undecided(stage), state(row)),
        (
            times("taken", risked(stage, before=1)),
            times("taken", stage.ledger.count(fake.name, "taken")),
        ),
    )


async def stopped(stage: Stage) -> Played:
    """SIGTERM in the middle: what is on its way is finished, the rest is left as it was."""
    fake = stage.fake(Kind.NOTHING)
    keys = [f"stopped-{number}" for number in range(_ROWS)]
    for key in keys:
        await stage.enqueue(key, fake.name)
    faults = (Fault.STALLS_AFTER, Fault.STALLS_AFTER)
    with stage.children.started(_order(stage, fake, faults, slots=2)) as child:
        await child.reaches("taken", 2)
        child.stop()
        await child.reaches("stopping")
        child.go_on()
        code = await child.ends()
    rows = [await stage.row(key) for key in keys]
    begun = [row for row in rows if row.last_attempt]
    ended = spoken(row.state for row in begun) if begun else "none"
    await stage.dispatch(fake)
    copies = stage.ledger.copies(fake.name)
    return played(
        ("exit code 0", f"exit code {code}"),
        ("2 on their way: accepted", f"{len(begun)} on their way: {ended}"),
        (f"{_ROWS - 2} untouched", f"{len(rows) - len(begun)} untouched"),
        ("then all accepted", f"then all {spoken(await stage.states(*keys))}"),
        ("each taken once", times("each taken", max(copies.values(), default=0))),
    )


async def _killed(stage: Stage, key: str, fake: FakeProvider, fault: Fault, point: str) -> Row:
    """A dispatcher is killed where its send stalls; how the delivery ends under another one."""
    await stage.enqueue(key, fake.name)
    with stage.children.started(_order(stage, fake, (fault,))) as child:
        await child.reaches(point)
        child.kill()
    await stage.outlive_the_lease()
    return await stage.to_the_end(key, fake)


def _order(
    stage: Stage, fake: FakeProvider, faults: tuple[Fault, ...], *, slots: int = 20
) -> Order:
    passed = stage.passed / timedelta(seconds=1)
    return Order("dispatch", fake.name, "", fake.kind, faults, slots, passed)


DRILLS = (
    Drill("killed-claimed", "kill -9 of a dispatcher before the first byte", killed_claimed, 1),
    Drill("killed-key", "kill -9 after acceptance; it knows the key", killed_key, 1),
    Drill("killed-nothing", "kill -9 after acceptance; it can prove nothing", killed_nothing, 1),
    Drill("stopped", "SIGTERM while two of six are being sent", stopped, 1),
)
