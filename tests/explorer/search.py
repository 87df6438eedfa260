"""Breadth first through all states, so that the path to a violation is a shortest one.

That nothing gets stuck is looked at from every state: all dispatchers die, and new ones, with a
provider that answers honestly, must bring the delivery to an end within a few dozen steps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from outbox.states import FINAL, State
from tests.explorer.canon import canonical
from tests.explorer.invariants import Moment, broken
from tests.explorer.machine import Machine, Violation
from tests.explorer.steps import Step, honest, over, possible
from tests.explorer.world import World

HONEST = 60
"""Honest steps within which every delivery comes to an end."""
_ENDS = FINAL | {State.HELD}


@dataclass(slots=True)
class Tally:
    """How much was seen. ``complete``: there was nothing left to explore."""

    states: int = 0
    transitions: int = 0
    deepest: int = 0
    complete: bool = True
    seconds: float = 0.0
    delivery: dict[str, int] = field(default_factory=dict)
    """States by the state of the delivery in them."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a state was first reached."""

    label: str
    before: Way | None = None

    def path(self) -> list[str]:
        """The labels from the start."""
        labels: list[str] = []
        way: Way | None = self
        while way is not None:
            labels.append(way.label)
            way = way.before
        return labels[::-1]


class Search:
    """One exploration of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ends_well: set[Hashable] = set()

    def run(self, depth: int, *, via: Sequence[str] = (), limit: int | None = None) -> Tally:
        """Every state at most ``depth`` steps from the start, or from where ``via`` leads.

        ``via`` names the first steps by how their labels begin. ``limit``: look no further once
        so many states are known. Raises Violation with the steps that led to it.
        """
        began = time.monotonic()
        with self._machine.rules():
            tally = self._explore(depth, via, limit)
        tally.seconds = time.monotonic() - began
        return tally

    def _explore(self, depth: int, via: Sequence[str], limit: int | None) -> Tally:
        tally = Tally()
        start, way = self._follow(via)
        seen = {self._same(start)}
        queue = deque([(start, way, 0)])
        while queue:
            world, way, steps = queue.popleft()
            tally.states += 1
            tally.deepest = max(tally.deepest, steps)
            state = world.rows.delivery["state"]
            tally.delivery[state] = tally.delivery.get(state, 0) + 1
            self._must_end(world, way)
            if steps == depth or (limit is not None and len(seen) >= limit):
                tally.complete = tally.complete and over(self._machine, world)
                continue
            for step in possible(self._machine, world):
                tally.transitions += 1
                after = self._taken(world, step, way)
                same = self._same(after)
                if same not in seen:
                    seen.add(same)
                    queue.append((after, Way(step.label, way), steps + 1))
        return tally

    def _follow(self, via: Sequence[str]) -> tuple[World, Way]:
        world, way = self._machine.start(), Way("one delivery is committed")
        for wanted in via:
            offered = list(possible(self._machine, world))
            step = next((step for step in offered if step.label.startswith(wanted)), None)
            if step is None:
                labels = "\n  ".join(each.label for each in offered)
                raise LookupError(f"no step begins with {wanted!r}; there are\n  {labels}")
            world, way = self._taken(world, step, way), Way(step.label, way)
        return world, way

    def _same(self, world: World) -> Hashable:
        return canonical(world, self._machine.setting)

    def _taken(self, world: World, step: Step, way: Way) -> World:
        try:
            after, seen = step.run()
        except Violation as violation:
            raise self._violation(way, step.label, "no_round_fails", str(violation)) from None
        problem = broken(Moment(world, seen, after))
        if problem is not None:
            raise self._violation(way, step.label, *problem)
        return after

    def _must_end(self, world: World, way: Way) -> None:
        """1: honest steps lead to a final state, or to a person."""
        passed: list[Hashable] = []
        now = replace(world, processes=tuple(p.crashed() for p in world.processes))
        from_here = way
        way = Way("... all dispatchers are killed", way)
        for _ in range(HONEST):
            same = self._same(now)
            if same in self._ends_well or now.rows.delivery["state"] in _ENDS:
                self._ends_well.update(passed)
                return
            passed.append(same)
            step = honest(self._machine, now)
            if step is None:
                break
            now, way = self._taken(now, step, way), Way(step.label, way)
        problem = f"it is {now.rows.delivery['state']}, and stays so"
        label = "... all dispatchers are killed, and honest steps lead nowhere"
        raise self._violation(from_here, label, "everything_ends", problem)

    def _violation(self, way: Way, label: str, name: str, problem: str) -> Violation:
        lines = [f"{self._machine.setting}: {name}: {problem}"]
        lines += [f"  {number:2} {step}" for number, step in enumerate([*way.path(), label])]
        return Violation("\n".join(lines), name)
