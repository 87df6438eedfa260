"""What to do next about a delivery in doubt: the order of evidence, and its windows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.doubt import (
    DRAIN_MARGIN,
    Doubt,
    Doubted,
    HoldAs,
    LookUpNow,
    Means,
    ReplayNow,
    SendExtra,
    Step,
    WaitUntil,
    absence_counts,
    next_step,
)
from outbox.states import HeldReason, WhenUnsure
from providers.contract import Capabilities
from tests.unit.dispatcher.rows import NOW

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
KEYED = Capabilities(
    means=("replay",), replay="same_response", key_retention=24 * 3600.0, events=True
)
LOOKS_UP = Capabilities(
    means=("look_up",),
    look_up="by_message_id",
    index_lag=1800.0,
    look_up_retention=86400.0,
    events=True,
)
NEITHER = Capabilities()


def doubt(**changes: Any) -> Doubt:
    """In doubt since a minute ago, when its only attempt ended."""
    known = Doubt(
        attempts=(Doubted(1, "here", NOW - MINUTE),),
        first_transmitted_at=NOW - 2 * MINUTE,
        send_before=None,
        request_kept=True,
        budget_left=True,
        when_unsure=WhenUnsure.HOLD,
        extra_used=False,
        look_ups=0,
        looked_up_at=None,
    )
    return replace(known, **changes)


def means(capabilities: Capabilities, **changes: Any) -> Means:
    known = Means(
        identity="here",
        capabilities=capabilities,
        longest_send=timedelta(minutes=2),
        replay_margin=5 * MINUTE,
        evidence_wait=15 * MINUTE,
    )
    return replace(known, **changes)


def step(capabilities: Capabilities, at: timedelta = timedelta(), **changes: Any) -> Step:
    return next_step(doubt(**changes), means(capabilities), NOW + at)


def test_a_key_is_used_first() -> None:
    """A provider that knows the key is asked by replay, at once."""
    assert step(KEYED) == ReplayNow()


@pytest.mark.parametrize(
    ("before_the_end", "open_"),
    [(timedelta(seconds=1), False), (8 * MINUTE, True), (7 * MINUTE, False)],
)
def test_a_replay_must_end_inside_the_retention(before_the_end: timedelta, *, open_: bool) -> None:
    """B29: now + the longest send lies before first transmission + retention - margin."""
    first = NOW + before_the_end - 24 * HOUR
    found = step(KEYED, first_transmitted_at=first)
    assert (found == ReplayNow()) is open_


@pytest.mark.parametrize(
    "changes",
    [
        {"request_kept": False},
        {"budget_left": False},
        {"send_before": NOW},
        {"first_transmitted_at": NOW - 48 * HOUR},
    ],
)
def test_no_replay_without_its_conditions(changes: dict[str, Any]) -> None:
    """No kept bytes, no budget, past ``send_before`` or past the retention: never replayed."""
    assert step(KEYED, **changes) != ReplayNow()


def test_a_key_that_is_known_to_be_taken_is_not_sent_again() -> None:
    """A21: where "taken before" is no proof, hearing it again is none either: the provider is
    asked, or the policy decides."""
    told = (Doubted(1, "here", NOW - MINUTE), Doubted(2, "here", NOW - MINUTE, key_taken=True))
    assert step(replace(KEYED, events=False), attempts=told) == HoldAs(HeldReason.NO_EVIDENCE)
    both = replace(
        LOOKS_UP, means=("replay", "look_up"), replay="duplicate_error", key_retention=86400.0
    )
    assert step(both) == ReplayNow()
    assert step(both, attempts=told) == LookUpNow()


def test_a_changed_account_has_no_means_of_its_own() -> None:
    """A13: another endpoint or key scope knows nothing of this key; only events may come."""
    elsewhere = (Doubted(1, "there", NOW - MINUTE),)
    assert step(KEYED, attempts=elsewhere) == WaitUntil(NOW + 14 * MINUTE)
    assert step(KEYED, 14 * MINUTE, attempts=elsewhere) == HoldAs(HeldReason.ACCOUNT_CHANGED)


def test_a_changed_account_never_sends_again() -> None:
    """The policy's extra transmission is not for an account that is another one now."""
    elsewhere = (Doubted(1, "there", NOW - HOUR),)
    found = step(KEYED, attempts=elsewhere, when_unsure=WhenUnsure.SEND_AGAIN)
    assert found == HoldAs(HeldReason.ACCOUNT_CHANGED)


def test_without_any_means_the_policy_decides_at_once() -> None:
    """SMTP: nothing will ever prove it, so waiting helps nobody."""
    assert step(NEITHER) == HoldAs(HeldReason.NO_EVIDENCE)


def test_a_spent_budget_has_its_own_reason() -> None:
    """Held because of exhaustion, not for want of a means."""
    assert step(KEYED, HOUR, budget_left=False) == HoldAs(HeldReason.EXHAUSTED_IN_DOUBT)


