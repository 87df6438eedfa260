"""The rehearsal is only worth something if it fails when a guard is missing: each is taken out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

import dispatcher.doubt as doubts
from dispatcher import decide, reconcile, rounds
from dispatcher.config import Account, load
from dispatcher.rehearse import runner
from dispatcher.rehearse.drill import Played
from dispatcher.rehearse.fakes import FakeProvider, Fault, Kind
from dispatcher.rehearse.live import play_with
from dispatcher.rehearse.report import Report
from dispatcher.rehearse.setup import Setup
from dispatcher.rehearse.stage import Stage
from outbox import producer
from outbox.database import open_engine
from outbox.records import Granted, OpenAttempt, Refused
from outbox.states import AttemptOutcome, Phase, RecipientResult
from outbox.store import claim, late, marks, queue, settle
from providers.contract import Absent, Found, InDoubt, Inquiry, Unavailable

IN_PROCESS = [drill.name for drill in runner.DRILLS if not drill.children]
QUIET = runner.Progress(lambda *_: None, lambda _: None)


def rehearsed(url: str, *names: str, **variables: str) -> Report:
    """The report of these drills, with the scratch beside the database at ``url``."""
    environ = {f"POSTROOM_{name}": value for name, value in variables.items()}
    config = load(environ={"POSTROOM_DATABASE__URL": url, **environ})
    drills = [drill for drill in runner.DRILLS if drill.name in names]
    assert len(drills) == len(names)
    return runner.rehearse(config, config.accounts["main"], drills, QUIET)


def missed(report: Report) -> dict[str, tuple[str, ...]]:
    """What happened in the drills that did not go as they must."""
    return {line.name: line.happened for line in report.lines if not line.ok}


@pytest.fixture
def url(empty_sqlite_url: str) -> str:
    return empty_sqlite_url


# -- with its guards --------------------------------------------------------------- #


def test_every_drill_goes_as_it_must(empty_database_url: str) -> None:
    """With every guard in its place nothing is missed, and no trace of the rehearsal is left."""
    report = rehearsed(empty_database_url, *[drill.name for drill in runner.DRILLS])
    assert missed(report) == {}
    assert len(report.lines) == len(runner.DRILLS) + 1
    if report.database == "sqlite":
        assert list(Path(empty_database_url.removeprefix("sqlite:///")).parent.iterdir()) == []
        return
    engine = open_engine(empty_database_url)
    names = inspect(engine).get_schema_names()
    engine.dispose()
    assert [name for name in names if name.startswith("postroom")] == []


def test_policy_that_sends_again_goes_as_it_must(empty_database_url: str) -> None:
    """With ``send_again`` doubt ends in one more copy at most, which the row puts down to it."""
    report = rehearsed(
        empty_database_url,
        *IN_PROCESS,
        DEFAULTS__WHEN_UNSURE="send_again",
        ACCOUNTS__MAIN__PROVIDER="memory",
    )
    assert missed(report) == {}
    [line] = [line for line in report.lines if line.name == "lost-nothing"]
    assert line.happened[2:] == ("taken twice", "risk of a copy taken by send_again")


def test_short_times_are_rehearsed_as_they_are(url: str) -> None:
    """The smallest times that a configuration may have make no drill miss."""
    report = rehearsed(
        url,
        *IN_PROCESS,
        DISPATCHER__LEASE="5s",
        DISPATCHER__POLL_INTERVAL="50ms",
        ACCOUNTS__MAIN__PROVIDER="memory",
        ACCOUNTS__MAIN__EVIDENCE_WAIT="1s",
        ACCOUNTS__MAIN__RETRY="{ attempts = 2, first_delay = '100ms', max_delay = '100ms' }",
    )
    assert missed(report) == {}
    assert report.setup.lease == 5.0


# -- configurations that cannot be safe ---------------------------------------------- #


def test_a_margin_that_leaves_no_window_is_found(url: str) -> None:
    """The configuration is named, and the drill shows what becomes of a lost answer."""
    report = rehearsed(url, "lost-key", ACCOUNTS__MAIN__PROVIDER="file",
                       ACCOUNTS__MAIN__REPLAY_MARGIN="30d")  # fmt: skip
    found = missed(report)
    assert list(found) == ["configuration", "lost-key"]
    assert found["configuration"][0].startswith("accounts.main.replay_margin: 30 d leaves no time")
    assert "then held" in found["lost-key"]


def test_one_attempt_leaves_nothing_to_replay_with(url: str) -> None:
    """A budget that the lost answer uses up is found."""
    retry = "{ attempts = 1 }"
    report = rehearsed(
        url, "lost-key", ACCOUNTS__MAIN__PROVIDER="file", ACCOUNTS__MAIN__RETRY=retry
    )
    assert list(missed(report)) == ["configuration", "lost-key"]


def test_a_stop_without_grace_is_found(url: str) -> None:
    """A dispatcher that may not finish what is on its way leaves it in doubt."""
    report = rehearsed(url, "stopped", DISPATCHER__SHUTDOWN_GRACE="0s")
    assert "2 on their way: in doubt" in missed(report)["stopped"]


# -- without a guard ----------------------------------------------------------------- #

Patch = Callable[[pytest.MonkeyPatch], None]


def without(statement: Any, *columns: str) -> Any:
    """The same statement with no condition on these columns."""
    kept = [c for c in statement._where_criteria if not any(name in str(c) for name in columns)]
    assert len(kept) < len(statement._where_criteria)
    changed = statement._generate()
    changed._where_criteria = tuple(kept)
    return changed


def unconditioned(patch: pytest.MonkeyPatch, module: Any, name: str, *columns: str) -> None:
    """Take conditions out of a cached statement of the store."""
    build = getattr(module, name).__wrapped__
    patch.setattr(module, name, cache(lambda dialect: without(build(dialect), *columns)))


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """A settle that no longer asks whose lease it is."""
    patch.setattr(OpenAttempt, "ours", property(lambda _: True))
    unconditioned(patch, settle, "_settle", "lease_owner", "lease_token")


def no_lease_at_the_mark(patch: pytest.MonkeyPatch) -> None:
    """A mark that asks for owner and token alone: a lease that lapsed has both still."""
    unconditioned(patch, marks, "_mark", "lease_expires_at")


def refused_marks_are_granted(patch: pytest.MonkeyPatch) -> None:
    """A mark that changed nothing and is taken for one that was ours all along."""

    def read_back(_: Any, wanted: Any, __: str, at: datetime) -> dict[int, Granted | Refused]:
        return {each.id: Granted(at) for each in wanted}

    patch.setattr(marks, "_read_back", read_back)


def no_state_at_the_claim(patch: pytest.MonkeyPatch) -> None:
    """A claim that takes what somebody is sending."""
    patch.setattr(queue, "_TOGETHER", without(queue._TOGETHER, "state"))
    unconditioned(patch, claim, "_lease", "state")


def older_doubt_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An outcome that settles more than its own attempt."""
    decided = decide._recipient
    patch.setattr(
        decide,
        "_recipient",
        lambda row, outcome: decided(replace(row, result=RecipientResult.PENDING), outcome),
    )


