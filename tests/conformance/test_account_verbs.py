"""Accounts stopped, started and tested by a person, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dispatcher import account_verbs, trial
from dispatcher.config import Config, load
from outbox import Email, enqueue
from outbox.records import Pause
from outbox.records_verbs import AccountRow
from outbox.states import PauseReason, State, WaitingFor
from outbox.store import account_verbs as store
from outbox.store import accounts
from outbox.store.reads import database_now
from providers.contract import Accepted, AccountBlocked, Throttled
from providers.memory import MemoryProvider
from tests.conformance.bench import Bench, opened
from tests.conformance.desk import configured
from tests.conformance.runs import drain

FAR = datetime(2999, 1, 1, tzinfo=UTC)


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


@pytest.fixture
def config(database_url: str) -> Config:
    return configured(database_url)


def pause(config: Config, *names: str, until: datetime | None = None) -> tuple[str, ...]:
    return account_verbs.pause(
        config, names or None, until=until, actor="eve@desk", note="provider is down"
    )


def resume(config: Config, *names: str) -> tuple[str, ...]:
    return account_verbs.resume(config, names or None, actor="eve@desk", note="works again")


def row(bench: Bench, account: str = "main") -> AccountRow:
    rows = bench.do(store.rows)
    return next(each for each in rows if each.account == account and not each.scope)


def test_a_paused_account_sends_nothing_until_it_is_resumed(
    bench: Bench, config: Config, database_url: str
) -> None:
    """A person's pause holds for every dispatcher; its rows stay pending and lose no attempt."""
    bench.enqueue(account="main")
    assert pause(config, "main") == ("main",)
    provider = MemoryProvider()
    drain(database_url, {"main": provider})
    assert provider.sent == []
    assert resume(config, "main") == ("main",)
    drain(database_url, {"main": provider})
    assert len(provider.sent) == 1
    found = account_verbs.audited(config, subject="main", limit=10)
    assert [(each.action, each.actor, each.note) for each in found] == [
        ("account resume", "eve@desk", "works again"),
        ("account pause", "eve@desk", "provider is down"),
    ]


def test_an_answer_does_not_end_a_persons_pause(
    bench: Bench, config: Config, database_url: str
) -> None:
    """What was in flight is accepted; the pause stays until its end or a resume."""
    bench.enqueue("first", account="main")

    async def meanwhile(message: object) -> Accepted:
        del message
        await asyncio.to_thread(pause, config, "main")
        return Accepted("1")

    drain(database_url, {"main": MemoryProvider(script=[meanwhile])})
    assert row(bench).pause_reason is PauseReason.OPERATOR
    bench.enqueue("second", account="main")
    provider = MemoryProvider()
    drain(database_url, {"main": provider})
    assert provider.sent == []


@pytest.mark.parametrize("answer", [Throttled(30.0), AccountBlocked("credentials", "401")])
def test_a_shorter_pause_does_not_replace_a_persons(
    bench: Bench, config: Config, database_url: str, answer: Throttled | AccountBlocked
) -> None:
    """A provider's pause that ends before the person's changes nothing of it."""
    bench.enqueue(account="main")

    async def meanwhile(message: object) -> Throttled | AccountBlocked:
        del message
        await asyncio.to_thread(pause, config, "main")
        return answer

    drain(database_url, {"main": MemoryProvider(script=[meanwhile])})
    found = row(bench)
    assert (found.pause_reason, found.paused_until) == (
        PauseReason.OPERATOR, store.UNTIL_RESUMED,
    )  # fmt: skip


def test_a_persons_pause_keeps_a_longer_end(bench: Bench, config: Config) -> None:
    """The provider said "not before"; a shorter pause by a person does not cut that short,
    and a second one by a person does."""
    until = datetime.now(UTC) + timedelta(hours=1)
    bench.do(
        lambda c: accounts.pause(
            c,
            [Pause("main", "", PauseReason.THROTTLED, FAR, "429")],
            at=database_now(c),
            by="a",
        )
    )
    pause(config, "main", until=until)
    assert row(bench).paused_until == FAR
    pause(config, "main", until=until)
    found = row(bench).paused_until
    assert found is not None
    assert abs(found - until) < timedelta(milliseconds=2)


