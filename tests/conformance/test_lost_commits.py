"""The connection is lost during COMMIT: nobody knows whether it was done, and it does not matter."""

from __future__ import annotations

import pytest

from dispatcher.events import Settled
from providers.contract import Accepted, Message, Permit, Result
from providers.memory import MemoryProvider
from tests.conformance.bench import opened
from tests.conformance.runs import drain
from tests.servers.database_proxy import DatabaseProxy


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_a_settle_is_written_once_whatever_became_of_its_commit(
    postgres_url: str, times: int, *, done: bool
) -> None:
    """B40: done again until an answer comes; sent once, counted once, and no evidence of doubt."""
    with DatabaseProxy(postgres_url) as proxy, opened(postgres_url) as bench:
        bench.enqueue()

        async def answered(message: Message) -> Accepted:
            del message
            # The settle's own, unless another transaction of this process comes first.
            proxy.cut_commits(times, done=done)
            return Accepted("kept")

        provider = MemoryProvider(script=[answered])
        run = drain(proxy.url, {"main": provider})
        assert proxy.cut == times
        assert len(provider.sent) == 1
        assert bench.attempts(1) == [("settled", "accepted")]
        row = bench.row(1)
        assert (row.state, row.copies) == ("accepted", 1)
        assert bench.evidence(1) == []
        assert [event.state for event in run.of(Settled)] == ["accepted"]
        assert [row.value for row in bench.sql("SELECT value FROM outbox_tallies")] == [1]


@pytest.mark.parametrize("done", [True, False])
def test_a_mark_lets_one_message_leave_whatever_became_of_its_commit(
    postgres_url: str, *, done: bool
) -> None:
    """Nothing leaves before an answer; a mark that was done is recognised, not refused."""
    with DatabaseProxy(postgres_url) as proxy, opened(postgres_url) as bench:
        bench.enqueue()
        provider = Cutting(proxy, done=done)
        drain(proxy.url, {"main": provider})
        assert proxy.cut == 1
        assert len(provider.sent) == 1
        assert bench.attempts(1) == [("settled", "accepted")]


class Cutting(MemoryProvider):
    """Cuts the next COMMIT when it is about to ask for the mark."""

    def __init__(self, proxy: DatabaseProxy, *, done: bool) -> None:
        super().__init__()
        self._proxy, self._done = proxy, done

    async def send(self, message: Message, permit: Permit) -> Result:
        self._proxy.cut_commits(1, done=self._done)
        return await super().send(message, permit)
