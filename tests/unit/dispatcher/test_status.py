"""How the outbox is said to be doing: pure decisions about counts, needs and notes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.status import percentile, status
from dispatcher.status_records import Known, Setup
from dispatcher.waiting import waiting_for
from outbox.jobs.overdue import Overdue
from outbox.reports import AccountState, DispatcherState, Group, Overview, PendingGroup
from outbox.states import PauseReason, State, WaitingFor

NOW = datetime(2026, 11, 29, 3, 7, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LATER = NOW + MINUTE

# -- waiting for ------------------------------------------------------------- #


@pytest.mark.parametrize(
    ("due", "attempted", "paused", "word"),
    [
        (True, False, False, WaitingFor.SLOT),
        (True, True, False, WaitingFor.SLOT),
        (True, False, True, WaitingFor.ACCOUNT),
        (True, True, True, WaitingFor.ACCOUNT),
        (False, False, False, WaitingFor.SCHEDULE),
        (False, False, True, WaitingFor.SCHEDULE),
        (False, True, False, WaitingFor.RETRY),
        (False, True, True, WaitingFor.RETRY),
    ],
)
def test_what_a_pending_row_waits_for(
    due: bool,  # noqa: FBT001 - a table of cases
    attempted: bool,  # noqa: FBT001
    paused: bool,  # noqa: FBT001
    word: WaitingFor,
) -> None:
    """Its own time comes first; only a row whose time has come waits for its account or a slot."""
    assert waiting_for(due=due, attempted=attempted, account_paused=paused) is word


# -- status ----------------------------------------------------------------------- #

SETUP = Setup(
    "0.1.0", "0001", "x.db", "main", timedelta(seconds=60), {"main": Known("smtp", delivers=True)}
)
SEEN = Overview(NOW, "sqlite 3", "0001", (), (), (), (), {}, ())
DUE = PendingGroup("", due=True, attempted=False, rows=3, oldest=NOW - 2 * MINUTE)
ALIVE = DispatcherState("mail-1", 1, "0.1.0", 100, 4, NOW, NOW - timedelta(seconds=5))


def test_a_quiet_outbox_needs_nobody() -> None:
    """Nothing pending, nothing held: exit code 0, and the account is listed with zeros."""
    found = status(SEEN, SETUP)
    assert not found.needs_a_person
    assert [line.account for line in found.accounts] == ["main"]
    assert found.current


def test_mail_that_is_due_while_nobody_dispatches_needs_a_person() -> None:
    """Due for over a minute and no dispatcher alive: a need; with one alive, or just now, none."""
    [need] = status(replace(SEEN, pending=(DUE,)), SETUP).needs
    assert (need.count, need.command) == (3, "postroom dispatch")
    alive = replace(SEEN, pending=(DUE,), dispatchers=(ALIVE,))
    assert not status(alive, SETUP).needs
    silent = replace(ALIVE, seen_at=NOW - 2 * MINUTE)
    assert status(replace(alive, dispatchers=(silent,)), SETUP).needs
    just_now = replace(DUE, oldest=NOW - timedelta(seconds=30))
    assert not status(replace(SEEN, pending=(just_now,)), SETUP).needs


def test_held_and_doubtful_deliveries_need_a_person() -> None:
    """One need for each account and reason, with the oldest and the command that lists them."""
    groups = (
        Group("main", State.HELD, "no_evidence", 41, NOW - MINUTE),
        Group("", State.HELD, "operator", 1, NOW),
        Group("main", State.IN_DOUBT, None, 2, NOW),
        Group("main", State.SENDING, None, 8, NOW),
    )
    found = status(replace(SEEN, open=groups), SETUP)
    assert [(need.count, need.what, need.account) for need in found.needs] == [
        (2, "in doubt", "main"),
        (41, "held", "main"),
        (1, "held", "main"),
    ]
    assert found.needs[1].since == NOW - MINUTE
    assert found.needs[1].command == (
        "postroom deliveries list --state held --account main --reason no_evidence"
    )
    [line] = found.accounts
    assert (line.sending, line.in_doubt, line.held) == (8, 2, 42)


@pytest.mark.parametrize("reason", list(PauseReason))
def test_a_block_needs_a_person_and_a_break_does_not(reason: PauseReason) -> None:
    """Credentials or quota do not come back by themselves; a break that a provider asked for does."""
    paused = AccountState("main", "", "smtp", NOW - MINUTE, LATER, reason, "what it said")
    seen = replace(SEEN, pending=(DUE,), accounts=(paused,), dispatchers=(ALIVE,))
    found = status(seen, SETUP)
    transient = {PauseReason.THROTTLED, PauseReason.BREAKER, PauseReason.OPERATOR}
    assert found.needs_a_person is (reason not in transient)
    [notice] = found.needs or found.notes
    assert "3 deliveries wait" in notice.detail
    assert found.accounts[0].waiting_for[WaitingFor.ACCOUNT] == 3
    over = replace(paused, paused_until=NOW - MINUTE)
    assert not status(replace(seen, accounts=(over,)), SETUP).needs


def test_rows_that_name_no_account_are_the_default_accounts() -> None:
    """An unnamed row and a named one of the same account are counted together."""
    named = PendingGroup("main", due=False, attempted=True, rows=2, oldest=LATER)
    strange = PendingGroup("gone", due=False, attempted=False, rows=1, oldest=LATER)
    found = status(replace(SEEN, pending=(DUE, named, strange), dispatchers=(ALIVE,)), SETUP)
    gone, main = found.accounts
    assert main.waiting_for[WaitingFor.SLOT] == 3
    assert main.waiting_for[WaitingFor.RETRY] == 2
    assert gone.provider == ""
    assert gone.waiting_for[WaitingFor.SCHEDULE] == 1


def test_an_account_that_delivers_to_nobody_is_noted() -> None:
    """It is said every time, and needs nobody: it may be what is wanted."""
    setup = replace(SETUP, accounts={"main": Known("file", delivers=False)})
    found = status(SEEN, setup)
    assert not found.needs_a_person
    [note] = found.notes
    assert "delivers to nobody" in note.detail


def test_the_last_hour_is_told() -> None:
    """Counts, and percentiles of the latencies that were seen."""
    finished = {State.ACCEPTED: 4, State.FAILED: 1}
    found = status(replace(SEEN, finished=finished, latencies=(4.0, 1.0, 2.0, 3.0)), SETUP)
    hour = found.last_hour
    assert (hour.accepted, hour.failed, hour.expired) == (4, 1, 0)
    assert (hour.median_seconds, hour.p99_seconds) == (2.0, 4.0)
    assert hour.oldest_slot_seconds is None


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [((), 0.5, None), ((7.0,), 0.99, 7.0), ((1.0, 2.0), 0.5, 1.0), ((2.0, 1.0, 3.0), 0.5, 2.0)],
)
def test_percentiles(values: tuple[float, ...], share: float, value: float | None) -> None:
    """The smallest value that the share of them does not exceed."""
    assert percentile(values, share) == value


def test_runs_that_are_overdue_need_somebody() -> None:
    """One line for all of them: how many, also of those that are told in short, and the oldest."""
    late = Overdue("audit:a:p1", "audit", "a", "p1", NOW - 3 * MINUTE, NOW - 2 * MINUTE, None)
    [need] = status(SEEN, SETUP, [late]).needs
    assert (need.count, need.what, need.detail) == (1, "overdue", "audit:a:p1")
    assert (need.since, need.command) == (late.overdue_at, "postroom jobs overdue")
    [need] = status(SEEN, SETUP, [replace(late, more=4), replace(late, key="audit:b:p1")]).needs
    assert (need.count, need.detail) == (6, "the oldest is audit:a:p1")