def test_the_retry_window_stands_still_under_a_persons_pause(bench: Bench, config: Config) -> None:
    """The seconds of a pause are added up once, whether it ended or was ended."""
    pause(config, "main")
    bench.sql(
        "UPDATE outbox_accounts SET paused_since = :since",
        since=_text(datetime.now(UTC) - timedelta(hours=2)),
    )
    resume(config, "main")
    [sums] = bench.sql("SELECT paused_seconds FROM outbox_accounts WHERE account = 'main'")
    assert 7200 <= sums.paused_seconds < 7300
    assert resume(config, "main") == ()
    [again] = bench.sql("SELECT paused_seconds FROM outbox_accounts WHERE account = 'main'")
    assert again.paused_seconds == sums.paused_seconds


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def test_a_resume_ends_every_pause_and_forgets_failures(bench: Bench, config: Config) -> None:
    """Whoever paused it, sender domains too: the next pause starts short."""
    bench.do(
        lambda c: accounts.pause(
            c,
            [
                Pause("main", "", PauseReason.CREDENTIALS, FAR, "401"),
                Pause("main", "example.com", PauseReason.SENDER_DOMAIN, FAR, "403"),
            ],
            at=database_now(c),
            by="a",
        )
    )
    assert row(bench).failures == 1
    assert resume(config) == ("main",)
    rows = [each for each in bench.do(store.rows) if each.account == "main"]
    assert [(each.paused_until, each.failures) for each in rows] == [(None, 0), (None, 0)]


def test_all_means_every_account_that_is_known(bench: Bench, config: Config) -> None:
    """--all: those that are configured, and those that a dispatcher has published."""
    bench.sql("INSERT INTO outbox_accounts (account, provider) VALUES ('old', 'smtp')")
    assert pause(config) == ("backup", "main", "old")
    with pytest.raises(account_verbs.UnknownAccounts, match="no account mian; known: backup"):
        pause(config, "mian")


def test_what_is_seen_of_an_account(bench: Bench, config: Config) -> None:
    """Why it does not send, until when, by whom, and what waits for it."""
    bench.enqueue(account="main")
    pause(config, "main")
    _, found = account_verbs.seen(config)
    [backup, main] = found
    assert (backup.pauses, main.default, main.configured) == ((), True, True)
    [paused] = main.pauses
    assert (paused.reason, paused.until, paused.by) == (PauseReason.OPERATOR, None, "eve@desk")
    assert main.line is not None
    assert main.line.waiting_for[WaitingFor.ACCOUNT] == 1


# --------------------------------------------------------------------------- #
# accounts test
# --------------------------------------------------------------------------- #


def tried(config: Config, to: str = "me@example.com") -> trial.Tried:
    return asyncio.run(trial.trial(config, "main", to=to, sender=None, actor="eve@desk"))


def test_one_mail_goes_out_and_nothing_else(bench: Bench, config: Config) -> None:
    """The test is a delivery of its own; what is due, however urgent, is not touched by it."""
    bench.enqueue("due", account="main", priority=100)
    pause(config, "main")
    found = tried(config)
    assert (found.taken, found.state, found.outcome) == (True, State.ACCEPTED, "accepted")
    states = bench.sql("SELECT state, priority FROM outbox_deliveries ORDER BY id")
    assert [each.state for each in states] == ["pending", "accepted"]
    assert bench.attempts(found.id) == [("settled", "accepted")]
    [entry] = account_verbs.audited(config, subject="main", limit=1)
    assert (entry.action, entry.actor) == ("account test", "eve@desk")


def test_a_test_that_was_not_taken_is_not_tried_again(
    bench: Bench, database_url: str, tmp_path: Path
) -> None:
    """It is cancelled: a test mail that arrives hours later helps nobody."""
    (tmp_path / "mail").write_text("a file where the folder should be")
    config = load(
        environ={
            "POSTROOM_DATABASE__URL": database_url,
            "POSTROOM_ACCOUNTS__MAIN__PROVIDER": "file",
            "POSTROOM_ACCOUNTS__MAIN__DIRECTORY": str(tmp_path / "mail" / "inside"),
            "POSTROOM_DEFAULTS__FROM": "r@example.com",
        }
    )
    found = tried(config)
    assert (found.taken, found.state, found.outcome) == (False, State.CANCELLED, "unavailable")
    assert bench.row(found.id).state == "cancelled"


def test_a_blocked_sender_domain_is_said(bench: Bench, config: Config) -> None:
    """Nothing is written where the account may not send for this domain, and nothing else is sent."""
    bench.do(
        lambda c: accounts.pause(
            c,
            [Pause("main", "example.com", PauseReason.SENDER_DOMAIN, FAR, "403")],
            at=database_now(c),
            by="a",
        )
    )
    other = Email(to="ana@example.org", from_="r@other.example", text="x")
    bench.do(lambda c: enqueue(c, other, key="due", account="main"))
    with pytest.raises(trial.NoTrial, match="accounts show main"):
        tried(config)
    assert [each.state for each in bench.sql("SELECT state FROM outbox_deliveries")] == ["pending"]


def test_a_test_needs_a_sender(database_url: str) -> None:
    """Without any From address it says what to pass or to set."""
    config = load(
        environ={
            "POSTROOM_DATABASE__URL": database_url,
            "POSTROOM_ACCOUNTS__MAIN__PROVIDER": "memory",
        }
    )
    with pytest.raises(trial.NoTrial, match="--from"):
        tried(config)
