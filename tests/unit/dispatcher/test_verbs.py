"""The operators' verbs: every cell of verb and situation, and every fact that must hold."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.doubt import DRAIN_MARGIN
from dispatcher.verb_effects import Effect
from dispatcher.verb_subjects import Act, Replay, Situation
from dispatcher.verb_words import KNOWN, PURPOSE, SUGGESTED, WHY, WILL
from dispatcher.verbs import SCOPE, TABLE, Doing, Left, Refused, Why, decide
from outbox.states import FailedReason, State, StopRequest
from tests.unit.dispatcher.rows import NOW
from tests.unit.dispatcher.verb_rows import SAFE, doubted, subject, wish

S = Situation
LATER = NOW + timedelta(days=1)

# What each verb does, said a second time in the words of a test: an effect, "left alone", or
# what is typed instead.
LEFT = "left alone"
SETTLING = {
    S.PENDING: ["cancel"],
    S.SENDING: ["hold"],
    S.HELD: ["retry", "cancel"],
    S.FAILED: ["retry"],
    S.EXPIRED: ["retry"],
    S.CANCELLED: ["send-again"],
}
CELLS: dict[Act, dict[Situation, Any]] = {
    Act.RETRY: {
        S.PENDING: LEFT,
        S.SENDING: LEFT,
        S.IN_DOUBT: Effect.REPLAYED,
        S.HELD: Effect.RETRIED,
        S.HELD_IN_DOUBT: Effect.REPLAYED,
        S.ACCEPTED: ["send-again"],
        S.FAILED: Effect.RETRIED,
        S.EXPIRED: ["--send-before T"],
        S.CANCELLED: ["send-again"],
        S.UNRESOLVED: ["send-again"],
    },
    Act.SETTLE_ACCEPTED: SETTLING
    | {
        S.IN_DOUBT: Effect.SETTLED_ACCEPTED,
        S.HELD_IN_DOUBT: Effect.SETTLED_ACCEPTED,
        S.ACCEPTED: LEFT,
        S.UNRESOLVED: ["send-again"],
    },
    Act.SETTLE_NOT_ACCEPTED: SETTLING
    | {
        S.IN_DOUBT: Effect.SETTLED_NOT_ACCEPTED,
        S.HELD_IN_DOUBT: Effect.SETTLED_NOT_ACCEPTED,
        S.ACCEPTED: ["send-again"],
        S.UNRESOLVED: ["send-again"],
    },
    Act.SETTLE_UNKNOWN: SETTLING
    | {
        S.IN_DOUBT: Effect.SETTLED_UNKNOWN,
        S.HELD_IN_DOUBT: Effect.SETTLED_UNKNOWN,
        S.ACCEPTED: ["send-again"],
        S.UNRESOLVED: LEFT,
    },
    Act.SEND_AGAIN: {
        S.PENDING: ["cancel"],
        S.SENDING: ["hold"],
        S.IN_DOUBT: ["hold", "settle"],
        S.HELD: Effect.CLOSED_AND_SENT_AGAIN,
        S.HELD_IN_DOUBT: Effect.CLOSED_AND_SENT_AGAIN,
        S.ACCEPTED: Effect.SENT_AGAIN,
        S.FAILED: Effect.SENT_AGAIN,
        S.EXPIRED: ["--send-before T"],
        S.CANCELLED: Effect.SENT_AGAIN,
        S.UNRESOLVED: Effect.SENT_AGAIN,
    },
    Act.CANCEL: {
        S.PENDING: Effect.CANCELLED,
        S.SENDING: Effect.CANCEL_ASKED,
        S.IN_DOUBT: Effect.STOPPED_IN_DOUBT,
        S.HELD: Effect.CANCELLED,
        S.HELD_IN_DOUBT: ["settle"],
        S.ACCEPTED: [],
        S.FAILED: LEFT,
        S.EXPIRED: LEFT,
        S.CANCELLED: LEFT,
        S.UNRESOLVED: LEFT,
    },
    Act.HOLD: {
        S.PENDING: Effect.HELD,
        S.SENDING: Effect.HOLD_ASKED,
        S.IN_DOUBT: Effect.HELD,
        S.HELD: LEFT,
        S.HELD_IN_DOUBT: LEFT,
        S.ACCEPTED: [],
        S.FAILED: LEFT,
        S.EXPIRED: LEFT,
        S.CANCELLED: LEFT,
        S.UNRESOLVED: LEFT,
    },
    Act.RELEASE: {
        S.PENDING: LEFT,
        S.SENDING: LEFT,
        S.IN_DOUBT: LEFT,
        S.HELD: Effect.RELEASED,
        S.HELD_IN_DOUBT: Effect.RELEASED_IN_DOUBT,
        S.ACCEPTED: ["send-again"],
        S.FAILED: ["retry"],
        S.EXPIRED: ["retry"],
        S.CANCELLED: ["send-again"],
        S.UNRESOLVED: ["send-again"],
    },
    Act.MOVE: {
        S.PENDING: Effect.MOVED,
        S.SENDING: ["hold"],
        S.IN_DOUBT: ["settle", "send-again"],
        S.HELD: Effect.MOVED,
        S.HELD_IN_DOUBT: ["settle", "send-again"],
        S.ACCEPTED: ["send-again"],
        S.FAILED: ["send-again"],
        S.EXPIRED: ["send-again"],
        S.CANCELLED: ["send-again"],
        S.UNRESOLVED: ["send-again"],
    },
}


def cells() -> Iterable[Any]:
    return [
        pytest.param(act, situation, CELLS[act][situation], id=f"{act} {situation}")
        for act in Act
        for situation in Situation
    ]


@pytest.mark.parametrize(("act", "situation", "expected"), cells())
def test_every_cell_of_the_table(act: Act, situation: Situation, expected: Any) -> None:
    """B91: each verb does to each row what the table says, or names what to type instead."""
    row = subject(situation)
    assert row.situation is situation
    decision = decide(wish(act), row, NOW)
    match decision:
        case Doing(effect):
            assert effect == expected
        case Left():
            assert expected == LEFT
        case Refused(_, instead):
            assert list(instead) == expected


def test_the_table_is_total_and_has_words() -> None:
    """No cell is missing, and each effect, reason, verb and situation has a sentence part."""
    assert all(set(TABLE[act]) == set(Situation) for act in Act)
    for words, kinds in (
        (KNOWN, Situation), (WILL, Effect), (WHY, Why), (PURPOSE, Act), (SUGGESTED, Situation),
        (SCOPE, Act),
    ):  # fmt: skip
        assert set(words) == set(kinds)


def refusal(act: Act, row: Any, at: Any = NOW, **changes: Any) -> tuple[Why, list[str]]:
    decision = decide(wish(act, **changes), row, at)
    assert isinstance(decision, Refused), decision
    return decision.why, list(decision.instead)


def change(act: Act, row: Any, **changes: Any) -> Any:
    decision = decide(wish(act, **changes), row, NOW)
    assert isinstance(decision, Doing), decision
    return decision.change


# --------------------------------------------------------------------------- #
# Facts
# --------------------------------------------------------------------------- #

DO = [
    (act, situation)
    for act in (Act.RETRY, Act.SETTLE_ACCEPTED, Act.SETTLE_NOT_ACCEPTED, Act.SETTLE_UNKNOWN,
                Act.SEND_AGAIN, Act.RELEASE)
    for situation in Situation
    if isinstance(CELLS[act][situation], Effect)
]  # fmt: skip


@pytest.mark.parametrize(("act", "situation"), DO)
def test_a_row_with_a_successor_stays_closed(act: Act, situation: Situation) -> None:
    """N2: after a second sending no verb opens the first; it names the successor."""
    row = subject(situation, superseded_by="invoice:7:owner~2")
    assert refusal(act, row) == (Why.SENT_AGAIN, [f"{act} invoice:7:owner~2"])


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("offered", Why.NO_REPLAY),
        ("same_identity", Why.ACCOUNT_CHANGED),
        ("kept", Why.REQUEST_GONE),
        ("window_open", Why.WINDOW_CLOSED),
    ],
)
@pytest.mark.parametrize("situation", [S.IN_DOUBT, S.HELD_IN_DOUBT])
def test_a_replay_needs_every_fact(situation: Situation, missing: str, why: Why) -> None:
    """A6, A13: in doubt, retry is only ever the same request to the same account in time."""
    facts = {"offered": True, "same_identity": True, "kept": True, "window_open": True}
    row = subject(situation, replay=Replay(**(facts | {missing: False})))
    assert refusal(Act.RETRY, row) == (why, ["settle", "send-again"])


@pytest.mark.parametrize("situation", [S.IN_DOUBT, S.HELD_IN_DOUBT])
def test_no_replay_after_send_before(situation: Situation) -> None:
    """After send_before nothing is transmitted, replays included; a new one allows it again."""
    row = subject(situation, send_before=NOW)
    assert refusal(Act.RETRY, row) == (Why.TIME_OVER, ["settle", "send-again"])
    assert change(Act.RETRY, row, send_before=LATER).send_before == LATER


@pytest.mark.parametrize(
    ("act", "situation"),
    [
        (Act.SETTLE_NOT_ACCEPTED, S.IN_DOUBT),
        (Act.SETTLE_NOT_ACCEPTED, S.HELD_IN_DOUBT),
        (Act.SEND_AGAIN, S.HELD_IN_DOUBT),
        (Act.SEND_AGAIN, S.UNRESOLVED),
    ],
)
def test_nothing_goes_out_while_the_first_may_still_leave(act: Act, situation: Situation) -> None:
    """A6: not before the end of every attempt in doubt and the drain of its sockets."""
    over = NOW - DRAIN_MARGIN
    attempts = (doubted(), doubted(number=2, over_at=over + timedelta(milliseconds=1)))
    row = subject(situation, doubted=attempts)
    decision = decide(wish(act), row, NOW)
    assert isinstance(decision, Refused)
    assert decision.why is Why.STILL_LEAVING
    assert decision.until == NOW + timedelta(milliseconds=1)
    assert list(decision.instead) == ["settle --as accepted", "settle --as unknown"]
    assert isinstance(decide(wish(act), row, decision.until), Doing)


@pytest.mark.parametrize("act", [Act.SETTLE_ACCEPTED, Act.SETTLE_UNKNOWN])
def test_what_sends_nothing_need_not_wait(act: Act) -> None:
    """Saying "accepted" or "unknown" sends nothing, so it is right at any time."""
    row = subject(S.HELD_IN_DOUBT, doubted=(doubted(over_at=LATER),))
    assert isinstance(decide(wish(act), row, NOW), Doing)


def test_refused_addresses_are_named_to_be_tried_again() -> None:
    """What a provider has refused for good is retried only when it is asked for."""
    row = subject(S.FAILED, reason="rejected")
    assert refusal(Act.RETRY, row) == (Why.REJECTED, ["--include rejected"])
    assert change(Act.RETRY, row, include=frozenset({FailedReason.REJECTED})).state == "pending"


@pytest.mark.parametrize("situation", [S.HELD, S.FAILED, S.EXPIRED])
def test_a_retry_needs_time(situation: Situation) -> None:
    """Past send_before a retry needs a new one, and that must lie ahead."""
    row = subject(situation, send_before=NOW)
    assert refusal(Act.RETRY, row) == (Why.TIME_OVER, ["--send-before T"])
    assert refusal(Act.RETRY, row, send_before=NOW)[0] is Why.TIME_OVER
    assert change(Act.RETRY, row, send_before=LATER).send_before == LATER
    scheduled = subject(situation, send_before=None, send_after=LATER)
    assert refusal(Act.RETRY, scheduled, send_before=LATER)[0] is Why.TIME_OVER


@pytest.mark.parametrize("act", [Act.RETRY, Act.SEND_AGAIN])
def test_without_its_message_nothing_is_sent(act: Act) -> None:
    """A final row whose body was cleaned up cannot be sent any more."""
    assert refusal(act, subject(S.FAILED, has_message=False)) == (Why.MESSAGE_GONE, [])


def test_a_key_without_room_for_a_number() -> None:
    """A key of full length cannot carry ``~2``; that is said, not cut."""
    row = subject(S.FAILED, key="k" * 254)
    assert refusal(Act.SEND_AGAIN, row) == (Why.KEY_TOO_LONG, [])


def test_a_second_sending_needs_time() -> None:
    """A second sending is wanted until its send_before, or until a new one."""
    row = subject(S.EXPIRED)
    assert change(Act.SEND_AGAIN, row, send_before=LATER).again.send_before == LATER
    kept = subject(S.FAILED, send_before=LATER)
    assert change(Act.SEND_AGAIN, kept).again.send_before == LATER


@pytest.mark.parametrize(
    ("situation", "instead"), [(S.HELD, ["retry"]), (S.HELD_IN_DOUBT, ["settle", "send-again"])]
)
def test_release_undoes_a_persons_hold_only(situation: Situation, instead: list[str]) -> None:
    """A6: what the rules have held wants a decision, not a release."""
    row = subject(situation, reason="no_evidence")
    assert refusal(Act.RELEASE, row) == (Why.HELD_BY_THE_RULES, instead)


@pytest.mark.parametrize(
    ("asked", "act", "stop"),
    [
        (None, Act.CANCEL, StopRequest.CANCEL),
        (None, Act.HOLD, StopRequest.HOLD),
        (StopRequest.HOLD, Act.CANCEL, StopRequest.CANCEL),
        (StopRequest.HOLD, Act.HOLD, None),
        (StopRequest.CANCEL, Act.CANCEL, None),
        (StopRequest.CANCEL, Act.HOLD, None),
    ],
)
def test_what_is_asked_of_a_row_in_flight(
    asked: StopRequest | None, act: Act, stop: StopRequest | None
) -> None:
    """A7: its dispatcher is told once, nothing else of the row changes; cancel wins over hold."""
    row = subject(S.SENDING, stop_requested=asked)
    decision = decide(wish(act), row, NOW)
    if stop is None:
        assert decision == Left(Why.ALREADY_ASKED)
        return
    assert isinstance(decision, Doing)
    made = decision.change
    assert (made.stop, made.state, made.before) == (stop, State.SENDING, State.SENDING)
    assert made.recipients == ()


@pytest.mark.parametrize("situation", [S.PENDING, S.HELD])
def test_only_what_never_left_is_moved(situation: Situation) -> None:
    """N14: it is the open recipients that count, and "refused" is one account's word."""
    left = subject(situation, transmitted=frozenset({0}))
    assert refusal(Act.MOVE, left) == (Why.HAS_LEFT, ["cancel", "send-again --by backup"])
    plain = "pending" if situation is S.PENDING else "held"
    partly = subject(situation, "accepted", plain, transmitted=frozenset({0}))
    assert change(Act.MOVE, partly).account == "backup"
    assert decide(wish(Act.MOVE, account="main"), subject(situation), NOW) == Left(Why.ALREADY)


def test_a_held_row_is_doubtful_by_its_attempts() -> None:
    """The row says "held from pending", an attempt in doubt carried the recipient: in doubt."""
    row = subject(S.HELD, doubted=(doubted(0),), replay=SAFE)
    assert row.situation is S.HELD_IN_DOUBT
    assert isinstance(decide(wish(Act.RETRY), row, NOW), Doing)
    assert refusal(Act.CANCEL, row) == (Why.MAY_HAVE_BEEN_TAKEN, ["settle"])
    others = subject(S.HELD, "accepted", "held", doubted=(doubted(0),))
    assert others.situation is S.HELD
