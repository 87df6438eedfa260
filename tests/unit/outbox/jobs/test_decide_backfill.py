"""Which periods a backfill is for, what becomes of each, and how fast."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from outbox.jobs.decide_backfill import (
    InvalidBackfill,
    Judged,
    Track,
    Verdict,
    bounds,
    candidates,
    drift,
    estimate,
    hash_of,
    judge,
    room,
    slots,
)
from outbox.jobs.periods import cron, daily, hourly, monthly, weekly
from outbox.jobs.rules import Period, Rule
from outbox.records_backfills import Backfill, KnownRun, Made, Mark
from outbox.states_jobs import BackfillState, RunKind, RunState

NOW = datetime(2026, 12, 1, tzinfo=UTC)
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def track(rule: Rule, first: str, last: str, **more: Any) -> Track:
    start, end = bounds(rule, first, last)
    known = {"recorded": NOW, "active_since": NOW, "ordered_at": NOW, **more}
    return Track("site-42", rule, start, end, **known)


def labels(*tracks: Track, after: Mark | None = None) -> list[str]:
    return [each.period.label for each in candidates(tracks, after)]


# --------------------------------------------------------------------------- #
# Ranges
# --------------------------------------------------------------------------- #

RANGES: list[tuple[Rule, str, str, list[str]]] = [
    (weekly("mon"), "2026-W10", "2026-W12", ["2026-W10", "2026-W11", "2026-W12"]),
    (weekly("mon"), "2026-03-02", "2026-03-09", ["2026-W10", "2026-W11"]),
    (weekly("mon"), "2026-03-03", "2026-03-16", ["2026-W11", "2026-W12"]),
    (daily(), "2026-03-28", "2026-03-30", ["2026-03-28", "2026-03-29", "2026-03-30"]),
    (daily(), "2026-03-28", "2026-03-28", ["2026-03-28"]),
    (
        monthly(day=31),
        "2026-01-31",
        "2026-04-30",
        ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"],
    ),
    (
        cron("30 2 * * *"),
        "2026-03-28",
        "2026-03-29",
        ["2026-03-28T01:30Z", "2026-03-29T01:00Z"],
    ),
    (cron("30 2 * * *"), "2026-03-28T01:30Z", "2026-03-28T01:30Z", ["2026-03-28T01:30Z"]),
]


@pytest.mark.parametrize(("rule", "first", "last", "expected"), RANGES)
def test_a_range_is_inclusive_at_both_ends(
    rule: Rule, first: str, last: str, expected: list[str]
) -> None:
    """Labels name periods, local dates those that begin on them or between them (B50, B58)."""
    assert labels(track(rule.in_zone(BERLIN), first, last)) == expected


def test_a_local_date_is_each_subjects_own() -> None:
    """The same words give the same local days in every zone, not the same instants."""
    found = {
        zone: labels(track(daily(timezone=zone), "2026-01-01", "2026-01-02"))
        for zone in (BERLIN, NEW_YORK, "Pacific/Auckland")
    }
    assert set(map(tuple, found.values())) == {("2026-01-01", "2026-01-02")}


def test_the_hour_that_comes_twice_is_two_periods() -> None:
    """A local date holds all 25 hours of the day of the change (B53)."""
    assert len(labels(track(hourly(timezone=BERLIN), "2026-10-25", "2026-10-25"))) == 25


@pytest.mark.parametrize(
    ("first", "last", "line"),
    [
        ("2026-W12", "2026-W10", 'no period begins from "2026-W12" to "2026-W10"'),
        ("2026-W60", "2026-W10", "or a local date like 2026-11-23"),
        ("2026-02-30", "2026-W10", '"2026-02-30" is no day of the calendar'),
        ("yesterday", "2026-W10", "write one like"),
    ],
)
def test_a_range_that_cannot_be_is_refused(first: str, last: str, line: str) -> None:
    """One line says what is wrong with the text, or that nothing lies between."""
    with pytest.raises(InvalidBackfill) as refused:
        bounds(weekly("mon", timezone="UTC"), first, last)
    assert line in str(refused.value)


def test_what_the_schedule_is_still_to_record_is_not_taken() -> None:
    """Behind the recorded end, periods are the schedule's own; a backfill would do them twice."""
    rule = daily(timezone="UTC")
    recorded = track(rule, "2026-11-01", "2026-11-30", recorded=at("2026-11-03"))
    assert labels(recorded) == ["2026-11-01", "2026-11-02"]
    new = track(
        rule, "2026-11-01", "2026-11-30", recorded=None, active_since=at("2026-11-03T12:00")
    )
    assert labels(new) == ["2026-11-01", "2026-11-02"]


