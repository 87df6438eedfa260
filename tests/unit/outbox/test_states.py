"""States: the fold over recipients and the table of transitions."""

from __future__ import annotations

import pytest

from outbox.states import FINAL, FOLD_ORDER, TRANSITIONS, RecipientResult, State, fold


def test_every_state_has_its_transitions() -> None:
    """The table is total, and no state leads to itself."""
    assert set(TRANSITIONS) == set(State)
    assert all(state not in after for state, after in TRANSITIONS.items())


def test_final_states_yield_only_to_proof() -> None:
    """Late proof of acceptance ends any of them; else only an operator's retry goes back."""
    for state in FINAL - {State.ACCEPTED}:
        assert State.ACCEPTED in TRANSITIONS[state]
        assert TRANSITIONS[state] - {State.ACCEPTED} <= {State.PENDING}
    assert TRANSITIONS[State.ACCEPTED] == frozenset()


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ("pending", "pending"),
        ("accepted failed", "accepted"),
        ("accepted pending", "pending"),
        ("accepted in_doubt pending held", "in_doubt"),
        ("accepted held pending", "held"),
        ("cancelled failed expired", "expired"),
        ("cancelled failed", "failed"),
        ("unresolved expired", "unresolved"),
    ],
)
def test_the_state_is_the_fold_of_the_recipients(results: str, state: str) -> None:
    """In doubt before held before pending before accepted, then the other ends."""
    assert fold(RecipientResult(r) for r in results.split()) is State(state)


def test_the_fold_knows_every_result_once() -> None:
    """No result is left out of the order, and a delivery without recipients has no state."""
    assert sorted(FOLD_ORDER) == sorted(RecipientResult)
    with pytest.raises(ValueError, match="at least one recipient"):
        fold([])
