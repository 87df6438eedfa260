"""When to try again, and when to stop trying. Pure; the only module that knows tenacity.

tenacity's strategies are asked with the *stored* attempts and times of a
delivery, not with a loop's: so the policy survives restarts, holds across
dispatchers, and can be tested without waiting. Its jitter strategies draw from
the process's global random source; here the random number is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tenacity import RetryCallState, stop_after_attempt, stop_after_delay, wait_exponential


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, for how long, and how far apart.

    ``attempts`` counts those that ended ``Unavailable`` or ``InDoubt``;
    ``window`` runs from the first of them and stands still while the account is
    paused; the delay doubles from ``first_delay`` to ``max_delay``.
    """

    attempts: int = 50
    window: timedelta = timedelta(hours=24)
    first_delay: timedelta = timedelta(seconds=5)
    max_delay: timedelta = timedelta(hours=1)


def exhausted(policy: RetryPolicy, attempts: int, elapsed: timedelta) -> bool:
    """Whether ``attempts`` counted attempts, ``elapsed`` since the first of them, are enough."""
    stop = stop_after_attempt(policy.attempts) | stop_after_delay(policy.window.total_seconds())
    return bool(stop(_asked(attempts, elapsed)))


def delay(policy: RetryPolicy, attempts: int, jitter: float) -> timedelta:
    """How long to wait after ``attempts`` counted attempts: full jitter.

    ``jitter`` is uniform in [0, 1); the result is uniform between nothing and
    the exponential bound, so that rows that failed together come back apart.
    """
    bound = wait_exponential(
        multiplier=policy.first_delay.total_seconds(), max=policy.max_delay.total_seconds()
    )
    return timedelta(seconds=bound(_asked(max(1, attempts), timedelta())) * jitter)


def _asked(attempts: int, elapsed: timedelta) -> RetryCallState:
    nothing: Any = None
    state = RetryCallState(retry_object=nothing, fn=None, args=(), kwargs={})
    state.attempt_number = attempts
    state.start_time = 0.0
    state.outcome_timestamp = elapsed.total_seconds()
    return state
