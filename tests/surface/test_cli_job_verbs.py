"""``postroom jobs`` on declared jobs, from outside: what people type, see, and get as an exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import CommandLine

JOBS = """
import os
from pathlib import Path

import outbox
from outbox import Email
from outbox.jobs import Subject
from outbox.periods import cron, weekly


def sites():
    return [Subject("site-1", "Europe/Berlin", {"url": "https://example.org"}), Subject("site-2")]


@outbox.job("audit", period=weekly("mon"), due="+8h", subjects=sites, useful_for="3d", overdue_after="4h")
def audit(run):
    with run.finish() as tx:
        tx.enqueue(Email(to="ana@example.org", subject=run.label, text=run.subject.url), name="owner")


@outbox.job("sweep", period=cron("* * * * *", timezone="Etc/UTC"), attempts=1, overdue_after="1h")
def sweep(run):
    if Path("broken").exists():
        raise OSError("no room is left")
    if Path("slow").exists():
        Path("started").touch()
        while not run.stopping:
            pass
    with run.finish():
        pass
"""

LATER = (
    "import sqlite3, sys; c = sqlite3.connect('var/postroom.db'); "
    'c.execute("UPDATE outbox_schedules SET next_due_at = NULL, active_since = '
    "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-90 seconds') WHERE job = 'sweep'\"); c.commit()"
)
"""As if the jobs had been looked at a minute and a half ago."""


@pytest.fixture
def postroom(tmp_path: Path) -> CommandLine:
    """A folder with jobs and a database."""
    (tmp_path / "shop_jobs.py").write_text(JOBS)
    (tmp_path / "postroom.toml").write_text('[jobs]\nmodules = ["shop_jobs"]\n')
    made = CommandLine(tmp_path)
    assert made("migrate").code == 0
    return made


def ago(postroom: CommandLine) -> None:
    subprocess.run([sys.executable, "-c", LATER], cwd=postroom.folder, check=True)


def ticked(postroom: CommandLine) -> None:
    """The jobs are known, and one run of sweep is ready."""
    assert postroom("jobs", "tick").code == 0
    ago(postroom)


def failures(postroom: CommandLine) -> list[str]:
    """Labels of sweep's runs that failed for good."""
    shown = postroom("jobs", "show", "sweep", "--json").json
    return [run["label"] for run in shown["runs"] if run["state"] == "failed"]


def test_a_tick_plans_and_runs(postroom: CommandLine) -> None:
    """It says what it did, and is quiet about what went well; the second finds nothing to do."""
    ticked(postroom)
    done = postroom("jobs", "tick")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("; 1 complete\n")
    again = postroom("jobs", "tick", "--json")
    assert (again.code, again.json["planned"], again.json["needs_a_person"]) == (0, 0, False)


def test_a_run_that_failed_for_good_is_an_exit_code(postroom: CommandLine) -> None:
    """It needs a person; explain says why; retry makes it run again, under the same key."""
    (postroom.folder / "broken").touch()
    ticked(postroom)
    done = postroom("jobs", "tick")
    assert done.code == 1
    assert "1 failed for good" in done.out
    assert "failed for good (exhausted); attempt 1 failed: OSError: no room is left" in done.err
    [label] = failures(postroom)
    why = postroom("jobs", "explain", "sweep", "all", label)
    assert why.code == 1
    assert "failed for good" in why.out
    assert "OSError: no room is left" in why.out
    (postroom.folder / "broken").unlink()
    assert postroom("jobs", "retry", "sweep", "all", label).code == 2
    again = postroom("jobs", "retry", "sweep", "all", label, "--reason", "there is room")
    assert (again.code, "failed → planned" in again.out) == (0, True)
    assert postroom("jobs", "tick").code == 0
    now = postroom("jobs", "explain", "sweep", "all", label, "--json")
    assert (now.code, now.json["state"]) == (0, "succeeded")
    assert [each["outcome"] for each in now.json["attempts"]] == ["failed", "succeeded"]
    left = postroom("jobs", "retry", "sweep", "all", label, "--reason", "again")
    assert (left.code, "is succeeded; that is left as it is" in left.out) == (1, True)
    assert "run retry" in postroom("audit").out


def test_what_nobody_wants_is_cancelled(postroom: CommandLine) -> None:
    """A run that failed for good is overdue no more."""
    (postroom.folder / "broken").touch()
    ticked(postroom)
    postroom("jobs", "tick")
    [label] = failures(postroom)
    done = postroom("jobs", "cancel", "sweep", "all", label, "--reason", "not needed", "--json")
    assert (done.code, done.json["is_now"]) == (0, "cancelled")
    assert "was cancelled at" in postroom("jobs", "explain", "sweep", "all", label).out


