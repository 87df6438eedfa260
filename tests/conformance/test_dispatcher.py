"""A whole dispatcher over both databases, with a scripted provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import text

from dispatcher.events import AccountPaused, LeaseLost, RoundSplit, Settled
from outbox import Attachment, Email, cancel, enqueue
from outbox.database import open_engine
from outbox.states import AttemptOutcome, State
from providers.contract import (
    Accepted,
    AccountBlocked,
    InDoubt,
    Message,
    Permit,
    Rejected,
    Result,
    Throttled,
    Unavailable,
)
from providers.memory import BeforeMark, MemoryProvider
from tests.conformance.bench import Bench, opened
from tests.conformance.runs import drain


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


def states(bench: Bench) -> dict[str, str]:
    rows = bench.sql("SELECT delivery_key, state FROM outbox_deliveries")
    return {row.delivery_key: row.state for row in rows}


def test_a_drain_sends_everything_once(bench: Bench, database_url: str) -> None:
    """What is due is accepted; a second drain finds nothing to do."""
    for i in range(50):
        bench.enqueue(f"k{i}")
    provider = MemoryProvider()
    assert drain(database_url, {"main": provider}).left is not None
    assert set(states(bench).values()) == {"accepted"}
    assert len({m.correlation for m in provider.sent}) == len(provider.sent) == 50
    drain(database_url, {"main": provider})
    assert len(provider.sent) == 50


def test_a_retry_sends_the_same_bytes_under_the_same_key(bench: Bench, database_url: str) -> None:
    """B20, B74: between attempts nothing of the message changes, across processes too."""
    bench.enqueue()
    refused = MemoryProvider(script=[Unavailable("refused")])
    drain(database_url, {"main": refused}, mode="once")
    bench.due_now()
    provider = MemoryProvider()
    drain(database_url, {"main": provider})
    [first], [second] = refused.sent, provider.sent
    assert first == second
    assert bench.attempts(1) == [("settled", "unavailable"), ("settled", "accepted")]
    keys = bench.sql("SELECT DISTINCT idempotency_key, request_digest FROM outbox_attempts")
    assert len(keys) == 1


def test_a_further_attempt_is_for_those_not_taken_and_has_its_own_key(
    bench: Bench, database_url: str
) -> None:
    """A9, B35: the good address is never sent to again because of the slow one."""
    bench.enqueue(to=["good@example.org", "bad@example.org", "slow@example.org"])
    partly = Result(
        Accepted("q1"),
        recipients={
            "bad@example.org": Rejected("unknown", "550"),
            "slow@example.org": Unavailable("greylisted", "451"),
        },
    )
    provider = MemoryProvider(script=[partly])
    drain(database_url, {"main": provider}, mode="once")
    bench.due_now()
    drain(database_url, {"main": provider})
    first, second = provider.sent
    assert first.recipients == ("good@example.org", "bad@example.org", "slow@example.org")
    assert second.recipients == ("slow@example.org",)
    assert second.idempotency_key != first.idempotency_key
    assert second.correlation == first.correlation
    rows = bench.sql("SELECT address, result FROM outbox_recipients ORDER BY position")
    assert [row.result for row in rows] == ["accepted", "failed", "accepted"]
    assert states(bench) == {"k": "accepted"}


@pytest.mark.parametrize(
    "error", [KeyError("x"), SystemExit(3), asyncio.CancelledError(), RecursionError("deep")]
)
def test_an_adapter_that_raises_hurts_only_its_own_row(
    bench: Bench, database_url: str, error: BaseException
) -> None:
    """B31: before the mark that proves nothing left; after it, it proves nothing."""
    for key in ("before", "after", "good"):
        bench.enqueue(key)
    provider = MemoryProvider(script=[BeforeMark(error), error])
    run = drain(database_url, {"main": provider}, slots=1, mode="once")
    bench.due_now()
    drain(database_url, {"main": provider}, slots=1)
    bench.due_now()
    run = drain(database_url, {"main": provider}, slots=1)
    assert sorted(states(bench).values()) == ["accepted", "accepted", "held"]
    assert run.left is not None
    assert run.left.held == 1


def test_doubt_is_kept_and_never_sent_again(bench: Bench, database_url: str) -> None:
    """Where nothing can prove anything, doubt is held, and no drain sends it again."""
    bench.enqueue()
    provider = MemoryProvider(script=[InDoubt("no reply after DATA")])
    for _ in range(3):
        drain(database_url, {"main": provider})
        bench.due_now()
    assert len(provider.sent) == 1
    assert states(bench) == {"k": "held"}


def test_a_paused_account_starves_nobody(bench: Bench, database_url: str) -> None:
    """The paused account's rows wait and lose no attempt; the other's go out."""
    for i in range(10):
        bench.enqueue(f"slow{i}", account="slow")
        bench.enqueue(f"main{i}", account="main")
    slow = MemoryProvider("slow", [AccountBlocked("credentials", "401")] * 10)
    main = MemoryProvider("main")
    run = drain(database_url, {"main": main, "slow": slow}, slots=4)
    assert len(main.sent) == 10
    assert len(slow.sent) <= 4
    assert {s for k, s in states(bench).items() if k.startswith("slow")} == {"pending"}
    assert bench.sql("SELECT count(*) FROM outbox_deliveries WHERE attempts > 0")[0][0] == 0
    assert {event.account for event in run.of(AccountPaused)} == {"slow"}


def test_throttling_pauses_and_then_goes_on(bench: Bench, database_url: str) -> None:
    """A wait that the provider asked for is kept by a dispatcher that runs through it."""
    bench.enqueue()
    provider = MemoryProvider(script=[Throttled(0.2)])
    drain(database_url, {"main": provider})
    bench.sql("UPDATE outbox_accounts SET paused_until = '2026-01-01T00:00:00.000Z'")
    bench.due_now()
    drain(database_url, {"main": provider})
    assert states(bench) == {"k": "accepted"}


def test_a_long_send_keeps_its_lease(bench: Bench, database_url: str) -> None:
    """B18: while a send is on its way its lease is renewed again and again."""
    bench.enqueue()

    async def slow(message: Message) -> Accepted:
        del message
        seen: set[object] = set()
        while len(seen) < 4:
            question = "SELECT lease_expires_at FROM outbox_deliveries"
            [row] = await asyncio.to_thread(bench.sql, question)
            seen.add(row.lease_expires_at)
            await asyncio.sleep(0.02)
        return Accepted("late but ours")

    run = drain(database_url, {"main": MemoryProvider(script=[slow])}, lease=timedelta(seconds=1))
    assert states(bench) == {"k": "accepted"}
    assert run.of(LeaseLost) == []


def test_a_cancel_in_flight_takes_effect_if_not_taken(bench: Bench, database_url: str) -> None:
    """B93: what was asked of a sender is carried out by its settle."""
    bench.enqueue()

    async def refused(message: Message) -> Unavailable:
        del message
        await asyncio.to_thread(bench.do, lambda c: cancel(c, "k"))
        return Unavailable("refused")

    drain(database_url, {"main": MemoryProvider(script=[refused])})
    assert states(bench) == {"k": "cancelled"}


def test_a_cancel_between_claim_and_mark_stops_the_message(bench: Bench, database_url: str) -> None:
    """A7: the mark is refused, and nothing leaves."""
    bench.enqueue()
    provider = CancelsBeforeMark(bench)
    drain(database_url, {"main": provider})
    assert provider.sent == []
    assert states(bench) == {"k": "cancelled"}


class CancelsBeforeMark(MemoryProvider):
    """A producer's cancel arrives while the connection is being opened."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench

    async def send(self, message: Message, permit: Permit) -> Result:
        await asyncio.to_thread(self._bench.do, lambda c: cancel(c, "k"))
        return await super().send(message, permit)