def test_nothing_is_taken_that_was_not_due_when_it_was_ordered() -> None:
    """An order is for the past as it was then."""
    rule = daily(due="8h", timezone="UTC")
    assert labels(track(rule, "2026-11-28", "2027-01-05")) == ["2026-11-28", "2026-11-29"]


def test_subjects_take_turns() -> None:
    """Periods of all subjects are merged by their starts, and a mark goes on exactly behind it."""
    rule = daily(timezone="UTC")
    tracks = [
        replace(track(rule, "2026-11-01", "2026-11-03"), subject=name) for name in ("b", "a", "c")
    ]
    found = list(candidates(tracks, None))
    assert [(each.period.label[-2:], each.subject) for each in found] == [
        (day, name) for day in ("01", "02", "03") for name in "abc"
    ]
    for n, each in enumerate(found):
        assert list(candidates(tracks, each.mark)) == found[n + 1 :]
    assert all(one.mark != other.mark for one, other in pairwise(found))


# --------------------------------------------------------------------------- #
# Verdicts
# --------------------------------------------------------------------------- #

DAY = Period("2026-11-01", at("2026-11-01"), at("2026-11-02"), at("2026-11-02"))


def known(state: RunState, kind: RunKind = RunKind.PERIOD, **more: Any) -> KnownRun:
    values = {
        "id": 1,
        "key": "k",
        "subject": "site-42",
        "label": DAY.label,
        "period_start": DAY.start,
        "period_end": DAY.end,
        "backfill_id": 3 if kind is RunKind.BACKFILL else None,
        **more,
    }
    return KnownRun(kind=kind, state=state, **values)


VERDICTS = {
    **{(RunKind.PERIOD, state): Verdict.RUN for state in RunState},
    **{(RunKind.BACKFILL, state): Verdict.RUN for state in RunState},
    **{(RunKind.LABEL, state): Verdict.RUN for state in RunState},
    **{
        (kind, RunState.SUCCEEDED): Verdict.SUCCEEDED
        for kind in (RunKind.PERIOD, RunKind.BACKFILL, RunKind.LABEL)
    },
    **{
        (kind, state): Verdict.UNDER_WAY
        for kind in (RunKind.PERIOD, RunKind.BACKFILL, RunKind.LABEL)
        for state in (RunState.PLANNED, RunState.RUNNING)
    },
}


@pytest.mark.parametrize(("kind", "state"), VERDICTS)
def test_what_becomes_of_a_period_by_the_run_that_is_there(kind: RunKind, state: RunState) -> None:
    """Done or to be done by any kind of run: left out; else it is run."""
    assert judge(DAY, [known(state, kind)]).verdict is VERDICTS[kind, state]


def test_success_of_any_run_decides() -> None:
    """A run that failed beside one that has succeeded changes nothing."""
    done = known(RunState.SUCCEEDED, RunKind.BACKFILL)
    assert judge(DAY, [known(RunState.FAILED), done]) == Judged(Verdict.SUCCEEDED, done)


def test_a_period_is_known_by_its_bounds_too() -> None:
    """After a change of rule the same days may have another label; they were done all the same."""
    other = known(RunState.SUCCEEDED, label="another")
    assert judge(DAY, [other]).verdict is Verdict.SUCCEEDED
    apart = replace(other, period_end=at("2026-11-03"))
    assert judge(DAY, [apart]).verdict is Verdict.RUN


def test_a_run_of_an_earlier_backfill_is_taken_over() -> None:
    """It failed, so nothing of it is there: it is the same run. With other bounds it is not."""
    earlier = known(RunState.FAILED, RunKind.BACKFILL)
    assert judge(DAY, [known(RunState.SKIPPED), earlier]) == Judged(Verdict.RUN, earlier)
    assert judge(DAY, [replace(earlier, period_end=at("2026-11-03"))]).verdict is Verdict.UNDER_WAY


# --------------------------------------------------------------------------- #
# What was ordered, and how fast
# --------------------------------------------------------------------------- #

