"""Breadth first through all states, so that the path to a violation is a shortest one.

That nothing gets stuck is checked by hope alone: from every state all dispatchers die, and new
ones, with a provider that answers honestly, must bring the delivery to an end in a few rounds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from dispatcher.wishes import LookUpEnd
from outbox.states import FINAL, State
from providers.contract import Found, Result, Unknown
from tests.explorer.canon import canonical
from tests.explorer.invariants import Moment, broken
from tests.explorer.machine import Machine, Violation
from tests.explorer.provider import LOST
from tests.explorer.steps import Step, moments, over, possible
from tests.explorer.world import World

ROUNDS = 60
"""Honest steps within which every delivery comes to an end."""


@dataclass(slots=True)
class Found_:
    """How much was seen."""

    states: int = 0
    transitions: int = 0
    deepest: int = 0
    exhausted: bool = True
    """Whether there was nothing left to explore."""
    seconds: float = 0.0
    by_end: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Way:
    """How a state was first reached."""

    label: str
    before: _Way | None = None

    def path(self) -> list[str]:
        labels: list[str] = []
        way: _Way | None = self
        while way is not None:
            labels.append(way.label)
            way = way.before
        return labels[::-1]


class Search:
    """One exploration of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ends_well: set[Hashable] = set()
        self.found = Found_()

    def run(self, depth: int, *, limit: int | None = None) -> Found_:
        """Every state at most ``depth`` steps from the start (and at most ``limit`` states).

        Raises Violation with the steps that led to it.
        """
        began, found = time.monotonic(), self.found
        start = self._machine.start()
        seen = {self._same(start)}
        queue = deque([(start, _Way("one delivery is committed"), 0)])
        while queue:
            world, way, steps = queue.popleft()
            found.states += 1
            found.deepest = max(found.deepest, steps)
            self._must_end(world, way)
            if steps == depth or (limit is not None and len(seen) >= limit):
                found.exhausted = found.exhausted and over(world)
                continue
            for step in possible(self._machine, world):
                found.transitions += 1
                after = self._taken(world, step, way)
                same = self._same(after)
                if same not in seen:
                    seen.add(same)
                    queue.append((after, _Way(step.label, way), steps + 1))
        found.seconds = time.monotonic() - began
        return found

    def _same(self, world: World) -> Hashable:
        return hash(canonical(world, self._machine.setting))

    def _taken(self, world: World, step: Step, way: _Way) -> World:
        try:
            after, seen = step.run()
        except Violation as violation:
            raise Violation(told(self._machine, way, step.label, "", str(violation))) from None
        problem = broken(Moment(world, seen, after))
        if problem is not None:
            raise Violation(told(self._machine, way, step.label, *problem))
        return after

    def _must_end(self, world: World, way: _Way) -> None:
        """1: honest steps lead to a final state, or to a person."""
        passed: list[Hashable] = []
        now = replace(world, processes=tuple(p.crashed() for p in world.processes))
        for _ in range(ROUNDS):
            same = self._same(now)
            if same in self._ends_well or now.rows.delivery["state"] in FINAL | {State.HELD}:
                self._ends_well.update(passed)
                return
            passed.append(same)
            now = self._honest(now, way)
        state = now.rows.delivery["state"]
        problem = f"it is {state} after {ROUNDS} honest steps"
        raise Violation(told(self._machine, way, "...", "everything_ends", problem))

    def _honest(self, world: World, way: _Way) -> World:
        """One step that a good day would bring."""
        machine = self._machine
        process = world.processes[0]
        for number, task in enumerate(process.tasks):
            del task
            step = next(iter(_of_task(machine, world, number)))
            return self._taken(world, step, way)
        for step in (
            Step("sweep", lambda: machine.sweep(world, 0)),
            Step("claim", lambda: machine.claim(world, 0)),
        ):
            after = self._taken(world, step, way)
            if after.rows.delivery != world.rows.delivery:
                return after
        ahead = sorted(moments(world, machine.setting.capabilities))
        if not ahead:
            raise Violation(told(machine, way, "...", "everything_ends", "nothing is left to wait for"))
        left = tuple(f for f in world.truth.flying if f.until > ahead[0])
        return replace(world, now=ahead[0], truth=replace(world.truth, flying=left))


def _of_task(machine: Machine, world: World, number: int) -> list[Step]:
    """What an honest world would do next for the task of the first dispatcher."""
    from tests.explorer import steps

    task = world.processes[0].tasks[number]
    offered = list(steps._of_task(machine, world, 0, number, task))
    return offered[:1]


def told(machine: Machine, way: _Way, label: str, name: str, problem: str) -> str:
    """A violation as a report: the rule, what is wrong, and the steps that led there."""
    lines = [f"{machine.setting}: {name}: {problem}"]
    lines += [f"  {number:2} {step}" for number, step in enumerate([*way.path(), label])]
    return "\n".join(lines)


__all__ = ["LOST", "Found_", "LookUpEnd", "Result", "Search", "Unknown", "Found"]
