"""Long random histories on both real databases: the same steps, the same invariants."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from outbox.states import FINAL, State
from tests.explorer.clock import Clock
from tests.explorer.invariants import Moment, broken
from tests.explorer.machine import Machine, Violation
from tests.explorer.plans import SETTINGS, WITH_PEOPLE
from tests.explorer.search import HONEST
from tests.explorer.steps import honest, possible
from tests.explorer.stores import LiveStore
from tests.explorer.world import Setting, World

PROFILE = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


class Histories(RuleBasedStateMachine):
    """One delivery; each rule takes one of the steps that are possible."""

    store: ClassVar[LiveStore]

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.machine: Machine
        self.world: World

    @initialize(setting=st.sampled_from((*SETTINGS, *WITH_PEOPLE)))
    def begin(self, setting: Setting) -> None:
        """Any provider, any policy, an empty database."""
        self.machine = Machine(setting, self.store)
        self.world = self.machine.start()
        self.said = [str(setting)]

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Any step that can be taken."""
        with self.machine.rules():
            offered = list(possible(self.machine, self.world))
            if not offered:
                return
            index = data.draw(st.integers(0, len(offered) - 1), label="step")
            self._take(offered[index])

    def _take(self, step: Any) -> None:
        self.said.append(step.label)
        try:
            after, seen = step.run()
        except Violation as violation:
            raise Violation("\n".join([str(violation), *self.said])) from None
        problem = broken(Moment(self.world, seen, after))
        if problem is not None:
            raise Violation("\n".join([": ".join(problem), *self.said]))
        self.world = after

    def teardown(self) -> None:
        """Whatever has happened, good days bring the delivery to an end."""
        if not self.said:
            return
        world = self.world
        for index, process in enumerate(world.processes):
            world = world.with_process(index, process.crashed())
        self.world = world
        self.said.append("all dispatchers are killed")
        with self.machine.rules():
            for _ in range(HONEST):
                if self.world.rows.delivery["state"] in FINAL | {State.HELD}:
                    return
                step = honest(self.machine, self.world)
                if step is None:
                    break
                self._take(step)
        raise Violation("\n".join(["it never ends", *self.said]))


def _explore(url: str) -> None:
    store = LiveStore(url, Clock())
    machine = type("Histories", (Histories,), {"store": store})
    try:
        run_state_machine_as_test(machine, settings=PROFILE)
    finally:
        store.close()


def test_random_histories_break_no_invariant(database_url: str) -> None:
    """B22, B23: histories of dozens of steps keep every invariant, on a real file and a real server."""
    _explore(database_url)
