"""Every invariant in every state near an enqueue and near the milestones; ``make explore`` goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from outbox.states import WhenUnsure
from tests.explorer.__main__ import HEAD, line, main
from tests.explorer.machine import Machine
from tests.explorer.plans import (
    MILESTONES,
    MIXED,
    MIXED_MILESTONES,
    SETTINGS,
    VERB_MILESTONES,
    WITH_PEOPLE,
    Milestone,
)
from tests.explorer.search import Search, Tally
from tests.explorer.stores import MemoryStore
from tests.explorer.world import Setting


def _explored(setting: Setting, milestones: Sequence[Milestone], memory: MemoryStore) -> Tally:
    search = Search(Machine(setting, memory))
    total = Tally()
    for milestone in milestones:
        tally = search.run(milestone.depth, via=milestone.via)
        total.states += tally.states
        total.transitions += tally.transitions
        total.seconds += tally.seconds
        total.deepest = max(total.deepest, len(milestone.via) + tally.deepest)
    total.complete = False
    print(HEAD, line(setting, total), sep="\n")
    return total


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_invariants_hold_near_every_milestone(setting: Setting, memory: MemoryStore) -> None:
    """B22, B23: no order of steps breaks an invariant, for any provider and any policy."""
    total = _explored(setting, MILESTONES, memory)
    assert total.states > 250
    assert total.transitions > 500


@pytest.mark.parametrize("setting", WITH_PEOPLE, ids=str)
def test_the_invariants_hold_whatever_is_typed(setting: Setting, memory: MemoryStore) -> None:
    """B91: an operator who says what is true breaks no invariant, whenever a verb is typed."""
    assert _explored(setting, VERB_MILESTONES, memory).transitions > 300


@pytest.mark.parametrize("milestone", MIXED_MILESTONES, ids=lambda each: each.name)
@pytest.mark.parametrize("setting", MIXED, ids=str)
def test_the_invariants_hold_for_each_recipient_by_itself(
    setting: Setting, milestone: Milestone, memory: MemoryStore
) -> None:
    """A9: an answer may prove acceptance for one recipient, and leave the other in doubt."""
    Search(Machine(setting, memory)).run(milestone.depth, via=milestone.via, limit=300)


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
