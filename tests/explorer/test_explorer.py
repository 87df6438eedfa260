"""Every invariant in every state near an enqueue and near the milestones; ``make explore`` goes on."""

from __future__ import annotations

import pytest

from outbox.states import WhenUnsure
from tests.explorer.__main__ import HEAD, line, main
from tests.explorer.machine import Machine
from tests.explorer.plans import MILESTONES, SETTINGS
from tests.explorer.search import Search, Tally
from tests.explorer.stores import MemoryStore
from tests.explorer.world import Setting


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_invariants_hold_near_every_milestone(setting: Setting, memory: MemoryStore) -> None:
    """B22, B23: no order of steps breaks an invariant, for any provider and any policy."""
    search = Search(Machine(setting, memory))
    total = Tally()
    for milestone in MILESTONES:
        tally = search.run(milestone.depth, via=milestone.via)
        total.states += tally.states
        total.transitions += tally.transitions
        total.seconds += tally.seconds
        total.deepest = max(total.deepest, len(milestone.via) + tally.deepest)
    total.complete = False
    print(HEAD, line(setting, total), sep="\n")
    assert total.states > 400
    assert total.transitions > 900


def test_a_path_is_told_by_its_steps(memory: MemoryStore) -> None:
    """A state that is named by steps nobody can take is refused, with those that can be taken."""
    search = Search(Machine(Setting("key", WhenUnsure.HOLD), memory))
    with pytest.raises(LookupError, match=r"no step begins with 'B marks'(?s:.*)A claims"):
        search.run(1, via=["B marks"])


def test_the_same_state_is_seen_once(memory: MemoryStore) -> None:
    """Two dispatchers with nothing in memory are interchangeable, and repeated steps lead nowhere new."""
    tally = Search(Machine(Setting("neither", WhenUnsure.HOLD), memory)).run(1)
    # Nothing, cancelled, claimed, claimed with the answer lost, send_before.
    assert tally.states == 5


def test_the_command_says_how_much_it_saw(capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m tests.explorer`` prints states and transitions of each setting, and the sum."""
    assert main(["--depth", "1", "--jobs", "1", "--only", "neither, hold"]) == 0
    said = capsys.readouterr().out
    assert "neither, hold" in said
    assert "0 violations" in said
