"""When to try again, and when to stop."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dispatcher.backoff import RetryPolicy, delay, exhausted

POLICY = RetryPolicy(
    attempts=5,
    window=timedelta(hours=2),
    first_delay=timedelta(seconds=5),
    max_delay=timedelta(minutes=1),
)


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 5), (1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (5000, 60)]
)
def test_the_bound_doubles_up_to_its_maximum(attempts: int, seconds: float) -> None:
    """Delays grow from the first to the longest and stay there, for any stored number."""
    assert delay(POLICY, attempts, 1.0) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("attempts", "elapsed", "over"),
    [
        (4, timedelta(minutes=119), False),
        (5, timedelta(0), True),
        (1, timedelta(hours=2), True),
    ],
)
def test_either_end_of_the_budget_stops_the_trying(
    attempts: int, elapsed: timedelta, *, over: bool
) -> None:
    """The cap on attempts and the window each end it."""
    assert exhausted(POLICY, attempts, elapsed) is over