def doubt_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    """What every other outbox does: no answer means try again."""
    decided = decide._recipient
    patch.setattr(
        decide,
        "_recipient",
        lambda row, outcome: decided(
            row, Unavailable("x") if isinstance(outcome, InDoubt) else outcome
        ),
    )


def no_window(patch: pytest.MonkeyPatch) -> None:
    """A replay at any time."""
    patch.setattr(doubts, "replay_open", lambda *_: True)


def absence_always_counts(patch: pytest.MonkeyPatch) -> None:
    """A look-up that is believed at once."""
    patch.setattr(reconcile, "absence_counts", lambda *_: True)


def absence_never_counts(patch: pytest.MonkeyPatch) -> None:
    """A look-up that is never believed."""
    patch.setattr(reconcile, "absence_counts", lambda *_: False)


def no_phases(patch: pytest.MonkeyPatch) -> None:
    """A lapsed lease that is read as if nothing had left."""
    decided = decide.lapsed
    patch.setattr(decide, "lapsed", lambda row: decided(replace(row, phase=Phase.CLAIMED)))


def late_proof_dropped(patch: pytest.MonkeyPatch) -> None:
    """A late acceptance that nobody listens to."""
    patch.setattr(late, "apply", lambda *_, **__: None)


def nothing_pauses(patch: pytest.MonkeyPatch) -> None:
    """A provider's wish to be left alone that is not obeyed."""
    patch.setattr(decide, "pause", lambda *_: None)


def throttling_costs(patch: pytest.MonkeyPatch) -> None:
    """Throttling that uses up attempts."""
    patch.setattr(decide, "counts", lambda _: True)


