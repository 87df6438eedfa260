"""The explorer finds what goes wrong once a guard is gone; with it, the same search finds nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explorer.guards import GUARDS, Guard
from tests.explorer.invariants import INVARIANTS
from tests.explorer.machine import Machine, Violation
from tests.explorer.search import Search
from tests.explorer.stores import MemoryStore


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_that_is_gone_is_missed(guard: Guard, memory: MemoryStore) -> None:
    """Without the guard the named invariant breaks, and the report tells the steps."""
    broken = Machine(replace(guard.setting, believed=guard.believed), memory)
    with guard.removed(), pytest.raises(Violation) as found:
        Search(broken).run(guard.depth, via=guard.via)
    assert found.value.name == guard.breaks
    assert "one delivery is committed" in str(found.value)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_same_search_finds_nothing_behind_the_guard(guard: Guard, memory: MemoryStore) -> None:
    """With the guard in place, nothing is wrong within the same steps."""
    Search(Machine(guard.setting, memory)).run(guard.depth, via=guard.via, limit=200)


def test_guards_name_invariants_that_exist() -> None:
    """Each guard breaks one of the invariants, by its name."""
    known = {each.__name__ for each in INVARIANTS} | {"no_round_fails", "everything_ends"}
    assert {guard.breaks for guard in GUARDS} <= known