def test_jobs_are_listed_and_shown(postroom: CommandLine) -> None:
    """Rules, subjects, what is next; also before anything has looked at them."""
    before = postroom("jobs", "list", "--json").json["jobs"]
    assert [(each["job"], each["known"]) for each in before] == [("audit", False), ("sweep", False)]
    assert "nothing has planned it yet" in postroom("jobs", "list").out
    ticked(postroom)
    shown = postroom("jobs", "list").out
    assert "weekly due=8h (each subject's time zone)" in shown
    audit = postroom("jobs", "show", "audit", "--json").json
    assert [each["subject"] for each in audit["schedules"]] == ["site-1", "site-2"]
    assert audit["definition"]["definition_version"].startswith("1:")
    assert "Useful for" in postroom("jobs", "show", "audit").out
    unknown = postroom("jobs", "show", "audi")
    assert (unknown.code, "no job audi is known: audit, sweep is" in unknown.err) == (2, True)


def test_a_job_is_previewed(postroom: CommandLine) -> None:
    """By its own rule; where each subject has its own time zone, one has to be named."""
    ticked(postroom)
    rows = postroom(
        "jobs", "preview", "audit", "site-1", "--since", "2026-03-30", "--count", "1", "--json"
    )
    assert [row["due"] for row in rows.json] == ["2026-03-30T06:00:00Z"]
    assert postroom("jobs", "preview", "sweep", "--count", "1").code == 0
    for words, said in (
        (("audit",), "has the time zone of each subject: name one, like site-1, site-2"),
        (("audit", "site-9"), "has no subject site-9"),
        (("audit", "site-1", "--cron", "* * * * *"), "a job has its own rule"),
        (("nope",), "no job nope is known"),
    ):
        done = postroom("jobs", "preview", *words)
        assert (done.code, said in done.err) == (2, True), done.err


def test_why_something_has_not_run(postroom: CommandLine) -> None:
    """For a period of any kind: to come, before its time, of no rule, of nobody."""
    ticked(postroom)
    assert "is due at 2031" in postroom("jobs", "explain", "audit", "site-1", "2031-W10").out
    assert (
        "before its schedule became active"
        in postroom("jobs", "explain", "audit", "site-1", "2020-W10").out
    )
    for words, said in (
        (
            ("audit", "site-1", "2026-11"),
            '"2026-11" is no label of this rule; write one like 2026-W48',
        ),
        (("audit", "site-9", "2026-W10"), "has no subject site-9; it has site-1, site-2"),
        (("nope", "site-1", "2026-W10"), "no job nope is known"),
    ):
        done = postroom("jobs", "explain", *words)
        assert (done.code, said in done.err) == (2, True), done.err


def test_overdue_is_an_exit_code(postroom: CommandLine) -> None:
    """Without any job's code, and without a worker; ``status`` says it too, in one line."""
    ticked(postroom)
    assert postroom("status", "--json").json["needs"] == []
    assert (postroom("jobs", "overdue").code, postroom("jobs", "overdue").out) == (
        0, "nothing is overdue\n",
    )  # fmt: skip
    change = LATER.replace("-90 seconds", "-2 hours")
    subprocess.run([sys.executable, "-c", change], cwd=postroom.folder, check=True)
    (postroom.folder / "postroom.toml").write_text("")
    done = postroom("jobs", "overdue", "--json")
    assert done.code == 1
    assert {each["state"] for each in done.json["overdue"]} == {None}
    shown = postroom("jobs", "overdue")
    assert (shown.code, "never planned" in shown.out) == (1, True)
    assert "postroom jobs explain sweep all" in shown.err
    status = postroom("status", "--json")
    [need] = [each for each in status.json["needs"] if each["what"] == "overdue"]
    assert (status.code, need["command"]) == (1, "postroom jobs overdue")