def test_attachments_travel_from_enqueue_to_provider(bench: Bench, database_url: str) -> None:
    """B22: the bytes captured at enqueue are sent; equal contents are stored once."""
    files = [Attachment("a.bin", b"\x00\xffdata"), Attachment("b.bin", b"\x00\xffdata")]
    mail = Email(to="ana@example.org", text="x", attachments=files)
    bench.do(lambda c: enqueue(c, mail, key="k"))
    provider = MemoryProvider()
    drain(database_url, {"main": provider})
    assert [a.content for a in provider.sent[0].attachments] == [b"\x00\xffdata"] * 2
    assert bench.sql("SELECT count(*) FROM outbox_blobs")[0][0] == 1


def test_a_missing_attachment_fails_alone(bench: Bench, database_url: str) -> None:
    """A row whose content was never stored names it and is not tried again."""
    bench.sql(
        "INSERT INTO outbox_deliveries (delivery_key, message) VALUES ('bad', :m)",
        m='{"to": ["a@example.org"], "text": "x", "attachments": [{"filename": "f", '
        f'"content_type": "text/plain", "sha256": "{"0" * 64}", "size": 3}}]}}',
    )
    bench.enqueue("good")
    drain(database_url, {"main": MemoryProvider()})
    assert states(bench) == {"bad": "failed", "good": "accepted"}


