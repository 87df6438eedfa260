"""Different runs have different keys, and so have their deliveries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.errors import InvalidKey
from outbox.jobs.run_keys import delivery_key, run_key
from outbox.limits_jobs import RUN_KEY_CHARACTERS
from outbox.states_jobs import RunKind

PART = st.text(st.sampled_from("abr2:%~/.Z é"), min_size=1, max_size=6)
RUN = st.tuples(
    PART,
    PART,
    PART,
    st.sampled_from([RunKind.PERIOD, RunKind.BACKFILL, RunKind.RANGE]),
    st.integers(1, 3),
)
NAMED = st.tuples(RUN, PART | st.just("r2") | st.just("backfill") | st.just("skipped"))


def _key(run: Any) -> str:
    job, subject, label, kind, revision = run
    return run_key(job, subject, label, kind=kind, revision=revision)


@given(RUN, RUN)
def test_two_runs_share_a_key_only_if_they_are_one(first: Any, second: Any) -> None:
    """Job, subject, label, kind and revision: whatever differs shows."""
    assert (_key(first) == _key(second)) is (first == second)


@given(NAMED, NAMED)
def test_two_deliveries_share_a_key_only_if_they_are_one(first: Any, second: Any) -> None:
    """A name cannot be taken for a kind or a revision, nor the other way round."""
    keys = [delivery_key(_key(run), name) for run, name in (first, second)]
    assert (keys[0] == keys[1]) is (first == second)


def test_keys_look_like_this() -> None:
    """The forms that people see."""
    parts = ("website-audit", "site-42", "2026-W48")
    assert run_key(*parts) == "website-audit:site-42:2026-W48"
    assert run_key(*parts, revision=2) == "website-audit:site-42:2026-W48:r2"
    assert run_key(*parts, kind=RunKind.LABEL) == run_key(*parts)
    backfill = run_key(*parts, kind=RunKind.BACKFILL, revision=2)
    assert backfill == "website-audit:site-42:2026-W48:backfill:r2"
    assert run_key("j", "s", "2026-10-25T00:30Z") == "j:s:2026-10-25T00%3A30Z"
    assert delivery_key(run_key(*parts), 7) == "website-audit:site-42:2026-W48:7"


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (("", "s", "l"), "part 1 of the key is empty"),
        (("j" * 101, "s", "l"), "the job of a run has 101 characters; at most 100"),
        (("j", "s" * 201, "l"), "the subject of a run has 201"),
        (("j", "s", "l" * 201), "the label of a run has 201"),
        (("j", "s" * 100, "l" * 100), f"at most {RUN_KEY_CHARACTERS}, so that its deliveries"),
    ],
)
def test_what_is_no_identity_is_refused(parts: tuple[str, str, str], problem: str) -> None:
    """At the beginning, not when the first delivery is enqueued after an hour of work."""
    with pytest.raises(InvalidKey, match=problem):
        run_key(*parts)
