"""One process that holds two attempts of one row: the old one's lease is not the new one's."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from dispatcher.doubt import Means
from dispatcher.rounds import Rounds
from dispatcher.wishes import End, Terms, WithheldEnd
from outbox.database import open_async_engine
from outbox.records import Claimed
from providers.contract import Accepted, Capabilities, Result
from tests.acceptance.accounts import forget_leases, smtp
from tests.acceptance.fleet import PATIENCE, Fleet
from tests.acceptance.sinks import HeldSink
from tests.conformance.bench import LEASE, POLICY, Bench, opened
from tests.conformance.ledger import rows


def test_a_row_taken_back_from_a_process_and_claimed_by_it_again_leaves_once(
    database_url: str, tmp_path: Path
) -> None:
    """The old attempt woke up in the same round as the new one: only the new one may send."""
    with (
        HeldSink("rcpt", times=2) as sink,
        Fleet(tmp_path, database_url, smtp(sink), lease="5s") as fleet,
    ):
        fleet.enqueue_keys(["k"])
        dispatcher = fleet.start()
        sink.wait_until_held()
        # Somebody who has no such account sweeps: the lease lapsed, so the row is pending again.
        forget_leases(fleet.url)
        sweeper = fleet.start("--once", "--config", str(fleet.another_account("other")))
        assert sweeper.wait() == 0
        sink.wait_until_held(times=2)
        # Both replies are there when it looks again, so both attempts ask in one round.
        fleet.freeze(dispatcher)
        sink.go_on()
        sink.wait_for(lambda: sink.answered == 2, PATIENCE)
        dispatcher.signal(signal.SIGCONT)
        fleet.until(lambda: fleet.states == {"accepted": 1})
        assert dispatcher.terminate() == 0
        assert (sink.count("DATA"), len(sink.taken)) == (1, 1)
        found = rows(fleet.url, "SELECT outcome FROM outbox_attempts ORDER BY number")
        assert [outcome for (outcome,) in found] == ["not_started", "accepted"]


NOTHING_PROVES = Means(
    identity="memory:main",
    capabilities=Capabilities(),
    longest_send=timedelta(minutes=1),
    replay_margin=timedelta(minutes=1),
    evidence_wait=timedelta(minutes=1),
)


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


@asynccontextmanager
async def rounds_of(owner: str, url: str) -> AsyncIterator[Rounds]:
    """The rounds of a process that claimed under this owner; it has forgotten all of it."""
    engine = open_async_engine(url)
    terms = Terms(
        owner=owner,
        lease=LEASE,
        default_from=None,
        namespace=UUID(int=0),
        lanes=(),
        policies={"main": POLICY},
        means={"main": NOTHING_PROVES},
        when_unsure={},
    )
    try:
        yield Rounds(engine, terms, lambda _: None)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("newest_first", [False, True])
async def test_two_ends_of_one_row_are_not_taken_for_each_other(
    bench: Bench, database_url: str, *, newest_first: bool
) -> None:
    """The old attempt's end and the new one's meet in one process: the new one's decides."""
    id_ = bench.enqueue()
    [old] = bench.claim()
    bench.lapse()
    bench.sweep()
    [new] = bench.claim()
    bench.mark(new)
    ends: list[tuple[Claimed, End]] = [
        (old, WithheldEnd("lease")),
        (new, Result(Accepted("queued-1"))),
    ]
    if newest_first:
        ends.reverse()
    async with rounds_of("a", database_url) as rounds, asyncio.TaskGroup() as sends:
        for claimed, end in ends:
            sends.create_task(rounds.settle(claimed, end))
            await asyncio.sleep(0)
        for _ in ends:
            await rounds.run_once(0)
    assert bench.row(id_).state == "accepted"
    assert bench.attempts(id_) == [("settled", "not_started"), ("settled", "accepted")]


async def test_what_a_process_forgot_goes_back_only_if_nothing_can_have_left(
    bench: Bench, database_url: str
) -> None:
    """A claim whose commit was not seen is given back; a row that was transmitting is in doubt."""
    ids = [bench.enqueue(key) for key in ("claimed", "transmitting")]
    claimed = {each.id: each for each in bench.claim()}
    bench.mark(claimed[ids[1]])
    async with rounds_of("a", database_url) as rounds:
        await rounds.forgotten()
    assert [bench.row(id_).state for id_ in ids] == ["pending", "in_doubt"]
