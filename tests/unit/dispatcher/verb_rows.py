"""Subjects for verbs, with everything that a test does not name left ordinary."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from dispatcher.verb_subjects import Act, Replay, Situation, Subject, Wish
from outbox.records import DoubtedAttempt
from outbox.states import State
from tests.unit.dispatcher.rows import NOW, people

SAFE = Replay(offered=True, same_identity=True, kept=True, window_open=True)
"""Asked again under the same key, no second copy can come of it."""

LONG_OVER = NOW - timedelta(hours=1)

STATE: dict[Situation, dict[str, Any]] = {
    Situation.PENDING: {"state": State.PENDING},
    Situation.SENDING: {"state": State.SENDING, "owner": "me"},
    Situation.IN_DOUBT: {"state": State.IN_DOUBT},
    Situation.HELD: {"state": State.HELD, "held_from": State.PENDING, "reason": "operator"},
    Situation.HELD_IN_DOUBT: {
        "state": State.HELD,
        "held_from": State.IN_DOUBT,
        "reason": "operator",
    },
    Situation.ACCEPTED: {"state": State.ACCEPTED},
    Situation.FAILED: {"state": State.FAILED, "reason": "exhausted"},
    Situation.EXPIRED: {"state": State.EXPIRED, "send_before": LONG_OVER},
    Situation.CANCELLED: {"state": State.CANCELLED, "reason": "producer"},
    Situation.UNRESOLVED: {"state": State.UNRESOLVED},
}
"""The columns of a row in each situation."""

DOUBTFUL = {Situation.IN_DOUBT, Situation.HELD_IN_DOUBT, Situation.UNRESOLVED}


def doubted(*recipients: int, number: int = 1, **changes: Any) -> DoubtedAttempt:
    """An attempt that ended an hour ago, nobody knows how."""
    attempt = DoubtedAttempt(
        number=number,
        identity="memory:main",
        recipients=recipients or (0,),
        idempotency_key="key",
        request_digest="digest",
        request_kept=True,
        over_at=LONG_OVER,
    )
    return replace(attempt, **changes)


def subject(situation: Situation, *results: str, **changes: Any) -> Subject:
    """A delivery in this situation, with one recipient unless ``results`` name more."""
    plain = "pending" if situation is Situation.SENDING else situation.value
    results = results or ("held" if situation is Situation.HELD_IN_DOUBT else plain,)
    row = Subject(
        id=7,
        key="invoice:7:owner",
        account="main",
        state=State.PENDING,
        held_from=None,
        reason=None,
        owner=None,
        token=3,
        stop_requested=None,
        recipients=people(*results),
        doubted=(doubted(),) if situation in DOUBTFUL else (),
        transmitted=frozenset({0}) if situation in DOUBTFUL else frozenset(),
        dropped=frozenset(),
        send_after=NOW - timedelta(days=1),
        send_before=None,
        superseded_by=None,
        has_message=True,
        replay=SAFE if situation in DOUBTFUL else Replay(),
    )
    return replace(row, **{**STATE[situation], **changes})


def wish(act: Act, **changes: Any) -> Wish:
    """What is typed; ``move`` goes to the account ``backup``."""
    account = "backup" if act is Act.MOVE else None
    return replace(Wish(act, account=account), **changes)
