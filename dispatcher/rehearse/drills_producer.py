"""Drills of the producer's side: keys, transactions, and crashes around the commit."""

from __future__ import annotations

from dispatcher.rehearse.child import Order
from dispatcher.rehearse.drill import Drill, Played, played, state, times
from dispatcher.rehearse.fakes import Kind
from dispatcher.rehearse.stage import Stage
from outbox.errors import KeyConflict


async def repeated(stage: Stage) -> Played:
    """A job that runs twice enqueues the same message under the same key."""
    fake = stage.fake(Kind.NOTHING)
    created = [await stage.enqueue("repeated", fake.name) for _ in range(2)]
    row = await stage.to_the_end("repeated", fake)
    await stage.dispatch(fake)
    return played(
        ("first: new", f"first: {_new(created[0])}"),
        ("second: known", f"second: {_new(created[1])}"),
        ("accepted", state(row)),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def changed(stage: Stage) -> Played:
    """The same key with another message is refused, and the first one stays."""
    fake = stage.fake(Kind.NOTHING)
    await stage.enqueue("changed", fake.name, text="the first text")
    try:
        answer = _new(await stage.enqueue("changed", fake.name, text="another text"))
    except KeyConflict as conflict:
        answer = f"KeyConflict: {', '.join(conflict.fields)}"
    row = await stage.to_the_end("changed", fake)
    return played(
        ("KeyConflict: text", answer),
        ("the first is accepted", f"the first is {state(row)}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def before_commit(stage: Stage) -> Played:
    """A producer that is killed before its commit has enqueued nothing."""
    fake = stage.fake(Kind.NOTHING)
    with stage.children.started(Order("write", fake.name, "before-commit")) as child:
        await child.reaches("written")
        child.kill()
    known = await stage.known("before-commit")
    await stage.dispatch(fake)
    return played(
        ("nothing is there", "the delivery is there" if known else "nothing is there"),
        ("taken never", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def after_commit(stage: Stage) -> Played:
    """A producer that is killed after its commit has enqueued its message for good."""
    fake = stage.fake(Kind.NOTHING)
    with stage.children.started(Order("commit", fake.name, "after-commit")) as child:
        await child.reaches("committed")
        child.kill()
    if not await stage.known("after-commit"):
        return played(("the delivery is there", "nothing is there"))
    row = await stage.to_the_end("after-commit", fake)
    return played(
        ("the delivery is there", "the delivery is there"),
        ("accepted", state(row)),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


def _new(created: object) -> str:
    return "new" if created else "known"


DRILLS = (
    Drill("repeated", "the same message enqueued twice under one key", repeated),
    Drill("changed", "another message enqueued under a known key", changed),
    Drill("before-commit", "kill -9 of the producer before its commit", before_commit, 1),
    Drill("after-commit", "kill -9 of the producer after its commit", after_commit, 1),
)
