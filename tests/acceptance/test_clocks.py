"""Hosts whose clocks are wrong: on PostgreSQL the database's clock decides everything (B45).

A clock cannot be set for one process alone without a tool that is not everywhere, so
these dispatchers run with the clocks replaced that their own code reads.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.acceptance.accounts import smtp
from tests.acceptance.fleet import Fleet
from tests.acceptance.sinks import HeldSink
from tests.conformance.ledger import rows
from tests.servers.smtp import SmtpServer

WRONG = """
import datetime, itertools, sys, time

true, steps = time.time, itertools.cycle(float(step) for step in sys.argv[1].split(","))
time.time = lambda: true() + next(steps)
time.time_ns = lambda: int(time.time() * 1e9)


class AnyInstant(type):
    def __instancecheck__(cls, value):
        return isinstance(value, datetime.datetime)


class Wrong(datetime.datetime, metaclass=AnyInstant):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(time.time(), tz)


import dispatcher.service
from dispatcher.cli import dispatch, main

OURS = {"outbox", "dispatcher", "providers"}
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] in OURS and getattr(module, "datetime", None) is datetime.datetime:
        module.datetime = Wrong

sys.argv = ["postroom", "dispatch", *sys.argv[2:]]
main()
"""


def test_a_host_that_is_ahead_takes_nobodys_lease(postgres_url: str, tmp_path: Path) -> None:
    """Ten minutes ahead, with leases of twenty seconds: what another holds is left to it."""
    with HeldSink("rcpt") as sink, Fleet(tmp_path, postgres_url, smtp(sink)) as fleet:
        fleet.enqueue_keys(["k"])
        holder = fleet.start()
        sink.wait_until_held()
        fleet.enqueue_keys(["later"], send_after=datetime.now(UTC) + timedelta(minutes=5))
        assert fleet.run(WRONG, "600", "--once").wait() == 0
        assert fleet.states == {"sending": 1, "pending": 1}
        sink.go_on()
        fleet.until(lambda: fleet.states == {"accepted": 1, "pending": 1})
        assert holder.terminate() == 0
        assert len(sink.taken) == 1
        assert rows(fleet.url, "SELECT count(*), max(crashes) FROM outbox_attempts, outbox_deliveries "
                    "WHERE delivery_id = outbox_deliveries.id") == [(1, 0)]  # fmt: skip


def test_a_clock_that_jumps_is_not_looked_at(postgres_url: str, tmp_path: Path) -> None:
    """Two hours on, two hours back, at every look: all that is due is sent once, and nothing that
    is not due or is too late."""
    with SmtpServer() as sink, Fleet(tmp_path, postgres_url, smtp(sink)) as fleet:
        keys = fleet.enqueue(50)
        hour = timedelta(hours=1)
        fleet.enqueue_keys(["early"], send_after=datetime.now(UTC) + hour)
        fleet.enqueue_keys(["in time"], send_before=datetime.now(UTC) + hour)
        jumping = fleet.run(WRONG, "0,7200,-7200,86400,-86400")
        fleet.until(lambda: fleet.states["accepted"] == len(keys) + 1)
        assert jumping.terminate() == 0
        assert fleet.states == {"accepted": len(keys) + 1, "pending": 1}
        assert len(sink.taken) == len(keys) + 1
