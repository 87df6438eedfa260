"""Pairs of times: which cannot be safe, which only surprise, and which are fine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.unsafe import AccountTimes, Finding, LoopTimes, findings, spelled
from outbox.states import WhenUnsure
from providers.contract import Capabilities

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LOOP = LoopTimes(lease=MINUTE, poll_interval=SECOND, shutdown_grace=30 * SECOND)
KEYED = Capabilities(means=("replay",), replay="same_response", key_retention=86400.0)
ASKED = Capabilities(means=("look_up",), look_up="by_key")
LAGS = replace(ASKED, index_lag=1800.0)
FINE = AccountTimes(
    name="main",
    capabilities=Capabilities(),
    retry_attempts=50,
    retry_window=12 * HOUR,
    replay_margin=5 * MINUTE,
    evidence_wait=15 * MINUTE,
    assume_absent_after=None,
    when_unsure=WhenUnsure.HOLD,
    longest_send=2 * MINUTE,
    longest_answer=20 * SECOND,
)
AGAIN = {"when_unsure": WhenUnsure.SEND_AGAIN}


def found(**changes: Any) -> list[Finding]:
    return list(findings(LOOP, replace(FINE, **changes)))


@pytest.mark.parametrize(
    "offers", [Capabilities(), KEYED, ASKED, replace(KEYED, events=True)], ids=str
)
def test_times_that_can_be_safe_together_are_not_told(offers: Capabilities) -> None:
    """The usual times are fine, whatever the provider offers."""
    assert found(capabilities=offers) == []
    assert found(capabilities=offers, **AGAIN) == []


@pytest.mark.parametrize(
    ("key", "unsafe", "changes"),
    [
        ("replay_margin", True, {"capabilities": KEYED, "replay_margin": 24 * HOUR}),
        ("replay_margin", True, {"capabilities": KEYED, "longest_send": 24 * HOUR}),
        ("retry.window", False, {"capabilities": KEYED, "retry_window": 24 * HOUR}),
        ("retry.attempts", True, {"capabilities": KEYED, "retry_attempts": 1}),
        ("evidence_wait", False, {"capabilities": LAGS}),
        ("assume_absent_after", True, {"capabilities": ASKED, "assume_absent_after": SECOND}),
        ("assume_absent_after", False, {"assume_absent_after": HOUR}),
        (
            "assume_absent_after",
            False,
            {"capabilities": LAGS, "assume_absent_after": HOUR, "evidence_wait": HOUR},
        ),
        (
            "evidence_wait",
            False,
            {"capabilities": Capabilities(events=True), "evidence_wait": MINUTE},
        ),
        (
            "evidence_wait",
            True,
            {"capabilities": Capabilities(events=True), "evidence_wait": MINUTE, **AGAIN},
        ),
        ("evidence_wait", False, {"evidence_wait": SECOND, **AGAIN}),
    ],
)
def test_a_pair_of_an_account_is_found(key: str, unsafe: bool, changes: dict[str, Any]) -> None:  # noqa: FBT001
    """Each pair is named by the key to change, and says whether anything can make it good."""
    [finding] = found(**changes)
    assert (finding.key, finding.unsafe) == (f"accounts.main.{key}", unsafe)


def test_pairs_of_the_dispatcher_are_found() -> None:
    """A lease that is looked at too seldom cannot be safe; a short grace leaves doubt."""
    loop = LoopTimes(lease=5 * SECOND, poll_interval=2 * SECOND, shutdown_grace=10 * SECOND)
    assert [(each.key, each.unsafe) for each in findings(loop, FINE)] == [
        ("dispatcher.poll_interval", True),
        ("dispatcher.shutdown_grace", False),
    ]


def test_what_ends_first_is_said() -> None:
    """The retry window bounds retries, the key retention replays: which ends first is named."""
    [finding] = found(capabilities=KEYED, retry_window=24 * HOUR)
    assert "they end first, 23 h 53 min after the first transmission" in finding.text
    assert finding.text.endswith("what is in doubt then is held")
    [finding] = found(capabilities=KEYED, retry_window=24 * HOUR, **AGAIN)
    assert finding.text.endswith("what is in doubt then is sent again")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.05, "0.05 s"), (59.5, "59.5 s"), (90, "1 min 30 s"), (3600, "1 h"),
     (85980, "23 h 53 min"), (86400, "1 d"), (86460, "1 d"), (2_682_000, "31 d 1 h")],
)  # fmt: skip
def test_times_are_spelled_for_people(seconds: float, text: str) -> None:
    """The two largest units that follow each other."""
    assert spelled(timedelta(seconds=seconds)) == text