def keys_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A known key is known, whatever comes with it."""
    patch.setattr(producer, "_differs", lambda *_: False)


def extra_without_end(patch: pytest.MonkeyPatch) -> None:
    """A policy that takes its risk again and again."""
    decided = doubts.next_step
    patch.setattr(
        reconcile,
        "next_step",
        lambda doubt, *rest: decided(replace(doubt, extra_used=False), *rest),
    )


def refusals_are_tried_again(patch: pytest.MonkeyPatch) -> None:
    """A refusal that is taken for a delay."""
    decided = decide.settle

    def settled(row: OpenAttempt, result: Any, policy: Any, **how: Any) -> Any:
        done = decided(row, result, policy, **how)
        if done.end.outcome is not AttemptOutcome.REJECTED:
            return done
        return decided(row, replace(result, outcome=Unavailable("x")), policy, **how)

    patch.setattr(decide, "settle", settled)


@pytest.mark.parametrize(
    ("drill", "guard", "happened"),
    [
        ("changed", keys_are_not_compared, "known"),
        # The two may go on taking it from each other without end.
        ("concurrent", no_state_at_the_claim, None),
        ("lapsed-mark", no_lease_at_the_mark, "it sent"),
        ("taken-over", refused_marks_are_granted, "it sent"),
        ("stale-answer", no_fence, "became pending"),
        ("late-answer", late_proof_dropped, "then held"),
        ("late-answer", no_phases, "taken twice"),
        ("rejected", refusals_are_tried_again, "sent twice"),
        ("throttled", nothing_pauses, "asked twice"),
        ("throttled", throttling_costs, "3 attempts used"),
        ("refused-replay", older_doubt_forgotten, "after the replay: pending"),
        ("forgotten-key", no_window, "then in doubt"),
        ("lost-look-up", absence_always_counts, "taken twice"),
        ("absent-look-up", absence_never_counts, "then held"),
        ("absent-look-up", absence_always_counts, "asked too early"),
        ("lost-nothing", doubt_is_a_failure, "taken 3 times"),
        ("killed-nothing", no_phases, "taken twice"),
    ],
)
def test_a_missing_guard_is_missed(
    url: str, monkeypatch: pytest.MonkeyPatch, drill: str, guard: Patch, happened: str | None
) -> None:
    """Each guard that is taken out makes a drill miss, and the table says what happened."""
    with monkeypatch.context() as patch:
        guard(patch)
        report = rehearsed(url, drill, ACCOUNTS__MAIN__PROVIDER="memory")
    found = missed(report).get(drill, ())
    assert happened in found if happened else found, missed(report)


def test_an_extra_copy_without_end_is_missed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``send_again`` buys one extra transmission; a second one is found."""
    extra_without_end(monkeypatch)
    report = rehearsed(
        url,
        "lost-nothing",
        DEFAULTS__WHEN_UNSURE="send_again",
        ACCOUNTS__MAIN__PROVIDER="memory",
    )
    assert "taken 3 times" in missed(report)["lost-nothing"]


def test_a_drill_that_breaks_is_a_miss(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in a drill is told in its line, and the next one is played."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no rounds today")

    monkeypatch.setattr(rounds.Rounds, "run_once", broken)
    report = rehearsed(url, "repeated", "rejected")
    assert missed(report) == dict.fromkeys(
        ("repeated", "rejected"), ("RuntimeError: no rounds today",)
    )


# -- the user's own provider --------------------------------------------------------- #


@asynccontextmanager
async def staged(url: str, folder: Path) -> AsyncIterator[tuple[Stage, Account]]:
    """A stage on a migrated database, and the account whose times it has."""
    config = load(environ={"POSTROOM_DATABASE__URL": url})
    account = config.accounts["main"]
    setup = Setup.of(config, account, url=url, schema=None, folder=folder)
    async with Stage(setup) as stage:
        yield stage, account


async def live(stage: Stage, account: Account, fake: FakeProvider) -> Played:
    return await play_with(stage, replace(account, name=fake.name), fake, "ana@example.org")


@pytest.mark.parametrize(
    ("kind", "happened"),
    [
        (Kind.KEY, ("first: Accepted", "the same key again: the same id", "accepted")),
        (Kind.NOTHING, ("first: Accepted", "it can prove nothing: held")),
        (Kind.LOOK_UP, ("first: Accepted", "looked up: not found yet")),
    ],
)
async def test_the_answer_of_a_real_provider_is_lost(
    sqlite_url: str, tmp_path: Path, kind: Kind, happened: tuple[str, ...]
) -> None:
    """The dispatcher does what the provider's means allow, and sends no second copy."""
    async with staged(sqlite_url, tmp_path) as (stage, account):
        fake = stage.fake(kind)
        played = await live(stage, account, fake)
        assert played.happened == happened
        assert played.expected == played.happened
        assert stage.ledger.count(fake.name, "taken") == 1


async def test_a_provider_that_forgets_its_keys_is_found(sqlite_url: str, tmp_path: Path) -> None:
    """Two mails under one key are a miss: the provider is not what its adapter says."""
    async with staged(sqlite_url, tmp_path) as (stage, account):
        fake = stage.fake(Kind.KEY)
        fake.kind = Kind.NOTHING
        played = await live(stage, account, fake)
    assert played.happened[1].startswith("the same key again: another id (")
    assert played.expected != played.happened


async def test_a_provider_that_takes_nothing_is_found(sqlite_url: str, tmp_path: Path) -> None:
    """A refusal of the very first mail is told in the provider's words."""
    async with staged(sqlite_url, tmp_path) as (stage, account):
        fake = stage.fake(Kind.KEY, Fault.REFUSED)
        played = await live(stage, account, fake)
    assert played.happened == ("first: Rejected no such mailbox",)


async def test_a_fake_shows_nothing_before_its_lag(sqlite_url: str, tmp_path: Path) -> None:
    """The look-up that lags is late by the lag, and then finds what was taken."""
    async with staged(sqlite_url, tmp_path) as (stage, _):
        fake = stage.fake(Kind.LOOK_UP)
        await stage.enqueue("k", fake.name)
        await stage.dispatch(fake)
        [taken] = stage.ledger.entries(fake.name, "taken")
        assert taken.at > stage.clock() - stage.setup.index_lag
        question = Inquiry(taken.correlation, taken.key, "<x@y>", (), datetime.now(UTC))
        assert await fake.look_up(question) == Absent()
        await stage.pass_time(timedelta(seconds=stage.setup.index_lag))
        assert await fake.look_up(question) == Found(taken.answer)
