"""Accounts under trouble: blocks, probes, the breaker, sender domains, quarantine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from dispatcher.events import AccountPaused
from outbox import Email, enqueue_many
from outbox.records import AccountReport
from outbox.store import gates, reads
from providers.contract import (
    Accepted,
    AccountBlocked,
    InDoubt,
    InFlight,
    Message,
    Outcome,
    Permit,
    Rejected,
    Result,
    Throttled,
    Unavailable,
)
from providers.memory import BeforeMark, MemoryProvider
from tests.conformance.bench import Bench, opened
from tests.conformance.runs import drain

PAST = "'2026-01-01T00:00:00.000Z'"
BLOCKED = AccountBlocked("credentials", "401 invalid_api_key")


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


def enqueue(bench: Bench, number: int) -> None:
    for i in range(number):
        bench.enqueue(f"k{i}")


def pause_ends(bench: Bench) -> None:
    """Every pause has run out, and what waited for it is due."""
    bench.sql(f"UPDATE outbox_accounts SET paused_until = {PAST} WHERE paused_until IS NOT NULL")
    bench.due_now()


def account(bench: Bench) -> tuple[str | None, int, int]:
    [row] = bench.sql("SELECT * FROM outbox_accounts WHERE scope = ''")
    return row.pause_reason, row.failures, row.consecutive


def accepted(bench: Bench) -> int:
    count: int = bench.sql("SELECT count(*) FROM outbox_deliveries WHERE state='accepted'")[0][0]
    return count


def test_a_block_ends_with_a_probe_of_one(bench: Bench, database_url: str) -> None:
    """B73: after the pause one message goes; its answer opens the account for all."""
    enqueue(bench, 8)
    provider = MemoryProvider(script=[BLOCKED])
    drain(database_url, {"main": provider}, slots=1)
    assert len(provider.sent) == 1
    pause_ends(bench)
    provider.script.append(BLOCKED)
    drain(database_url, {"main": provider}, slots=5)
    assert (len(provider.sent), account(bench)[0]) == (2, "credentials")
    pause_ends(bench)
    drain(database_url, {"main": provider}, slots=5)
    assert (accepted(bench), account(bench)) == (8, (None, 0, 0))
    assert bench.sql("SELECT count(*) FROM outbox_deliveries WHERE attempts > 0")[0][0] == 0


def test_a_probe_is_one_for_all_dispatchers(bench: Bench) -> None:
    """While one dispatcher's probe is on its way, another's gate is closed."""
    bench.sql(
        "INSERT INTO outbox_accounts (account, scope, paused_since, paused_until, pause_reason) "
        f"VALUES ('main', '', {PAST}, {PAST}, 'credentials')"
    )

    def first(connection: object) -> tuple[int | None, int | None]:
        at = reads.database_now(connection)  # type: ignore[arg-type]
        mine = gates.gates(connection, ["main"], at=at)["main"]  # type: ignore[arg-type]
        gates.probing(connection, ["main"], until=at.replace(year=2999))  # type: ignore[arg-type]
        again = gates.gates(connection, ["main"], at=at)["main"]  # type: ignore[arg-type]
        return mine.most, again.most

    assert bench.do(first) == (1, 0)
    other = bench.do(lambda c: gates.gates(c, ["main"], at=reads.database_now(c)))["main"]
    assert other.most == 0


def test_an_ordinary_throttle_just_waits(bench: Bench, database_url: str) -> None:
    """A wait that was asked for ends without a probe."""
    enqueue(bench, 6)
    provider = MemoryProvider(script=[Throttled(600.0)])
    drain(database_url, {"main": provider}, slots=1)
    pause_ends(bench)
    gate = bench.do(lambda c: gates.gates(c, ["main"], at=reads.database_now(c)))["main"]
    assert gate.most is None
    drain(database_url, {"main": provider}, slots=3)
    assert accepted(bench) == 6


@pytest.mark.parametrize("outcome", [Unavailable("refused"), InDoubt("503"), InFlight(1.0)])
def test_the_breaker_counts_all_trouble_alike(
    bench: Bench, database_url: str, outcome: Outcome
) -> None:
    """A17: a provider that is down sees a few requests and then a probe, not a storm."""
    enqueue(bench, 40)
    provider = MemoryProvider(script=[outcome] * 40)
    run = drain(database_url, {"main": provider}, slots=1)
    assert len(provider.sent) == gates.BREAKER_AFTER
    assert account(bench)[0] == "breaker"
    assert {event.reason for event in run.of(AccountPaused)} == {"breaker"}
    pause_ends(bench)
    drain(database_url, {"main": provider}, slots=10)
    assert len(provider.sent) == gates.BREAKER_AFTER + 1


def test_a_failing_backlog_starves_nobody(bench: Bench, database_url: str) -> None:
    """B48: five thousand rows that fail, older and more urgent, and one that does not: it goes in
    the first round, and the failing account gets no more than its share of one."""
    mail = Email(to="ana@example.org", text="Hello")
    failing = [(mail, f"failing:{number}") for number in range(5000)]
    bench.do(lambda c: enqueue_many(c, failing, account="failing", priority=9))
    bench.enqueue("healthy", account="healthy", priority=-9)
    down, works = MemoryProvider(script=[Unavailable("503")] * 5000), MemoryProvider()
    for _ in range(5):
        drain(database_url, {"failing": down, "healthy": works}, mode="once", slots=50)
        assert len(works.sent) == 1
        assert len(down.sent) <= 50
    [row] = bench.sql("SELECT state FROM outbox_deliveries WHERE delivery_key = 'healthy'")
    assert row.state == "accepted"


def test_pauses_of_an_open_breaker_grow(bench: Bench) -> None:
    """Each failed probe doubles the wait, up to a minute."""
    bench.sql("INSERT INTO outbox_accounts (account) VALUES ('main')")
    report = AccountReport("main", worked=0, troubled=gates.BREAKER_AFTER, words="down")
    waits = []
    for _ in range(6):
        at = bench.do(reads.database_now)
        [pause] = bench.do(partial(gates.judge, reports=[report], gates={}, at=at, by="a"))
        waits.append((pause.until - at).total_seconds())
        bench.sql(f"UPDATE outbox_accounts SET paused_until = {PAST}")
    assert waits == [5, 10, 20, 40, 60, 60]


@pytest.mark.parametrize("outcome", [Accepted("x"), Rejected("no", "550")])
def test_an_answer_closes_the_breaker(bench: Bench, database_url: str, outcome: Outcome) -> None:
    """A clear answer, a refusal too, shows that the provider is there."""
    enqueue(bench, 5)
    provider = MemoryProvider(script=[Unavailable("x")] * 4 + [outcome])
    drain(database_url, {"main": provider}, slots=1, mode="once")
    for _ in range(4):
        bench.due_now()
        drain(database_url, {"main": provider}, slots=1, mode="once")
    assert account(bench) == (None, 0, 0)


def test_a_busy_mailbox_is_no_trouble_of_the_account(bench: Bench, database_url: str) -> None:
    """Greylisting of many recipients does not stop the mail of all others."""
    enqueue(bench, 12)
    provider = MemoryProvider(script=[Unavailable("greylisted", "451")] * 10)
    drain(database_url, {"main": provider}, slots=3)
    assert accepted(bench) >= 2
    assert account(bench)[0] is None


def test_a_sender_domain_is_blocked_alone(bench: Bench, database_url: str) -> None:
    """A16: one domain that may not send leaves the others of the account alone."""
    from outbox import Email
    from outbox import enqueue as write

    for i in range(6):
        domain = "bad.example" if i % 2 else "good.example"
        mail = Email(to="ana@example.org", from_=f"a@{domain}", text="x")
        bench.do(partial(write, message=mail, key=f"k{i}"))

    class Picky(MemoryProvider):
        async def send(self, message: Message, permit: Permit) -> Result:
            if message.sender.address.endswith("bad.example"):
                blocked = AccountBlocked("sender_domain", "403", scope="bad.example")
                self.script.appendleft(BeforeMark(blocked))
            return await super().send(message, permit)

    provider = Picky()
    drain(database_url, {"main": provider}, slots=1)
    assert accepted(bench) == 3
    assert len(provider.sent) == 3
    attempts = bench.sql("SELECT count(*) FROM outbox_attempts WHERE outcome='account_blocked'")
    assert attempts[0][0] == 1
    for _ in range(9):
        pause_ends(bench)
        drain(database_url, {"main": provider}, slots=1, mode="once")
    reasons = {
        r.reason for r in bench.sql("SELECT reason FROM outbox_deliveries WHERE state='failed'")
    }
    assert reasons == {"sender_not_allowed"}


def test_a_row_that_crashes_its_dispatchers_is_claimed_alone(
    bench: Bench, database_url: str
) -> None:
    """A19: after a few crashes a row is quarantined; the others go on in company."""
    enqueue(bench, 6)
    bench.sql("UPDATE outbox_deliveries SET crashes = 3 WHERE delivery_key = 'k0'")
    company: list[int] = []
    in_hand = 0

    async def watched(message: Message) -> Accepted:
        nonlocal in_hand
        in_hand += 1
        await asyncio.sleep(0)
        if message.subject == "About k0":
            company.append(in_hand)
        in_hand -= 1
        return Accepted("x")

    provider = MemoryProvider(script=[watched] * 6)
    drain(database_url, {"main": provider}, slots=4)
    assert (accepted(bench), company) == (6, [1])
    [attempt] = bench.sql("SELECT alone FROM outbox_attempts WHERE delivery_id = 1")
    assert attempt.alone
    assert bench.row(1).crashes == 0


def test_crashes_in_company_hold_nobody(bench: Bench) -> None:
    """A19: innocent rows are never held for the crashes of another."""
    bench.enqueue()
    for _ in range(10):
        bench.sql("UPDATE outbox_deliveries SET crashes = 0")
        bench.claim()
        bench.lapse()
        bench.sweep()
    assert bench.row(1).state == "pending"


def test_three_crashes_in_a_row_alone_hold(bench: Bench) -> None:
    """N10: only the row that brings down a dispatcher which holds nothing else."""
    bench.enqueue()
    for crashes in range(3):
        bench.sql("UPDATE outbox_deliveries SET crashes = 5")
        [claimed] = bench.claim(alone=True)
        assert bench.row(claimed.id).crashes_alone == crashes
        bench.lapse()
        bench.sweep()
    row = bench.row(1)
    assert (row.state, row.reason, row.held_from) == ("held", "crashed_alone", "pending")


def test_a_settle_between_crashes_resets_the_count(bench: Bench) -> None:
    """N10: "in a row" means without any settled attempt between."""
    bench.enqueue()
    for _ in range(4):
        bench.sql("UPDATE outbox_deliveries SET crashes = 5")
        bench.claim(alone=True)
        bench.lapse()
        bench.sweep()
        bench.sql("UPDATE outbox_deliveries SET crashes = 5")
        [claimed] = bench.claim(alone=True)
        bench.settle(claimed, Unavailable("refused"))
        bench.due_now()
    assert bench.row(1).state == "pending"


def test_rows_of_an_account_blocked_for_days_are_held(bench: Bench, database_url: str) -> None:
    """N5: a block that nobody lifts ends in a row that a person sees."""
    bench.enqueue(account="main")
    bench.sql(
        "INSERT INTO outbox_accounts (account, scope, paused_since, paused_until, pause_reason) "
        f"VALUES ('main', '', {PAST}, '2999-01-01T00:00:00.000Z', 'suspended')"
    )
    drain(database_url, {"main": MemoryProvider()})
    row = bench.row(1)
    assert (row.state, row.reason, row.held_from) == ("held", "blocked_too_long", "pending")


def test_throttling_ends_after_a_day(bench: Bench) -> None:
    """N5: a provider that answers "later" to every probe does not keep a row for ever."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.settle(claimed, Throttled(1.0))
    bench.sql(f"UPDATE outbox_attempts SET started_at = {PAST}")
    pause_ends(bench)
    [claimed] = bench.claim()
    bench.settle(claimed, Throttled(1.0))
    row = bench.row(1)
    assert (row.state, row.reason) == ("failed", "throttled")
