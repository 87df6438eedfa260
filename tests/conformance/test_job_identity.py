"""What makes two starts the same run: its key, its inputs, its calendar; and what else may be running."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import outbox
from tests.conformance.job_rig import (
    KEY,
    WEEK,
    attempts,
    complete,
    connected,
    database_now,
    finish,
    one,
    opened,
    week,
)
from tests.conformance.ledger import Counts, change, counts, mail, rows, with_invoices

ONE = Counts(deliveries=1, recipients=1, links=0, blobs=0, invoices=1)


@pytest.fixture
def url(database_url: str) -> str:
    """A database with a table of the application's own."""
    return with_invoices(database_url)


# --------------------------------------------------------------------------- #
# Inputs
# --------------------------------------------------------------------------- #


def test_other_inputs_under_a_complete_run_are_an_error(url: str) -> None:
    """The old result never stands for new input: both hashes and the field are named."""
    complete(url, inputs={"url": "https://example.org", "rules": "v6"})
    with pytest.raises(outbox.InputChanged) as changed:
        complete(url, inputs={"url": "https://example.org", "rules": "v7"}, invoice=2)
    error = changed.value
    assert error.fields == ("rules",)
    assert str(error) == (
        f'{KEY} was produced from inputs {error.was[2:6]}… ("rules": "v6"), now '
        f'{error.now[2:6]}… ("rules": "v7");\n  pass revision="new" to make :r2.'
    )
    assert counts(url) == ONE


def test_a_new_revision_is_a_run_of_its_own(url: str) -> None:
    """It has its own key and deliveries, knows what it replaces, and is complete in its turn."""
    complete(url, inputs={"rules": "v6"})
    with opened(url, inputs={"rules": "v7"}, revision="new") as run:
        assert (run.key, run.revision, run.replaces) == (f"{KEY}:r2", 2, KEY)
        finish(url, run, invoice=2)
    for revision in ("new", None, 2):
        said = complete(url, inputs={"rules": "v7"}, revision=revision)
        assert said.startswith(f"{KEY}:r2 is complete since")
    assert complete(url, inputs={"rules": "v6"}, revision=1).startswith(f"{KEY} is complete since")
    with pytest.raises(outbox.InputChanged, match=":r3"):
        complete(url, inputs={"rules": "v8"})
    assert [
        row[0] for row in rows(url, "SELECT delivery_key FROM outbox_deliveries ORDER BY 1")
    ] == [
        f"{KEY}:owner",
        f"{KEY}:r2:owner",
    ]


def test_inputs_do_not_bind_before_the_run_has_succeeded(url: str) -> None:
    """A changed input replaces the one of a failed attempt, and both attempts say theirs."""
    with pytest.raises(TimeoutError), opened(url, inputs={"rules": "v6"}):
        raise TimeoutError
    complete(url, inputs={"rules": "v7"})
    assert json.loads(one(url, "inputs")[0]) == {"rules": "v7"}
    (first,), (second,) = attempts(url, "a.input_hash")
    assert first != second


# --------------------------------------------------------------------------- #
# Time and others
# --------------------------------------------------------------------------- #


def test_a_run_that_is_too_late_is_skipped(url: str) -> None:
    """Past ``useful_for`` it is a row with its reason, and stays one, unless it is asked for."""
    due = database_now(url) - timedelta(hours=2)
    late: dict[str, Any] = {"period": week(due=due), "useful_for": timedelta(hours=1)}
    assert f"{KEY} is skipped (too late): it could start until" in complete(url, **late)
    assert f"{KEY} was skipped at" in complete(url, **late)
    assert one(url, "state, reason, attempts") == ("skipped", "too_late", 0)
    assert complete(url, again=True, **late).endswith("1 delivery pending")


def test_a_run_in_time_is_not_skipped(url: str) -> None:
    """Just before its deadline it starts."""
    due = database_now(url) - timedelta(hours=2)
    options: dict[str, Any] = {"period": week(due=due), "useful_for": timedelta(hours=3)}
    assert complete(url, overdue_after=timedelta(hours=1), **options).endswith("pending")
    assert one(url, "deadline_at > due_at, overdue_at < deadline_at") == (1, 1)


@pytest.mark.parametrize("policy", ["wait", "skip", "allow"])
def test_another_run_of_the_subject_is_running(url: str, policy: str) -> None:
    """B62: wait leaves it planned, skip writes a skipped row, allow runs both."""
    later = week("2026-W49")
    key = f"website-audit:site-42:{later.label}"
    with opened(url) as running:
        with opened(url, period=later, overlap=policy) as run:
            said = run.explain()
            assert run.mine is (policy == "allow")
            if run.mine:
                finish(url, run, invoice=2)
        with opened(url, subject="site-43", period=later, overlap=policy) as another:
            assert another.mine  # another subject never waits
            finish(url, another, invoice=3)
        finish(url, running)
    expected = {"wait": ("planned", None), "skip": ("skipped", "overlap")}
    assert one(url, "state, reason", key=key) == expected.get(policy, ("succeeded", None))
    if policy != "allow":
        assert KEY in said
    if policy == "wait":
        assert complete(url, period=later, invoice=4).endswith("pending")


def test_a_label_keeps_its_bounds(url: str) -> None:
    """The same key with another period is refused, whatever state the run is in."""
    complete(url)
    moved = type(WEEK)(WEEK.label, WEEK.start + timedelta(hours=6), WEEK.end, WEEK.due)
    with pytest.raises(outbox.KeyConflict, match="a run keeps its bounds"):
        complete(url, period=moved)
    with pytest.raises(outbox.KeyConflict, match="of another calendar"):
        complete(url, period=WEEK.label)
    day = type(WEEK)("2026-11-23", WEEK.start, WEEK.start + timedelta(days=1), WEEK.end)
    with pytest.raises(outbox.KeyConflict, match="website-audit:site-42:2026-W48 is there"):
        complete(url, period=day)


def test_a_database_that_was_not_migrated_is_named(url: str) -> None:
    """Opening a run on an older schema says what to do."""
    change(url, "UPDATE outbox_schema_version SET version_num = '0002'")
    with pytest.raises(outbox.SchemaTooOld, match="needs 0003"):
        complete(url)


def test_the_configured_database_is_the_default(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``database``, the variable or the file says where the run's row is."""
    monkeypatch.setenv("POSTROOM_DATABASE__URL", url)
    assert complete(url, database=None).endswith("1 delivery pending")
    assert one(url, "state") == ("succeeded",)


def test_deliveries_may_be_off(url: str) -> None:
    """A run without deliveries writes its rows and no mail."""
    with opened(url) as run:
        run.deliveries = False
        with connected(url) as connection, run.finish(connection) as tx:
            connection.execute("INSERT INTO invoices (id) VALUES (1)")
            done = tx.enqueue(mail(), name="owner")
    assert (done.id, done.created, done.key) == (0, False, f"{KEY}:owner")
    assert counts(url) == Counts(invoices=1)
    assert run.explain() == f"{KEY} is complete: no deliveries"
