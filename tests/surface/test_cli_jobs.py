"""``postroom jobs preview`` from outside: what people type, see, and get as an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine

NIGHT = ("--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--since", "2026-03-28")


@pytest.fixture
def postroom(tmp_path: Path) -> CommandLine:
    """The command line in an empty folder: no configuration, no database."""
    return CommandLine(tmp_path)


def test_the_next_periods_as_json(postroom: CommandLine) -> None:
    """Rows with label, bounds and due in UTC, and the local time of due with its offset (B50)."""
    ended = postroom("jobs", "preview", *NIGHT, "--count", "3", "--json")
    assert (ended.code, ended.err) == (0, "")
    keys = ("label", "start", "end", "due", "due_local")
    assert [tuple(row[key] for key in keys) for row in ended.json] == [
        ("2026-03-28T01:30Z", "2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-28T01:30:00Z", "2026-03-28T02:30:00+01:00"),
        ("2026-03-29T01:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T03:00:00+02:00"),
        ("2026-03-30T00:30Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z", "2026-03-30T00:30:00Z", "2026-03-30T02:30:00+02:00"),
    ]  # fmt: skip
    assert [row["note"] for row in ended.json] == [
        "", "clock goes forward from 02:00 to 03:00: due when the gap ends", "",
    ]  # fmt: skip


def test_the_night_of_the_change_is_marked(postroom: CommandLine) -> None:
    """The table says what the clock does, and never shows a local time that does not exist."""
    ended = postroom("jobs", "preview", *NIGHT, "--count", "3")
    assert ended.code == 0
    title, _, head, *rows = ended.out.splitlines()
    assert title == "cron 30 2 * * * timezone=Europe/Berlin"
    assert head.split("  ")[0] == "PERIOD"
    assert "clock goes forward" not in rows[0] + rows[2]
    assert rows[1].endswith("clock goes forward from 02:00 to 03:00: due when the gap ends")
    assert "Sun 2026-03-29 03:00 +02:00" in rows[1]
    assert "2026-03-29 02:" not in ended.out


def test_calendar_periods_are_due_after_their_end(postroom: CommandLine) -> None:
    """``--since`` is compared with due, so the first row is the period that has just ended."""
    ended = postroom(
        "jobs", "preview", "--period", "weekly", "--at", "08:00", "--timezone", "Europe/Berlin",
        "--since", "2026-12-28", "--count", "2", "--json",
    )  # fmt: skip
    assert [(row["label"], row["end"], row["due"]) for row in ended.json] == [
        ("2026-W52", "2026-12-27T23:00:00Z", "2026-12-28T07:00:00Z"),
        ("2026-W53", "2027-01-03T23:00:00Z", "2027-01-04T07:00:00Z"),
    ]


SINCE = {
    "2026-12-28": "2026-12-28T07:00:00Z",
    "2026-12-28T07:00:00Z": "2026-12-28T07:00:00Z",
    "2026-12-28T08:00:00+01:00": "2026-12-28T07:00:00Z",
    "2026-12-28T07:00:01Z": "2027-01-04T07:00:00Z",
}


@pytest.mark.parametrize("since", SINCE)
def test_since_is_inclusive(postroom: CommandLine, since: str) -> None:
    """What is due at that very instant is the first row."""
    ended = postroom(
        "jobs", "preview", "--period", "weekly", "--at", "08:00", "--timezone", "Europe/Berlin",
        "--since", since, "--count", "1", "--json",
    )  # fmt: skip
    assert [row["due"] for row in ended.json] == [SINCE[since]]


def test_every_value_of_a_rule_can_be_typed(postroom: CommandLine) -> None:
    """Each option ends up in the rule, whose text is the title of the table."""
    for options, title in {
        "--period daily --starts 06:00 --every 2 --anchor 2026-01-05 --due 8h --repeated second":
            "daily starts=06:00 every=2 anchor=2026-01-05 due=8h repeated=second timezone=UTC",
        "--period weekly --first sun --at 08:00": "weekly first=sun at=08:00 timezone=UTC",
        "--period monthly --day 31 --short-months skip":
            "monthly day=31 short_months=skip timezone=UTC",
        "--period yearly --month 4 --day 6": "yearly month=4 day=6 timezone=UTC",
        "--period hourly --minute 15": "hourly minute=15 timezone=UTC",
        "--cron @daily --timezone Asia/Kolkata": "cron 0 0 * * * timezone=Asia/Kolkata",
    }.items():  # fmt: skip
        ended = postroom("jobs", "preview", *options.split())
        assert ended.code == 0, ended.err
        assert ended.out.splitlines()[0] == title
        assert len(ended.out.splitlines()) == 13  # title, empty line, head, ten rows


def test_what_crontab_users_misread_is_said(postroom: CommandLine) -> None:
    """Weekday numbers and the "or" of two kinds of day are spelt out, with JSON beside it."""
    words = ("jobs", "preview", "--cron", "0 0 13 * 5", "--since", "2026-11-06", "--count", "3")
    ended = postroom(*words)
    assert "day of week 5 is Fri: numbers are as in crontab, where 0 and 7 are Sunday" in ended.out
    assert "day of month 13 or day of week 5: either is enough, as in crontab" in ended.out
    ended = postroom(*words, "--json")
    assert "either is enough" in ended.err
    assert [row["due_local"][:10] for row in ended.json] == [
        "2026-11-06",
        "2026-11-13",
        "2026-11-20",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "--period weekly"),
        ("--period daily --cron @daily", "one of them"),
        ("--period cron", "--cron"),
        ("--period fortnightly", "weekly"),
        ("--cron 30-2", "five fields"),
        ("--period daily --day 3", "day: "),
        ("--period daily --timezone Europe/Berln", "Europe/Berlin"),
        ("--period daily --since tomorrow", "2026-03-28"),
        ("--period daily --count 0", "count"),
    ],
)
def test_what_cannot_be_previewed(postroom: CommandLine, options: str, said: str) -> None:
    """A wrong rule is one line that says what to type instead, and exit code 2."""
    ended = postroom("jobs", "preview", *options.split())
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("width", [80, 150, 220])
def test_the_table_fits_a_terminal(postroom: CommandLine, width: int) -> None:
    """On a narrow terminal columns are left out, and nothing that is shown is cut."""
    out = postroom.on_terminal("jobs", "preview", *NIGHT, "--count", "3", width=width).out
    plain = [line for line in out.splitlines() if line.startswith(("2026", " "))]
    assert max(map(len, plain)) <= width
    assert "Sun 2026-03-29 03:00 +02:00" in out
    assert ("END LOCAL" in out) == (width > 200)
    assert ("START" in out) == (width > 140)