RULES = {"a": "daily timezone=UTC", "b": "daily timezone=Europe/Berlin"}
ORDER = Backfill(
    id=3,
    job="audit",
    subjects=None,
    rules=RULES,
    first="2026-11-01",
    last="2026-11-03",
    range_start=at("2026-11-01"),
    range_end=at("2026-11-04"),
    state=BackfillState.ACTIVE,
    pause_reason=None,
    pause_detail=None,
    runs_per_hour=None,
    concurrency=2,
    deliveries=False,
    definition_version="1:aaaa",
    parameter_hash=hash_of(RULES),
    made=Made(),
    expected_runs=6,
    planned_runs=0,
    left_out=0,
    last_started_at=None,
    ordered_by="ana",
    note=None,
    created_at=NOW,
    updated_at=NOW,
    finished_at=None,
)


def test_an_order_that_means_the_same_does_not_drift() -> None:
    """Subjects that came later are none of its business."""
    assert drift(ORDER, "1:aaaa", RULES) is None
    assert drift(ORDER, "1:aaaa", {**RULES, "c": "daily timezone=UTC"}) is None


@pytest.mark.parametrize(
    ("version", "rules", "line"),
    [
        ("1:bbbb", RULES, "the definition of audit is 1:bbbb now, and this was ordered for 1:aaaa"),
        ("1:aaaa", {"a": RULES["a"]}, '"b" is no subject of audit any more'),
        (
            "1:aaaa",
            {**RULES, "b": "daily timezone=America/New_York"},
            (
                'the periods of "b" are "daily timezone=America/New_York" now, and this was '
                'ordered for "daily timezone=Europe/Berlin"'
            ),
        ),
    ],
)
def test_what_changed_is_named(version: str, rules: dict[str, str], line: str) -> None:
    """The line says what the order was for, and what is there now."""
    assert drift(ORDER, version, rules) == line


@pytest.mark.parametrize(
    ("changes", "running", "expected"),
    [
        ({}, 0, 2),
        ({}, 1, 1),
        ({}, 2, 0),
        ({}, 5, 0),
        ({"state": BackfillState.PAUSED}, 0, 0),
        ({"state": BackfillState.CANCELLED}, 0, 0),
        ({"state": BackfillState.DONE}, 0, 2),
        ({"runs_per_hour": 60}, 0, 1),
        ({"runs_per_hour": 60, "last_started_at": NOW - timedelta(seconds=59)}, 0, 0),
        ({"runs_per_hour": 60, "last_started_at": NOW - timedelta(seconds=60)}, 0, 1),
        ({"runs_per_hour": 60, "last_started_at": NOW - timedelta(hours=5)}, 0, 1),
        ({"runs_per_hour": 60, "last_started_at": NOW - timedelta(hours=5)}, 2, 0),
    ],
)
def test_how_many_may_start(changes: dict[str, Any], running: int, expected: int) -> None:
    """As many as were ordered less those that run; with a limit one, when its time has come."""
    assert slots(replace(ORDER, **changes), running, now=NOW) == expected


@pytest.mark.parametrize(
    ("limit", "busy", "expected"),
    [(4, 0, 3), (4, 2, 1), (4, 3, 0), (4, 4, 0), (1, 0, 1), (1, 1, 0)],
)
def test_one_of_several_places_is_kept(limit: int, busy: int, expected: int) -> None:
    """A live run finds a place of its own, whatever backfills do."""
    assert room(limit, busy) == expected


@pytest.mark.parametrize(
    ("per_hour", "concurrency", "seconds", "expected"),
    [
        (None, 1, None, None),
        (60, 1, None, timedelta(minutes=9)),
        (None, 1, 30.0, timedelta(minutes=5)),
        (None, 5, 30.0, timedelta(minutes=1)),
        (60, 1, 30.0, timedelta(minutes=9)),
        (60, 1, 90.0, timedelta(minutes=15)),
    ],
)
def test_the_estimate_is_the_slower_of_limit_and_work(
    per_hour: int | None, concurrency: int, seconds: float | None, expected: timedelta | None
) -> None:
    """Ten runs, by the limit and by how long runs took of late."""
    assert (
        estimate(10, runs_per_hour=per_hour, concurrency=concurrency, seconds=seconds) == expected
    )
