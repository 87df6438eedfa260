"""What a row becomes by a verb: its recipients, and the state folded from them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dispatcher.verb_effects import second_copies
from dispatcher.verb_subjects import Act, Situation, Subject
from dispatcher.verbs import Doing, decide
from outbox.records_verbs import Change, OperatorFact, successor_key
from outbox.states import TRANSITIONS, FailedReason, State, Verdict
from tests.unit.dispatcher.rows import NOW
from tests.unit.dispatcher.verb_rows import doubted, subject, wish

S = Situation
LATER = NOW + timedelta(days=1)


def done(act: Act, row: Subject, **changes: Any) -> Change:
    decision = decide(wish(act, **changes), row, NOW)
    assert isinstance(decision, Doing), decision
    return decision.change


def after(row: Subject, change: Change) -> list[str]:
    results = {r.position: r.result.value for r in row.recipients}
    return list((results | {u.position: u.result.value for u in change.recipients}).values())


@pytest.mark.parametrize(
    ("act", "situation", "before", "result", "state"),
    [
        (Act.RETRY, S.FAILED, ["failed", "cancelled"], ["pending", "cancelled"], "pending"),
        (Act.RETRY, S.EXPIRED, ["expired", "failed"], ["pending", "failed"], "pending"),
        (Act.RETRY, S.HELD, ["held", "accepted"], ["pending", "accepted"], "pending"),
        (Act.RETRY, S.IN_DOUBT, ["in_doubt", "pending"], ["in_doubt", "pending"], "in_doubt"),
        (Act.RETRY, S.HELD_IN_DOUBT, ["held", "held"], ["in_doubt", "pending"], "in_doubt"),
        (Act.SETTLE_ACCEPTED, S.IN_DOUBT, ["in_doubt", "failed"], ["accepted", "failed"], "accepted"),
        (Act.SETTLE_ACCEPTED, S.IN_DOUBT, ["in_doubt", "pending"], ["accepted", "pending"], "pending"),
        (Act.SETTLE_ACCEPTED, S.HELD_IN_DOUBT, ["held", "held"], ["accepted", "held"], "held"),
        (Act.SETTLE_NOT_ACCEPTED, S.IN_DOUBT, ["in_doubt", "accepted"], ["pending", "accepted"], "pending"),
        (Act.SETTLE_NOT_ACCEPTED, S.HELD_IN_DOUBT, ["held", "held"], ["pending", "pending"], "pending"),
        (Act.SETTLE_UNKNOWN, S.IN_DOUBT, ["in_doubt", "accepted"], ["unresolved", "accepted"], "accepted"),
        (Act.SETTLE_UNKNOWN, S.HELD_IN_DOUBT, ["held", "failed"], ["unresolved", "failed"], "unresolved"),
        (Act.SEND_AGAIN, S.HELD_IN_DOUBT, ["held", "pending"], ["unresolved", "cancelled"], "unresolved"),
        (Act.SEND_AGAIN, S.HELD_IN_DOUBT, ["held", "accepted"], ["unresolved", "accepted"], "accepted"),
        (Act.SEND_AGAIN, S.FAILED, ["failed"], ["failed"], "failed"),
        (Act.CANCEL, S.PENDING, ["pending", "accepted"], ["cancelled", "accepted"], "accepted"),
        (Act.CANCEL, S.PENDING, ["pending", "failed"], ["cancelled", "failed"], "failed"),
        (Act.CANCEL, S.HELD, ["held"], ["cancelled"], "cancelled"),
        (Act.CANCEL, S.IN_DOUBT, ["in_doubt", "pending"], ["held", "cancelled"], "held"),
        (Act.HOLD, S.PENDING, ["pending", "accepted"], ["held", "accepted"], "held"),
        (Act.HOLD, S.IN_DOUBT, ["in_doubt", "pending"], ["held", "held"], "held"),
        (Act.RELEASE, S.HELD, ["held", "failed"], ["pending", "failed"], "pending"),
        (Act.RELEASE, S.HELD_IN_DOUBT, ["held", "held"], ["in_doubt", "pending"], "in_doubt"),
        (Act.MOVE, S.PENDING, ["pending"], ["pending"], "pending"),
        (Act.MOVE, S.HELD, ["held"], ["held"], "held"),
    ],
)  # fmt: skip
def test_verbs_move_the_open_recipients(
    act: Act, situation: Situation, before: list[str], result: list[str], state: str
) -> None:
    """N14, A9: whoever is settled stays so, and the state is folded anew from all of them."""
    row = subject(situation, *before)
    changes = {"send_before": LATER} if situation is S.EXPIRED else {}
    change = done(act, row, **changes)
    assert after(row, change) == result
    assert change.state == state
    assert change.state is row.state or change.state in TRANSITIONS[row.state]
    assert (change.held_from is not None) == (change.state is State.HELD)
    with_reason = {State.HELD, State.FAILED, State.CANCELLED}
    assert (change.reason is not None) == (change.state in with_reason)
    assert (change.id, change.owner, change.token) == (7, row.owner, 3)


def test_held_out_of_doubt_says_so() -> None:
    """Where a row was held from decides what may be done to it later."""
    assert done(Act.HOLD, subject(S.PENDING)).held_from is State.PENDING
    assert done(Act.HOLD, subject(S.IN_DOUBT)).held_from is State.IN_DOUBT
    assert done(Act.CANCEL, subject(S.IN_DOUBT)).held_from is State.IN_DOUBT
    settled = done(Act.SETTLE_ACCEPTED, subject(S.HELD_IN_DOUBT, "held", "held"))
    assert (settled.held_from, settled.reason) == (State.PENDING, "operator")


def test_a_late_not_accepted_expires() -> None:
    """Past send_before nothing is sent any more: what was not taken has expired."""
    row = subject(S.HELD_IN_DOUBT, send_before=NOW)
    change = done(Act.SETTLE_NOT_ACCEPTED, row)
    assert (change.state, after(row, change)) == (State.EXPIRED, ["expired"])


def test_every_attempt_in_doubt_is_refuted() -> None:
    """None of them may be found in doubt again; those of others are left as they are."""
    attempts = (doubted(0), doubted(0, number=3), doubted(1, number=2))
    row = subject(S.IN_DOUBT, "in_doubt", "accepted", doubted=attempts)
    assert done(Act.SETTLE_NOT_ACCEPTED, row).facts == (
        OperatorFact(1, Verdict.NOT_TAKEN),
        OperatorFact(3, Verdict.NOT_TAKEN),
    )
    assert done(Act.SETTLE_ACCEPTED, row).facts == (OperatorFact(3, Verdict.TAKEN),)
    assert done(Act.SETTLE_UNKNOWN, row).facts == (OperatorFact(None, Verdict.UNKNOWN),)


def test_a_retry_is_due_now_with_a_new_budget_but_not_before_its_time() -> None:
    """What a producer scheduled for later is not sent earlier by a retry."""
    change = done(Act.RETRY, subject(S.FAILED))
    assert (change.due_at, change.refreshed) == (NOW, True)
    assert done(Act.RETRY, subject(S.HELD, send_after=LATER)).due_at == LATER
    replay = done(Act.RETRY, subject(S.HELD_IN_DOUBT))
    assert (replay.due_at, replay.refreshed) == (NOW, True)


def test_included_rejections_are_retried_beside_what_expired() -> None:
    """--include rejected also takes the address that was refused before the rest expired."""
    row = subject(S.EXPIRED, "expired", "failed")
    include = frozenset({FailedReason.REJECTED})
    assert after(row, done(Act.RETRY, row, include=include, send_before=LATER)) == ["pending"] * 2


@pytest.mark.parametrize("reason", ["unknown_account", "blocked_too_long"])
def test_a_move_frees_what_its_account_held_up(reason: str) -> None:
    """Held because of the account: with another one it goes on; held by a person it stays."""
    row = subject(S.HELD, reason=reason)
    change = done(Act.MOVE, row)
    assert (change.state, change.account, after(row, change)) == ("pending", "backup", ["pending"])
    kept = done(Act.MOVE, subject(S.HELD))
    assert (kept.state, kept.reason, kept.held_from) == ("held", "operator", State.PENDING)


@pytest.mark.parametrize(
    ("results", "dropped", "to", "twice"),
    [
        (["accepted"], [], (0,), {0}),
        (["accepted", "failed"], [], (1,), set()),
        (["accepted", "accepted"], [1], (1,), set()),
        (["accepted", "accepted"], [], (0, 1), {0, 1}),
        (["unresolved", "accepted"], [], (0,), {0}),
    ],
)
def test_a_second_sending_goes_to_whoever_does_not_have_it(
    results: list[str], dropped: list[int], to: tuple[int, ...], twice: set[int]
) -> None:
    """Those who provably have it are left out, unless all do; the risk names who may get two."""
    situation = S.UNRESOLVED if "unresolved" in results else S.ACCEPTED
    row = subject(situation, *results, dropped=frozenset(dropped))
    change = done(Act.SEND_AGAIN, row)
    assert change.again is not None
    assert change.again.recipients == to
    assert second_copies(row, change) == twice
    assert change.again.account == "main"
    by = done(Act.SEND_AGAIN, row, account="backup").again
    assert by is not None
    assert by.account == "backup"


def test_who_may_get_a_second_copy() -> None:
    """Only whoever may have it already, and to whom it goes all the same."""
    row = subject(S.HELD_IN_DOUBT, "held", "held")
    assert second_copies(row, done(Act.SEND_AGAIN, row)) == {0}
    assert second_copies(row, done(Act.SETTLE_NOT_ACCEPTED, row)) == {0}
    for act in (Act.RETRY, Act.SETTLE_ACCEPTED, Act.SETTLE_UNKNOWN, Act.RELEASE):
        assert second_copies(row, done(act, row)) == set()
    late = subject(S.HELD_IN_DOUBT, send_before=NOW)
    assert second_copies(late, done(Act.SETTLE_NOT_ACCEPTED, late)) == set()


@pytest.mark.parametrize(
    ("act", "situation", "state"),
    [
        (Act.CANCEL, S.PENDING, "cancelled"),
        (Act.HOLD, S.PENDING, "held"),
        (Act.RELEASE, S.HELD, "pending"),
        (Act.RETRY, S.FAILED, "pending"),
        (Act.SEND_AGAIN, S.CANCELLED, "cancelled"),
    ],
)
def test_a_row_whose_recipients_are_not_known_yet(
    act: Act, situation: Situation, state: str
) -> None:
    """A row by plain SQL has no recipients before its first claim; verbs work on it all the same."""
    row = subject(situation, recipients=())
    change = done(act, row)
    assert change.state == state
    assert (change.held_from is not None) == (change.state is State.HELD)


def test_keys_of_second_sendings_are_numbered() -> None:
    """K, K~2, K~3: the number belongs to the intention, not to the row that was acted on."""
    assert successor_key("k") == "k~2"
    assert successor_key("k~2") == "k~3"
    assert successor_key("k~9", 2) == "k~11"
    assert successor_key("k" * 253) == "k" * 253 + "~2"
    assert successor_key("k" * 254) is None
