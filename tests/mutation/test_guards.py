"""The list of guards is true: each stands where it says, and its test and invariant exist."""

from __future__ import annotations

import re

import pytest

from tests.mutation.__main__ import ROOT
from tests.mutation.guards import GUARDS, Guard

INVARIANTS = set(range(1, 13))


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_stands_where_the_list_says(guard: Guard) -> None:
    """Its source is there once, taking it out leaves Python behind, and its test is there."""
    for cut in guard.cuts:
        text = (ROOT / cut.file).read_text("utf-8")
        assert text.count(cut.text) == 1, cut
        compile(text.replace(cut.text, cut.without), cut.file, "exec")
    file, _, test = guard.test.partition("::")
    named = rf"^(async )?def {test.partition('[')[0]}\("
    assert re.search(named, (ROOT / file).read_text("utf-8"), re.MULTILINE), guard.test


def test_every_invariant_has_a_guard() -> None:
    """None of ARCHITECTURE's twelve is without one that is really taken out."""
    assert {guard.invariant for guard in GUARDS} == INVARIANTS
    rows = re.findall(r"^\| (\d+) \| ", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE)
    assert set(map(int, rows)) == INVARIANTS
