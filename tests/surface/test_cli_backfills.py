"""``postroom jobs backfill`` from outside: what people type, see, and get as an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine

JOBS = """
from outbox.jobs import daily
from outbox.jobs.job import job
from outbox.jobs.subjects import Subject

SITES = [Subject("berlin", "Europe/Berlin"), Subject("boston", "America/New_York")]


@job("total", period=daily(), subjects=lambda: SITES, expects={"records": RECORDS})
def total(run):
    with run.finish():
        pass
"""

RANGE = ("--from", "2025-11-01", "--to", "2025-11-05")
DO_IT = ("--yes", "--reason", "late data", "--actor", "ana")


@pytest.fixture
def postroom(tmp_path: Path) -> CommandLine:
    """The command line in a folder with a job and a database."""
    line = CommandLine(tmp_path, {"POSTROOM_JOBS__MODULES": '["shop_jobs"]'})
    declare(line, records=0)
    assert line("init").code == 0
    assert line("migrate").code == 0
    return line


def declare(line: CommandLine, *, records: int) -> None:
    """Write the module of the job, of which as many records are expected."""
    (line.folder / "shop_jobs.py").write_text(JOBS.replace("RECORDS", str(records)))


def test_without_yes_an_order_only_says_what_it_would_do(postroom: CommandLine) -> None:
    """Number of runs, what is left out, the time at the limit; nothing is stored."""
    said = postroom("jobs", "backfill", "order", "total", *RANGE, "--runs-per-hour", "60")
    assert said.code == 0
    assert said.out.splitlines() == [
        "total: 2025-11-01 to 2025-11-05, 2 subjects",
        "",
        "PERIODS  WHAT WE KNOW                   WHAT HAPPENS",
        "     10  failed, skipped, or never run  run; what they enqueue is left out",
        "",
        "The first is berlin 2025-11-01, the last boston 2025-11-05.",
        "1 at once, 60 an hour at most: about 9 min 00 s.",
        'Nothing was changed. Add --yes --reason "…" to order it.',
    ]
    listed = postroom("jobs", "backfill", "list", "--json")
    assert (listed.code, listed.json["backfills"]) == (0, [])


def test_an_order_is_listed_paused_resumed_and_cancelled(postroom: CommandLine) -> None:
    """Each verb says what it did, wants a reason, and is in the audit trail."""
    assert postroom("jobs", "backfill", "order", "total", *RANGE, *DO_IT, "--json").json["id"] == 1
    [row] = postroom("jobs", "backfill", "list", "--json").json["backfills"]
    assert (row["state"], row["left"], row["ordered_by"]) == ("active", 10, "ana")
    assert postroom("jobs", "backfill", "pause", "1").code == 2
    why = ("--reason", "peak hours", "--actor", "ana")
    paused = postroom("jobs", "backfill", "pause", "1", *why)
    assert (paused.code, paused.out) == (0, "backfill 1 of total: paused\n")
    assert "paused: peak hours" in postroom("jobs", "backfill", "list").out
    assert postroom("jobs", "backfill", "resume", "1", *why).out == "backfill 1 of total: resumed\n"
    looked = postroom("jobs", "backfill", "cancel", "1")
    assert looked.out.endswith('Nothing was changed. Add --yes --reason "…" to do it.\n')
    done = postroom("jobs", "backfill", "cancel", "1", *DO_IT)
    assert (done.code, done.out) == (0, "backfill 1 of total: cancelled, and 0 runs of it\n")
    assert postroom("jobs", "backfill", "list").said.endswith("no backfill is active or paused\n")
    trail = postroom("audit", "--subject", "backfill 1", "--json").json["entries"]
    assert [each["action"] for each in trail] == [
        f"backfill {verb}" for verb in ("cancel", "resume", "pause", "order")
    ]


def test_a_changed_job_is_named_and_has_to_be_accepted(postroom: CommandLine) -> None:
    """An order is for the job as it was; going on with another is somebody's decision."""
    postroom("jobs", "backfill", "order", "total", *RANGE, *DO_IT)
    postroom("jobs", "backfill", "pause", "1", "--reason", "deployment")
    declare(postroom, records=1)
    refused = postroom("jobs", "backfill", "resume", "1", "--reason", "deployed")
    assert refused.code == 2
    assert refused.err.startswith("postroom: the definition of total is 1:")
    assert refused.err.endswith("add --accept-changes to go on with what is now\n")
    resumed = postroom("jobs", "backfill", "resume", "1", "--accept-changes", "--reason", "meant")
    assert resumed.code == 0


WRONG = {
    "an unknown job": (
        ("order", "other", *RANGE),
        "no job other is declared in the configured modules; known: total",
    ),
    "an unknown subject": (
        ("order", "total", *RANGE, "--subject", "rome"),
        'total has no subject "rome"; known: berlin, boston',
    ),
    "a label of another form": (
        ("order", "total", "--from", "2025-W44", "--to", "2025-W45"),
        'berlin: "2025-W44" is no label of this rule; write one like 2026-11-28',
    ),
    "a range that ends before it begins": (
        ("order", "total", "--from", "2025-11-05", "--to", "2025-11-01"),
        'berlin: no period begins from "2025-11-05" to "2025-11-01"',
    ),
    "no reason": (
        ("order", "total", *RANGE, "--yes"),
        "--reason is missing: say why; it goes into the audit trail",
    ),
    "no such backfill": (
        ("pause", "7", "--reason", "x"),
        "there is no backfill 7: see postroom jobs backfill list",
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_is_one_line(postroom: CommandLine, words: str) -> None:
    """Wrong usage names what is wrong, and changes nothing."""
    typed, line = WRONG[words]
    ended = postroom("jobs", "backfill", *typed)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"postroom: {line}")
