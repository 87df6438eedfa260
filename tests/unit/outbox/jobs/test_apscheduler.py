"""Triggers of APScheduler as rules: what is kept, what is refused, and where instants differ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox.jobs.apscheduler_compare import compare, firings
from outbox.jobs.apscheduler_events import label_of
from outbox.jobs.apscheduler_import import approval, import_jobs
from outbox.jobs.apscheduler_triggers import translate

pytest.importorskip("apscheduler", reason="APScheduler is not installed")
cron_module = pytest.importorskip("apscheduler.triggers.cron")
interval_module = pytest.importorskip("apscheduler.triggers.interval")
date_module = pytest.importorskip("apscheduler.triggers.date")
calendar_module = pytest.importorskip("apscheduler.triggers.calendarinterval")
combining_module = pytest.importorskip("apscheduler.triggers.combining")
background = pytest.importorskip("apscheduler.schedulers.background")

BERLIN = "Europe/Berlin"


def cron(**fields: Any) -> Any:
    return cron_module.CronTrigger(**{"timezone": BERLIN, **fields})


def interval(**values: Any) -> Any:
    return interval_module.IntervalTrigger(
        **{"timezone": BERLIN, "start_date": datetime(2026, 1, 5, 8, 30), **values}  # noqa: DTZ001
    )


def calendar(**values: Any) -> Any:
    return calendar_module.CalendarIntervalTrigger(
        **{"timezone": BERLIN, "start_date": "2026-01-31", "hour": 9, **values}
    )


def text(trigger: Any) -> str:
    translated = translate(trigger)
    assert translated.rule is not None, translated.problem
    return translated.rule.to_text()


# --------------------------------------------------------------------------- #
# Translation
# --------------------------------------------------------------------------- #

KEPT: list[tuple[Any, str]] = [
    (cron(hour=2, minute=30), "cron 30 2 * * *"),
    (cron(minute="*/15"), "cron */15 * * * *"),
    (cron(hour="8-18/2", minute=5), "cron 5 8-18/2 * * *"),
    (cron(minute="5/20"), "cron 5-59/20 * * * *"),
    (cron(month="jan-mar,12", day=1, hour=6), "cron 0 6 1 1-3,12 *"),
    (cron(day_of_week="mon-fri", hour=7), "cron 0 7 * * MON-FRI"),
    (cron(day_of_week="sat,sun", hour=7), "cron 0 7 * * SAT,SUN"),
    (cron(day_of_week="0", hour=7), "cron 0 7 * * MON"),
    (cron(day_of_week="6", hour=7), "cron 0 7 * * SUN"),
    (cron(day_of_week="*/2", hour=7), "cron 0 7 * * MON,WED,FRI,SUN"),
    (cron(day_of_week="0-6", hour=7), "cron 0 7 * * *"),
    (cron(day="last", hour=7), "cron 0 7 L * *"),
    (cron(day="2nd fri", hour=7), "cron 0 7 * * FRI#2"),
    (cron(day="last sun", hour=7), "cron 0 7 * * 0L"),
    (cron(day="1st mon, 3rd mon", hour=7), "cron 0 7 * * MON#1,MON#3"),
    (cron(day="8-14", day_of_week="tue", hour=7), "cron 0 7 * * TUE#2"),
    (cron(day="*/2", day_of_week="tue", hour=7), "cron 0 7 */2 * TUE"),
    (interval(minutes=1), "cron 0,1,2,3,4,5"),
    (interval(minutes=20), "cron 10,30,50 * * * *"),
    (interval(hours=1), "hourly minute=30"),
    (interval(hours=6), "hourly minute=30 every=6 anchor=2026-01-05T08:30"),
    (interval(days=1), "daily starts=08:30"),
    (interval(days=3), "daily starts=08:30 every=3 anchor=2026-01-05"),
    (interval(weeks=1), "weekly starts=08:30"),
    (interval(weeks=2), "weekly starts=08:30 every=2 anchor=2026-01-05"),
    (calendar(days=1), "daily starts=09:00"),
    (calendar(weeks=2), "weekly first=sat starts=09:00 every=2 anchor=2026-01-31"),
    (calendar(months=1), "monthly day=31 short_months=skip starts=09:00"),
    (calendar(years=1), "yearly day=31 starts=09:00"),
]


@pytest.mark.parametrize(("trigger", "expected"), KEPT, ids=[str(t) for t, _ in KEPT])
def test_what_means_the_same_is_kept(trigger: Any, expected: str) -> None:
    """The rule says it in our words, in the trigger's time zone."""
    written = text(trigger)
    assert written.startswith(expected)
    assert written.endswith("timezone=Europe/Berlin")