def test_events_are_waited_for() -> None:
    """B5: after the key's window there is a wait longer than an event's delay."""
    gone: dict[str, Any] = {"first_transmitted_at": NOW - 48 * HOUR}
    assert step(KEYED, **gone) == WaitUntil(NOW + 14 * MINUTE)
    assert step(KEYED, 14 * MINUTE, **gone) == HoldAs(HeldReason.NO_EVIDENCE)


def test_send_again_waits_until_nothing_can_be_on_its_way() -> None:
    """A8, A6: a second copy is risked only after the first one's end, and the wait."""
    again: dict[str, Any] = {"when_unsure": WhenUnsure.SEND_AGAIN}
    assert step(NEITHER, **again) == WaitUntil(NOW + 14 * MINUTE)
    assert step(NEITHER, 14 * MINUTE, **again) == SendExtra()


def test_send_again_buys_one_transmission() -> None:
    """A8: doubt about the extra one is held."""
    again: dict[str, Any] = {"when_unsure": WhenUnsure.SEND_AGAIN, "extra_used": True}
    assert step(NEITHER, HOUR, **again) == HoldAs(HeldReason.NO_EVIDENCE)


def test_nothing_is_sent_after_send_before() -> None:
    """B2: past the deadline neither a replay nor the policy transmits."""
    again: dict[str, Any] = {"when_unsure": WhenUnsure.SEND_AGAIN, "send_before": NOW}
    assert step(KEYED, HOUR, **again) == HoldAs(HeldReason.NO_EVIDENCE)


def test_a_look_up_is_tried_early_and_again() -> None:
    """What is found early counts early; the distance between two look-ups grows."""
    assert step(LOOKS_UP) == LookUpNow()
    asked: dict[str, Any] = {"looked_up_at": NOW, "look_ups": 1}
    assert step(LOOKS_UP, **asked) == WaitUntil(NOW + timedelta(seconds=30))
    assert step(LOOKS_UP, timedelta(seconds=30), **asked) == LookUpNow()


def test_the_last_look_up_is_the_one_that_counts() -> None:
    """The schedule ends with a look-up at the instant from which absence counts."""
    conclusive = NOW - MINUTE + timedelta(minutes=30) + DRAIN_MARGIN
    asked: dict[str, Any] = {"looked_up_at": conclusive - timedelta(seconds=5), "look_ups": 9}
    assert step(LOOKS_UP, **asked) == WaitUntil(conclusive)


@pytest.mark.parametrize(
    ("begun", "counts"),
    [
        (timedelta(minutes=29), False),
        (timedelta(minutes=30), True),
        (timedelta(hours=23), True),
        (timedelta(hours=24), False),
    ],
)
def test_absence_counts_in_its_window_only(begun: timedelta, *, counts: bool) -> None:
    """A4: after the end of everything + lag + drain margin, and before the provider forgets."""
    assert absence_counts(doubt(), means(LOOKS_UP), NOW + begun) is counts


def test_the_end_of_everything_is_that_of_the_last_attempt() -> None:
    """A4: the clock of absence starts when no attempt can transmit any more."""
    two = (Doubted(1, "here", NOW - HOUR), Doubted(2, "here", NOW + HOUR))
    assert not absence_counts(doubt(attempts=two), means(LOOKS_UP), NOW + 31 * MINUTE)


def test_an_undocumented_lag_never_counts() -> None:
    """A4: without a documented lag absence proves nothing, unless the account says so."""
    unknown = replace(LOOKS_UP, index_lag=None)
    assert not absence_counts(doubt(), means(unknown), NOW + 20 * HOUR)
    trusted = means(unknown, assume_absent_after=HOUR)
    assert absence_counts(doubt(), trusted, NOW + HOUR)
    assert not absence_counts(doubt(), trusted, NOW + 50 * MINUTE)


def test_an_inconclusive_look_up_ends_in_a_hold() -> None:
    """With an unknown lag the row is asked for until the wait is over, then a person decides."""
    unknown = replace(LOOKS_UP, index_lag=None)
    asked: dict[str, Any] = {"looked_up_at": NOW + 14 * MINUTE, "look_ups": 6}
    assert step(unknown, 14 * MINUTE, **asked) == HoldAs(HeldReason.NO_EVIDENCE)


def test_heuristic_look_ups_settle_nothing() -> None:
    """They may inform a person; no decision rests on them."""
    assert step(replace(LOOKS_UP, look_up="heuristic"), HOUR) == HoldAs(HeldReason.NO_EVIDENCE)


def test_the_order_of_means_is_the_adapters() -> None:
    """A provider that wants to be asked first is asked first."""
    both = replace(KEYED, means=("look_up", "replay"), look_up="by_operation_id", index_lag=None)
    assert step(both) == LookUpNow()
    asked: dict[str, Any] = {"looked_up_at": NOW - timedelta(seconds=1), "look_ups": 1}
    assert step(both, **asked) == ReplayNow()
