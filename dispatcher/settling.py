"""From an attempt's end to the decision about its delivery."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from dispatcher import decide
from dispatcher.wishes import End, InvalidEnd, LookUpEnd, Terms, WithheldEnd
from outbox.records import OpenAttempt, Settlement
from outbox.states import State
from providers.contract import Result


def decision(
    row: OpenAttempt, end: End, terms: Terms, *, at: datetime, jitter: float
) -> Settlement:
    """What ``end`` makes of the delivery in ``row``, under the terms of its account."""
    match end:
        case Result():
            policy = terms.policies[row.account]
            decided = decide.settle(row, end, policy, now=at, jitter=jitter)
            if terms.means[row.account].capabilities.means:
                return decided
            # Nothing can be asked, so there is nothing to wait for before the policy.
            in_doubt = decided.state is State.IN_DOUBT
            return replace(decided, due_at=at) if in_doubt else decided
        case WithheldEnd(reason):
            return decide.withheld(row, reason)
        case InvalidEnd(problem):
            return decide.invalid(row, problem)
        case LookUpEnd(finding, counts):
            return decide.looked_up(row, finding, counts=counts, now=at)
        case _:
            assert_never(end)
