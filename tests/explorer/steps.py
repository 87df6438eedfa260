"""Which steps are possible in a state. Each is a label and what it leads to.

A dispatcher is slow or stopped simply by not taking its next step while others take theirs and
the clock runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from dispatcher.wishes import LookUpEnd, WithheldEnd
from outbox.states import FINAL, AttemptKind, State
from providers.contract import Accepted, Rejected, Result, Unavailable
from tests.explorer import people
from tests.explorer.clock import seconds
from tests.explorer.machine import Machine, Seen
from tests.explorer.provider import LOST, REFUSALS, Reply
from tests.explorer.world import LEASE, LONGEST_SEND, MARGIN, Process, Task, World

Run: TypeAlias = Callable[[], tuple[World, Seen]]
TASKS = 2
"""Attempts that one dispatcher may have in memory at once: the present one, and one whose lease
it has lost without knowing."""
_BEFORE_THE_MARK = {
    name: REFUSALS[name] for name in ("rejects it", "is unavailable", "blocks the account")
}


@dataclass(frozen=True, slots=True)
class Step:
    """``run`` takes it; ``label`` says it in words."""

    label: str
    run: Run


def over(machine: Machine, world: World) -> bool:
    """Whether nothing can happen any more that matters."""
    ends = FINAL | {State.HELD}
    if machine.setting.people:
        ends = frozenset({State.ACCEPTED, State.CANCELLED, State.UNRESOLVED})
    done = world.rows.delivery["state"] in ends
    return done and not world.truth.flying and not any(p.tasks for p in world.processes)


def possible(machine: Machine, world: World) -> Iterator[Step]:
    """Every step that can be taken in ``world``."""
    if over(machine, world):
        return
    if machine.setting.people:
        for act in people.ACTS:
            if people.true(act, world):
                yield Step(f"a person types: {act}", partial(machine.verb, world, act))
    if world.stopped is None:
        yield Step("the producer cancels", partial(machine.cancel, world))
    for index, process in enumerate(world.processes):
        if index and _blank(process) and _blank(world.processes[0]):
            continue  # two dispatchers with nothing in memory are one
        yield from _of_process(machine, world, index, process)
    for flying in world.truth.flying:
        yield Step(
            f"what attempt {flying.attempt} had sent arrives",
            partial(_arrive, machine, world, flying),
        )
    yield from _jumps(machine, world)


def honest(machine: Machine, world: World) -> Step | None:
    """The step that a good day would bring; None when nothing will ever happen."""
    for number, task in enumerate(world.processes[0].tasks):
        return next(_of_task(machine, world, 0, number, task), None)
    for label, run in (
        ("A sweeps", partial(machine.sweep, world, 0)),
        ("A claims", partial(machine.claim, world, 0)),
    ):
        after, seen = run()
        if after.rows.delivery != world.rows.delivery:
            return Step(label, partial(_result, after, seen))
    return next(_jumps(machine, world), None)


def _result(world: World, seen: Seen) -> tuple[World, Seen]:
    return world, seen


def _blank(process: Process) -> bool:
    return not process.tasks and process.lease is None and not process.suspicious


def _of_process(machine: Machine, world: World, at: int, process: Process) -> Iterator[Step]:
    name = process.name
    if at == 0 or any(each.lease is not None for each in world.processes):
        yield Step(f"{name} sweeps", partial(machine.sweep, world, at))
    if process.suspicious:
        yield Step(f"{name} gives back what it forgot", partial(machine.forgotten, world, at))
    elif len(process.tasks) < TASKS and world.rows.delivery["state"] in {"pending", "in_doubt"}:
        yield Step(f"{name} claims", partial(machine.claim, world, at))
        lost = partial(machine.claim, world, at, loses=True)
        yield Step(f"{name} claims; the commit's answer is lost", lost)
    if any(task.stage in {"marking", "settling"} for task in process.tasks):
        yield Step(f"{name} runs its round again", partial(machine.renew, world, at))
    elif process.lease is not None and world.now >= process.lease.deadline - LEASE / 2:
        yield Step(f"{name} renews its lease", partial(machine.renew, world, at))
    if not _blank(process):
        dead = world.with_process(at, process.crashed())
        yield Step(f"{name} is killed", partial(_result, dead, Seen()))
    for number, task in enumerate(process.tasks):
        yield from _of_task(machine, world, at, number, task)


def _of_task(machine: Machine, world: World, at: int, number: int, task: Task) -> Iterator[Step]:
    who = f"{world.processes[at].name}, attempt {task.claimed.attempt}"
    match task.stage:
        case "claimed" if task.claimed.kind is AttemptKind.LOOK_UP:
            yield from _look_up(machine, world, at, number, who)
        case "claimed":
            yield from _before_the_mark(machine, world, at, number, who)
        case "granted":
            yield from _send(machine, world, at, number, who)
        case "sent":
            yield from _wait(machine, world, at, number, who)
        case "ended" if task.end is not None:
            yield from _settling(machine, world, at, number, f"{who} ends", task.end)
        case _:
            pass  # it waits for a round


def _ended(world: World, at: int, number: int, end: Any) -> tuple[World, Seen]:
    process = world.processes[at]
    task = replace(process.tasks[number], stage="ended", end=end)
    return world.with_process(at, process.with_task(number, task)), Seen()


def _settling(
    machine: Machine, world: World, at: int, number: int, label: str, end: Any
) -> Iterator[Step]:
    yield Step(label, partial(machine.settle, world, at, number, end))
    both = partial(machine.settle, world, at, number, end, want=1)
    yield Step(f"{label}; the same round claims", both)
    lost = partial(machine.settle, world, at, number, end, loses=True)
    yield Step(f"{label}; the commit's answer is lost", lost)


def _look_up(machine: Machine, world: World, at: int, number: int, who: str) -> Iterator[Step]:
    claimed = world.processes[at].tasks[number].claimed
    key = claimed.idempotency_key or ""
    for finding in machine.provider.findings(world.truth, key, claimed.carried, world.now):
        end = LookUpEnd(finding, claimed.absence_counts)
        label = f"{who} asks: {type(finding).__name__}"
        yield Step(label, partial(_ended, world, at, number, end))


def _before_the_mark(
    machine: Machine, world: World, at: int, number: int, who: str
) -> Iterator[Step]:
    carried = [r.address for r in world.processes[at].tasks[number].claimed.for_recipients]
    yield Step(f"{who} marks", partial(machine.mark, world, at, number, carried))
    lost = partial(machine.mark, world, at, number, carried, loses=True)
    yield Step(f"{who} marks; the commit's answer is lost", lost)
    if len(carried) > 1 and machine.setting.capabilities.replay == "none":
        # SMTP alone learns of each address before the message leaves.
        first = partial(machine.mark, world, at, number, carried[:1])
        yield Step(f"{who} marks for the first recipient only", first)
    yield from _settling(machine, world, at, number, f"{who} is stopped", WithheldEnd("shutdown"))
    for label, outcome in _BEFORE_THE_MARK.items():
        settled = partial(machine.settle, world, at, number, Result(outcome))
        yield Step(f"{who}: before the mark, the provider {label}", settled)


def _send(machine: Machine, world: World, at: int, number: int, who: str) -> Iterator[Step]:
    reason = machine.withheld(world, at, number)
    if reason is not None:
        ended = partial(_ended, world, at, number, WithheldEnd(reason))
        yield Step(f"{who} sends nothing: {reason}", ended)
        return
    task = world.processes[at].tasks[number]
    assert task.mark is not None
    addresses = [r.address for r in task.claimed.recipients if r.position in task.mark.recipients]
    for reply in machine.provider.replies(world.truth, task.mark, addresses, world.now):
        sent = partial(_sent, world, at, number, reply)
        yield Step(f"{who} sends; the provider {reply.label}", sent)


def _sent(world: World, at: int, number: int, reply: Reply) -> tuple[World, Seen]:
    process = world.processes[at]
    task = process.tasks[number]
    assert task.mark is not None
    result = reply.result
    refused = {
        r.address: Rejected("550") if r.position else Unavailable("451")
        for r in task.claimed.for_recipients
        if r.position not in task.mark.recipients
    }
    if result is not None and refused:
        result = replace(result, recipients={**result.recipients, **refused})
    after = replace(task, stage="sent", started=True, end=result)
    world = replace(world.with_process(at, process.with_task(number, after)), truth=reply.truth)
    return world, Seen(left=task)


def _wait(machine: Machine, world: World, at: int, number: int, who: str) -> Iterator[Step]:
    end = world.processes[at].tasks[number].end
    lost = Result(LOST)
    if isinstance(end, Result) and end.outcome != LOST:
        yield from _settling(
            machine, world, at, number, f"{who} gets {type(end.outcome).__name__}", end
        )
        if not isinstance(end.outcome, Accepted):
            return  # that such an answer is lost as well is "never gets it"
    yield Step(f"{who} gets no answer", partial(machine.settle, world, at, number, lost))


def _arrive(machine: Machine, world: World, flying: Any) -> tuple[World, Seen]:
    truth, result = machine.provider.arrived(world.truth, flying, world.now)
    world = replace(world, truth=truth)
    for at, process in enumerate(world.processes):
        for number, task in enumerate(process.tasks):
            waits = task.stage == "sent" and task.end is None
            if waits and task.claimed.attempt == flying.attempt:
                answered = process.with_task(number, replace(task, end=result))
                return world.with_process(at, answered), Seen()
    return world, Seen()


def moments(world: World, capabilities: Any) -> dict[float, str]:
    """The instants ahead at which something becomes possible, or impossible."""
    row = world.rows.delivery
    found: list[tuple[float | None, str]] = [
        (seconds(row["lease_expires_at"]), "the lease's end"),
        (seconds(row["send_before"]), "send_before"),
    ]
    if row["state"] in {State.PENDING, State.IN_DOUBT}:
        found.append((seconds(row["due_at"]), "the instant it is due"))
    for account in world.rows.of("accounts"):
        found.append((seconds(account["paused_until"]), "the end of the account's pause"))
        found.append((seconds(account.get("probe_until")), "the end of the probe's lease"))
    first = seconds(row["first_transmitted_at"])
    if first is not None and capabilities.replay != "none":
        end = first + capabilities.key_retention
        found += [(end - MARGIN - LONGEST_SEND, "the last instant to start a replay")]
    for copy in world.truth.copies:
        if capabilities.replay != "none":
            found.append(
                (copy.at + capabilities.key_retention, "when the provider forgets the key")
            )
        if capabilities.look_up_retention is not None:
            end = copy.at + capabilities.look_up_retention
            found.append((end, "when look-ups forget the message"))
    found += [(flying.until, "when nothing can arrive any more") for flying in world.truth.flying]
    for process in world.processes:
        if process.lease is not None and process.tasks:
            deadline = process.lease.deadline
            found.append((deadline, f"the end that {process.name} trusts its lease to"))
            found.append((deadline - LEASE / 2, f"when {process.name} has to renew"))
    return {at: name for at, name in reversed(found) if at is not None and at > world.now}


def _jumps(machine: Machine, world: World) -> Iterator[Step]:
    for at, name in sorted(moments(world, machine.setting.capabilities).items()):
        truth = world.truth
        left = tuple(flying for flying in truth.flying if flying.until > at)
        later = replace(world, now=at, truth=replace(truth, flying=left))
        yield Step(f"{at - world.now:g} s pass: {name}", partial(_result, later, Seen()))