def test_schedules_are_added_changed_and_ended(postroom: CommandLine) -> None:
    """Each with its own rule, zone and policies; each with a line in the audit trail."""
    add = ("jobs", "schedules", "add", "audit", "site-3")
    done = postroom(
        *add, "--timezone", "Asia/Kolkata", "--rule", "daily at=08:00", "--missed", "all",
        "--useful-for", "2h", "--attributes", '{"url": "https://example.net"}', "--reason", "new",
    )  # fmt: skip
    assert (done.code, done.out) == (0, "added: audit site-3 (Asia/Kolkata)\n")
    assert postroom("jobs", "tick").code == 0
    [row] = [
        each for each in postroom("jobs", "schedules", "list", "audit", "--json").json["schedules"]
        if each["subject"] == "site-3"
    ]  # fmt: skip
    assert row["overrides"]["rule"] == "daily at=08:00"
    assert row["overrides"]["useful_for"] == 7200
    assert row["attributes"] == {"url": "https://example.net"}
    assert row["planned_rule"] == "daily at=08:00 due=8h timezone=Asia/Kolkata"
    changed = postroom(
        "jobs",
        "schedules",
        "change",
        "audit",
        "site-3",
        "--timezone",
        "Asia/Tokyo",
        "--rule",
        "job",
    )
    assert changed.code == 0
    assert postroom("jobs", "tick").code == 0
    assert "Asia/Tokyo" in postroom("jobs", "schedules", "list").out
    ended = postroom("jobs", "schedules", "end", "audit", "site-3", "--reason", "gone")
    assert (ended.code, ended.out) == (0, "ended: site-3\n")
    for words, said in (
        (add, None),
        (
            ("jobs", "schedules", "add", "audit", "site-1"),
            "is there, and active; change it instead",
        ),
        (("jobs", "schedules", "add", "nope", "x"), "no job nope is declared"),
        ((*add[:-1], "x", "--rule", "weekly first=someday"), "someday"),
        ((*add[:-1], "x", "--missed", "all", "--overlap", "skip"), 'missed="all" together with'),
        ((*add[:-1], "x", "--missed", "some"), "--missed is one of all, latest, none, or job"),
        ((*add[:-1], "x", "--attributes", "[1]"), "no JSON object"),
        ((*add[:-1], "x", "--timezone", "Mars"), '"Mars" is not in the time zone database'),
        (
            ("jobs", "schedules", "change", "audit", "site-1", "--timezone", "UTC"),
            "comes from the job's code",
        ),
        (("jobs", "schedules", "change", "audit", "site-1"), "nothing is to be changed"),
        (
            ("jobs", "schedules", "end", "audit", "site-1", "--reason", "x"),
            "comes from the job's code",
        ),
        (("jobs", "schedules", "pause", "audit", "--reason", "x"), "name subjects, or say --all"),
        (("jobs", "schedules", "pause", "audit", "site-1"), "--reason is missing"),
        (
            ("jobs", "schedules", "pause", "audit", "site-9", "--reason", "x"),
            "has no subject site-9",
        ),
    ):
        done = postroom(*words)
        assert (done.code, said is None or said in done.err) == (0 if said is None else 2, True), (
            done.said
        )
    trail = postroom("audit").out
    for action in ("schedule add", "schedule change", "schedule end"):
        assert action in trail


def test_paused_is_paused(postroom: CommandLine) -> None:
    """A subject, or the whole job; who resumes it makes up for nothing."""
    ticked(postroom)
    paused = postroom("jobs", "schedules", "pause", "sweep", "--all", "--reason", "disk is full")
    assert (paused.code, paused.out) == (0, "paused: sweep, the whole job\n")
    assert postroom("jobs", "tick", "--json").json["planned"] == 0
    assert "paused" in postroom("jobs", "show", "sweep").out.splitlines()[0]
    resumed = postroom(
        "jobs", "schedules", "resume", "sweep", "--all", "--reason", "more disk", "--json"
    )
    assert resumed.json == {"job": "sweep", "resumed": [None]}
    assert postroom("jobs", "tick", "--json").json["succeeded"] == 0
    one = postroom("jobs", "schedules", "pause", "audit", "site-1", "--reason", "x")
    assert one.out == "paused: audit, site-1\n"
    assert (
        postroom("jobs", "schedules", "pause", "audit", "site-1", "--reason", "x").out
        == "nothing was active\n"
    )


def test_a_worker_stops_when_it_is_asked_to(postroom: CommandLine) -> None:
    """SIGTERM: nothing new is started, what is under way may finish, and the exit code is 0."""
    (postroom.folder / "slow").touch()
    ticked(postroom)
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatcher", "jobs", "work", "--json"],
        cwd=postroom.folder,
        env=dict(postroom._environ()),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if '"RunStarted"' in line:
            break
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '"succeeded"' in said


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", "jobs.modules: is empty: name the modules that declare jobs"),
        ('[jobs]\nmodules = ["not_there"]', "jobs.modules: the module not_there cannot be imported"),
        ('[jobs]\nmodules = ["a b"]', "is no module: write its name like"),
        ('[jobs]\nmodule = ["a"]', 'jobs.module: is not a known key: did you mean "modules"?'),
        ('[jobs]\nconcurrency = 0', "jobs.concurrency: is 0; at least 1"),
        ('[jobs]\nalerts_to = ["ana@"]', "jobs.alerts_to[0]"),
        ('[jobs]\npoll_interval = 1', "jobs.poll_interval"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be(postroom: CommandLine, config: str, said: str) -> None:
    """One line names the key."""
    (postroom.folder / "postroom.toml").write_text(config)
    done = postroom("jobs", "tick")
    assert (done.code, said in done.err, "Traceback" in done.err) == (2, True, False), done.err


def test_budgets_of_a_tick(postroom: CommandLine) -> None:
    """It may plan only, or start nothing after a time."""
    ticked(postroom)
    planned = postroom("jobs", "tick", "--plan-only", "--json").json
    assert (planned["planned"], planned["succeeded"]) == (1, 0)
    assert postroom("jobs", "tick", "--within", "50s", "--json").json["succeeded"] >= 1
    assert postroom("jobs", "tick", "--within", "50").code == 2
    assert postroom("jobs", "tick", "--within", "5s", "--plan-only").code == 2