@pytest.mark.parametrize(
    "trigger",
    [trigger for trigger, expected in KEPT if not expected.startswith(("daily", "weekly"))],
    ids=str,
)
def test_what_is_kept_fires_at_the_same_instants(trigger: Any) -> None:
    """APScheduler itself is asked for a winter month: instant by instant they agree."""
    rule = translate(trigger).rule
    assert rule is not None
    since, until = datetime(2026, 1, 10, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    if "0,1,2,3" in rule.to_text():
        until = since + timedelta(hours=3)
    theirs = list(firings(trigger, since=since, until=until))
    ours = []
    for period in rule.due_since(since):
        if period.due >= until:
            break
        ours.append(period.due)
    assert ours == theirs


REFUSED: list[tuple[Any, str]] = [
    (cron(second="*/10"), 'second="*/10": a schedule is due at full minutes'),
    (cron(year=2027, month=1), 'year="2027": a schedule knows no years'),
    (cron(week=20, hour=1), 'week="20": a schedule knows no weeks'),
    (cron(day=13, day_of_week="fri", hour=1), 'day="13" and day_of_week="fri" have to match both'),
    (cron(day="last", day_of_week="fri"), 'day="last" and day_of_week="fri" have to match both'),
    (cron(day="2nd fri, 15"), 'day="2nd fri,15" and day_of_week="*" have to match both'),
    (cron(month=2, day=30), "bad day-of-month"),
    (interval(seconds=90), "every 0:01:30: a schedule counts whole minutes"),
    (interval(minutes=90), "every 90 minutes does not divide an hour"),
    (calendar(months=1, days=2), "months and days together are no rule"),
    (date_module.DateTrigger("2026-12-01 08:00:00", BERLIN), "it fires once, at 2026-12-01"),
    (combining_module.OrTrigger([cron(hour=1)]), "a OrTrigger is no cron"),
]


@pytest.mark.parametrize(("trigger", "problem"), REFUSED, ids=[str(t) for t, _ in REFUSED])
def test_what_would_be_something_else_is_refused(trigger: Any, problem: str) -> None:
    """There is no rule then, and one line that says why."""
    translated = translate(trigger)
    assert translated.rule is None
    assert problem in str(translated.problem)


def test_a_number_for_a_weekday_is_pointed_out() -> None:
    """from_crontab with 1 is Tuesday there, and Monday in every crontab."""
    trigger = cron_module.CronTrigger.from_crontab("0 8 * * 1", timezone=BERLIN)
    translated = translate(trigger)
    assert text(trigger) == "cron 0 8 * * TUE timezone=Europe/Berlin"
    assert translated.remarks == (
        (
            'day_of_week="1" is tue by APScheduler, which counts from Monday = 0, and is kept so; '
            "in crontab 0 is Sunday: look whether that is what was meant"
        ),
    )


def test_what_is_left_out_is_said() -> None:
    """Begin, end and jitter of a trigger are no part of a schedule."""
    trigger = cron(hour=1, start_date="2026-01-01", end_date="2027-01-01", jitter=30)
    assert [remark.split(" is left out")[0].split(" ")[1] for remark in translate(trigger).remarks] == [
        "start_date", "end_date", "jitter",
    ]  # fmt: skip


# --------------------------------------------------------------------------- #
# Comparison
# --------------------------------------------------------------------------- #

SPRING = datetime(2026, 3, 27, 12, tzinfo=UTC)


def test_the_gap_is_where_they_differ() -> None:
    """At 02:30 in the gap we are due at its end, APScheduler half an hour later (B50)."""
    trigger = cron(hour=2, minute=30)
    rule = translate(trigger).rule
    assert rule is not None
    found = compare(trigger, rule, since=SPRING, count=3)
    assert [(f"{row.at:%d %H:%M}", row.label is not None, row.fires) for row in found.rows] == [
        ("28 01:30", True, True),
        ("29 01:00", True, False),
        ("29 01:30", False, True),
        ("30 00:30", True, True),
    ]
    assert {f"{row.at:%m-%d}" for row in found.differences} >= {"03-29"}
    assert found.complete


def test_the_repeated_hour_is_where_they_differ() -> None:
    """APScheduler fires at both passes of 02:30, we are due at the first; it goes on after (B51)."""
    trigger = cron(hour=2, minute=30)
    rule = translate(trigger).rule
    assert rule is not None
    found = compare(trigger, rule, since=datetime(2026, 10, 24, tzinfo=UTC), count=3)
    assert [(f"{row.at:%d %H:%M}", row.label is not None, row.fires) for row in found.rows] == [
        ("24 00:30", True, True),
        ("25 00:30", True, True),
        ("25 01:30", False, True),
        ("26 01:30", True, True),
    ]


def test_a_daily_interval_moves_with_the_clock_and_a_schedule_does_not() -> None:
    """From the change on, every instant differs by an hour; the list is cut, and says so."""
    trigger = interval(days=1)
    rule = translate(trigger).rule
    assert rule is not None
    found = compare(trigger, rule, since=SPRING, count=4)
    assert [row.same for row in found.rows] == [True] + [False] * 5
    assert (len(found.differences), found.more > 300) == (10, True)


def test_a_frequent_rule_is_searched_where_clocks_change() -> None:
    """A year of minutes is too much to compare; its changes of the clock are not."""
    trigger = cron(minute="*/5", hour="0-4")
    rule = translate(trigger).rule
    assert rule is not None
    found = compare(trigger, rule, since=datetime(2026, 5, 1, tzinfo=UTC))
    assert not found.complete
    assert {f"{row.at:%m-%d}" for row in found.differences} <= {"10-25", "03-28"}


class Stuck:
    """A trigger that says the same instant for ever."""

    def get_next_fire_time(self, last: datetime | None, now: datetime) -> datetime:
        del last, now
        return SPRING


def test_a_trigger_that_does_not_move_on_is_left() -> None:
    """Asking it ends."""
    assert list(firings(Stuck(), since=SPRING, until=SPRING + timedelta(days=1))) == [SPRING]


def test_utc_never_differs() -> None:
    """Where no clock changes there is nothing to see."""
    trigger = cron(day="last", hour=2, minute=30, timezone="UTC")
    rule = translate(trigger).rule
    assert rule is not None
    found = compare(trigger, rule, since=SPRING)
    assert (found.differences, len(found.rows)) == ((), 10)


# --------------------------------------------------------------------------- #
# Whole schedulers
# --------------------------------------------------------------------------- #


def scheduler(*triggers: Any, **settings: Any) -> Any:
    made = background.BackgroundScheduler(timezone=BERLIN)
    for number, trigger in enumerate(triggers, 1):
        made.add_job(print, trigger, id=f"job-{number}", **settings)
    return made


def test_the_text_for_approval() -> None:
    """The rule, ten instants beside APScheduler's, differences of a year, and what to type."""
    lines = approval(scheduler(cron(hour=2, minute=30)), since=SPRING, count=2).splitlines()
    assert lines[:7] == [
        "job-1: cron[hour='2', minute='30'], Europe/Berlin",
        "  cron 30 2 * * * timezone=Europe/Berlin",
        "",
        "  POSTROOM                        APSCHEDULER                     LABEL",
        "  Sat 2026-03-28 02:30:00 +01:00  the same                        2026-03-28T01:30Z",
        "  Sun 2026-03-29 03:00:00 +02:00  -                               2026-03-29T01:00Z",
        "",
    ]
    assert lines[-4:] == [
        "  in code:",
        (
            '    @outbox.job("job-1", period="cron 30 2 * * * timezone=Europe/Berlin", '
            'missed="latest", overlap="skip")'
        ),
        "  as a schedule of a job that is declared:",
        (
            "    postroom jobs schedules add JOB SUBJECT --rule 'cron 30 2 * * *' "
            "--timezone Europe/Berlin"
        ),
    ]


@pytest.mark.parametrize(
    ("settings", "policies"),
    [
        ({}, ("latest", "skip", None)),
        ({"coalesce": False}, ("all", "wait", None)),
        ({"coalesce": False, "max_instances": 3}, ("all", "allow", None)),
        ({"misfire_grace_time": 3600}, ("latest", "skip", "3600s")),
        ({"misfire_grace_time": 1}, ("latest", "skip", None)),
    ],
)
def test_policies_come_near_to_its_settings(
    settings: dict[str, Any], policies: tuple[str, str, str | None]
) -> None:
    """Coalescing is latest, one instance is skip, and what excludes each other is not proposed."""
    [found] = import_jobs(scheduler(cron(hour=1), **settings))
    assert (found.missed, found.overlap, found.useful_for) == policies


def test_a_job_that_cannot_be_one_does_not_keep_the_others_away() -> None:
    """Each is told by itself."""
    whole = approval(scheduler(cron(second=5), cron(hour=1)), since=SPRING)
    assert 'cannot be a schedule: second="5"' in whole
    assert "cron 0 1 * * * timezone=Europe/Berlin" in whole


@pytest.mark.parametrize(
    ("at", "label"),
    [
        ("2026-03-28T02:30:00+01:00", "2026-03-28T01:30Z"),
        ("2026-03-28T01:30:17+00:00", "2026-03-28T01:30:17Z"),
        ("2026-03-28T01:30:17.250000+00:00", "2026-03-28T01:30:17.250000Z"),
    ],
)
def test_labels_of_recorded_runs(at: str, label: str) -> None:
    """The scheduled instant in UTC, as cron's periods write it; two runs never share one."""
    assert label_of(datetime.fromisoformat(at)) == label
