"""Declaring jobs, and finding them in modules."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import outbox
from outbox.jobs import InvalidJob, InvalidRule, Job, Subject, cron, weekly
from outbox.jobs.catalog import catalog_of, jobs_in, load_catalog
from outbox.jobs.failures import Backoff
from outbox.jobs.subjects import subject_of
from outbox.states_jobs import MissedPolicy, OverlapPolicy


def declared(name: str = "website-audit", **options: Any) -> Job:
    options = {"period": weekly("mon"), **options}
    return outbox.job(name, **options)(lambda _: None)


def test_a_job_says_what_it_promises() -> None:
    """The arguments make a definition; spans may be text."""
    job = declared(
        due="+8h", missed="latest", useful_for="3d", overlap="skip", overdue_after="4h",
        attempts=5, first_delay="90s", max_delay="2h", expects={"records": 1}, lease="5m",
        concurrency=2, priority=7,
    )  # fmt: skip
    said = job.definition
    assert said.rule.to_text() == "weekly due=8h"
    assert (said.missed, said.overlap) == (MissedPolicy.LATEST, OverlapPolicy.SKIP)
    assert (said.useful_for, said.overdue_after) == (timedelta(days=3), timedelta(hours=4))
    assert said.policy.attempts == 5
    assert said.policy.backoff == Backoff(timedelta(seconds=90), timedelta(hours=2))
    assert said.policy.expects.records == 1
    assert said.policy.lease == timedelta(minutes=5)
    assert (said.concurrency, said.priority) == (2, 7)


def test_a_job_can_be_called() -> None:
    """Its function stays what it was."""

    @outbox.job("double", period="daily timezone=Etc/UTC")
    def double(run: int) -> int:
        return 2 * run

    assert double(21) == 42
    assert (double.name, double.is_async) == ("double", False)


def test_a_coroutine_function_may_be_declared() -> None:
    """It is known as one."""

    @outbox.job("async", period="daily timezone=Etc/UTC")
    async def job(run: Any) -> None:
        del run

    assert job.is_async


VERSIONED: dict[str, Any] = {
    "period": weekly("sun"), "due": "1h", "missed": "all", "useful_for": "1h",
    "overlap": "skip", "overdue_after": "1h", "grace": "3m", "expects": {"output": True},
}  # fmt: skip
UNVERSIONED: dict[str, Any] = {
    "attempts": 3, "first_delay": "5s", "max_delay": "5m", "lease": "90s", "concurrency": 1,
    "priority": 1, "per_round": 7, "permanent": (KeyError,),
}  # fmt: skip


@pytest.mark.parametrize("name", [*VERSIONED, *UNVERSIONED])
def test_the_version_follows_what_is_promised(name: str) -> None:
    """It changes with the rule and the policies, not with how attempts are made."""
    changed = declared(**{name: {**VERSIONED, **UNVERSIONED}[name]})
    assert (changed.definition.version != declared().definition.version) is (name in VERSIONED)
    assert declared().definition.version.startswith("1:")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"missed": "all", "overlap": "skip"}, 'missed="all" together with overlap="skip"'),
        ({"missed": "some"}, 'missed is one of "all", "latest", "none"'),
        ({"overlap": "queue"}, 'overlap is one of "wait", "skip", "allow"'),
        ({"useful_for": "3"}, 'useful_for: "3" is no span of time like 90m, 8h or 3d'),
        ({"overdue_after": timedelta(-1)}, "overdue_after"),
        ({"attempts": 0}, "attempts is a whole number from 1 on"),
        ({"concurrency": True}, "concurrency is a whole number from 1 on"),
        ({"lease": "0s"}, "at least one second"),
        ({"expects": {"rows": 1}}, "expects.rows"),
        ({"period": 7}, "period is a number"),
    ],
)
def test_what_cannot_be_declared_says_so(options: dict[str, Any], words: str) -> None:
    """One line, with the name of the job and of the argument."""
    with pytest.raises(InvalidJob, match="job website-audit: ") as error:
        declared(**options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cron_period_is_due_at_its_tick() -> None:
    """So an offset is refused."""
    with pytest.raises(InvalidRule, match="due"):
        declared(period=cron("0 8 * * *"), due="1h")


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", 7])
def test_a_name_has_to_be_one(name: Any) -> None:
    """It is part of every run key."""
    with pytest.raises(InvalidJob, match="a job's name"):
        declared(name)


# --------------------------------------------------------------------------- #
# Subjects
# --------------------------------------------------------------------------- #


def test_a_subject_knows_its_attributes() -> None:
    """They are read like attributes; one that is not there says which are."""
    subject = Subject("site-42", "Europe/Berlin", {"url": "https://example.org", "title": "Site"})
    assert (subject.url, subject.title, f"{subject}") == ("https://example.org", "Site", "site-42")
    with pytest.raises(AttributeError, match='"site-42" has no attribute urk; it has title, url'):
        _ = subject.urk


def test_what_a_subjects_function_may_yield() -> None:
    """A Subject, a text, a number."""
    assert [subject_of(each).id for each in ("a", 7, Subject("b"))] == ["a", "7", "b"]


@pytest.mark.parametrize(
    "given", [None, True, 1.5, "", "x" * 201, Subject("a", None, {"id": 1}), Subject("")]
)
def test_what_is_no_subject(given: Any) -> None:
    """It is refused before anything is stored."""
    with pytest.raises(InvalidJob):
        subject_of(given)


# --------------------------------------------------------------------------- #
# Modules
# --------------------------------------------------------------------------- #


def test_jobs_are_found_where_they_are_declared(tmp_path: Path) -> None:
    """By the module's name, beside the configuration; nothing is registered anywhere."""
    (tmp_path / "found_here.py").write_text(
        "import outbox\n"
        "@outbox.job('b', period='daily timezone=Etc/UTC')\n"
        "def second(run): ...\n"
        "@outbox.job('a', period='daily timezone=Etc/UTC')\n"
        "def first(run): ...\n"
        "again = first\n"
    )
    try:
        catalog = load_catalog(["found_here"], tmp_path)
        assert [job.name for job in catalog] == ["a", "b"]
        assert len(catalog) == 2
        with pytest.raises(InvalidJob, match=r"no job c is declared .*; known: a, b"):
            catalog.named("c")
    finally:
        sys.path.remove(str(tmp_path))


def test_two_jobs_of_one_name_are_refused() -> None:
    """Their runs would be each other's."""
    with pytest.raises(InvalidJob, match="two jobs are called website-audit"):
        catalog_of([declared(), declared()])
    one = declared()
    assert len(catalog_of([one, one])) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "the module not_there_at_all cannot be imported: ModuleNotFoundError"),
        ("import outbox\n", "declares no job"),
        ("1 / 0\n", "cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_used(text: str | None, words: str, tmp_path: Path) -> None:
    """One line says which, and why."""
    name = "not_there_at_all"
    if text is not None:
        name = f"module_{abs(hash(text))}"
        (tmp_path / f"{name}.py").write_text(text)
    try:
        with pytest.raises(InvalidJob, match=words):
            load_catalog([name], tmp_path)
    finally:
        sys.path.remove(str(tmp_path))


def test_jobs_of_a_module() -> None:
    """Imported ones count too, other names do not."""
    module = ModuleType("m")
    job = declared()
    vars(module).update(a=job, b=7, c="website-audit")
    assert jobs_in(module) == [job]
