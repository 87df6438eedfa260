"""One process that holds two attempts of one row: the old one's lease is not the new one's."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.acceptance.accounts import forget_leases, smtp
from tests.acceptance.fleet import PATIENCE, Fleet
from tests.acceptance.sinks import HeldSink
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
        dispatcher.stop()
        sink.go_on()
        sink.wait_for(lambda: sink.answered == 2, PATIENCE)
        dispatcher.signal(signal.SIGCONT)
        fleet.until(lambda: fleet.states == {"accepted": 1})
        assert dispatcher.terminate() == 0
        assert (sink.count("DATA"), len(sink.taken)) == (1, 1)
        found = rows(fleet.url, "SELECT outcome FROM outbox_attempts ORDER BY number")
        assert [outcome for (outcome,) in found] == ["not_started", "accepted"]
