"""Whatever a provider says, and however long it says so, a delivery comes to an end."""

from __future__ import annotations

import pytest

from outbox.states import FINAL, State, WhenUnsure
from providers.contract import Throttled
from tests.explorer.machine import Machine, Violation
from tests.explorer.steps import Step, honest, possible
from tests.explorer.stores import MemoryStore
from tests.explorer.world import KINDS, Setting, World

PATIENCE = 400
"""Steps within which it ends."""
ANSWERS = (
    "rejects it",
    "throttles",
    "is unavailable",
    "blocks the account",
    "never gets it",
    "takes it",
)


def _next(machine: Machine, world: World, answer: str) -> Step | None:
    """The provider gives its one answer; whatever else happens is a good day's."""
    wanted = f"; the provider {answer}"
    for step in possible(machine, world):
        if step.label.endswith(wanted):
            return step
    return honest(machine, world)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_ends_whatever_is_said_for_ever(
    kind: str, answer: str, memory: MemoryStore
) -> None:
    """N5: an answer that is repeated for ever does not keep a delivery pending for ever."""
    machine = Machine(Setting(kind, WhenUnsure.SEND_AGAIN, send_before=None), memory)
    machine.provider.refusals["throttles"] = Throttled(3600.0)
    world = machine.start()
    with machine.rules():
        for _ in range(PATIENCE):
            if world.rows.delivery["state"] in FINAL | {State.HELD}:
                return
            step = _next(machine, world, answer)
            assert step is not None, world.rows.delivery
            world, _ = step.run()
    raise Violation(f"it is {world.rows.delivery['state']} after {PATIENCE} steps")