def test_one_unstorable_result_costs_nobody_else_theirs(bench: Bench, database_url: str) -> None:
    """A18: a settle that the database refuses is done alone; the others are written."""
    for key in ("good1", "bad", "good2"):
        bench.enqueue(key)
    _refuse_errors(bench)
    words = Result(Rejected("these words are refused by the database", "550"))
    provider = MemoryProvider(script=[Accepted("1"), words, Accepted("2")])
    run = drain(database_url, {"main": provider})
    assert run.of(RoundSplit)
    assert states(bench) == {"good1": "accepted", "bad": "failed", "good2": "accepted"}
    [row] = bench.sql("SELECT last_error FROM outbox_deliveries WHERE delivery_key = 'bad'")
    assert row.last_error == "unstorable"


def _refuse_errors(bench: Bench) -> None:
    """A trigger of somebody else's that refuses one text."""
    if bench.engine.dialect.name == "sqlite":
        bench.sql(
            "CREATE TRIGGER refuses BEFORE UPDATE ON outbox_deliveries "
            "WHEN NEW.last_error LIKE 'these words%' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
        return
    bench.sql(
        "CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RAISE EXCEPTION $x$refused$x$; END'"
    )
    bench.sql(
        "CREATE TRIGGER refuses BEFORE UPDATE ON outbox_deliveries FOR EACH ROW "
        "WHEN (NEW.last_error LIKE 'these words%') EXECUTE FUNCTION refuses()"
    )


def test_a_result_survives_the_loss_of_its_connections(postgres_url: str) -> None:
    """B40: cut off while a send is on its way, its answer is kept and written afterwards."""
    with opened(postgres_url) as bench:
        bench.enqueue()

        async def cut(message: Message) -> Accepted:
            del message
            await asyncio.to_thread(_terminate_all, postgres_url)
            return Accepted("kept")

        provider = MemoryProvider(script=[cut])
        run = drain(postgres_url, {"main": provider})
        assert states(bench) == {"k": "accepted"}
        assert len(provider.sent) == 1
        assert [e.outcome for e in run.of(Settled)] == [AttemptOutcome.ACCEPTED]


def _terminate_all(url: str) -> None:
    engine = open_engine(url)
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    engine.dispose()


def test_what_others_hold_is_waited_for(bench: Bench, database_url: str) -> None:
    """``--drain`` waits for another owner's lease and then goes on with its row."""
    bench.enqueue()
    bench.claim("another")
    bench.lapse()
    provider = MemoryProvider()
    run = drain(database_url, {"main": provider})
    assert states(bench) == {"k": State.ACCEPTED}
    assert run.left is not None
    assert run.left.sending == 0


def test_once_is_one_round(bench: Bench, database_url: str) -> None:
    """``--once`` claims a single time, at most as many as there are slots."""
    for i in range(5):
        bench.enqueue(f"k{i}")
    provider = MemoryProvider()
    drain(database_url, {"main": provider}, mode="once", slots=3)
    assert len(provider.sent) == 3
