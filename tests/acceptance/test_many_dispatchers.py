"""Many dispatcher processes on one queue: every message once, also when some are killed."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.accounts import resend, smtp
from tests.acceptance.fleet import PATIENCE, Fleet, Process
from tests.acceptance.sinks import Stub
from tests.conformance.ledger import rows
from tests.servers.smtp import SmtpServer
from tests.wire import get

DELIVERIES = 2000
DISPATCHERS = 8


@pytest.fixture
def sink() -> SmtpServer:
    return SmtpServer()


def taken_by(server: SmtpServer) -> Counter[str]:
    """How often the server took the message of each delivery; each has its own Message-ID."""
    subjects = Counter(get(each.content, "Subject") or "" for each in server.taken)
    ids = {get(each.content, "Message-ID") for each in server.taken}
    assert len(ids) == len(subjects)
    return subjects


def has_taken(server: SmtpServer, count: int) -> bool:
    return len(server.taken) >= count


def keys_in(fleet: Fleet, state: str) -> set[str]:
    found = rows(fleet.url, f"SELECT delivery_key FROM outbox_deliveries WHERE state = '{state}'")
    return {str(key) for (key,) in found}


def test_eight_dispatchers_drain_a_queue_and_nothing_leaves_twice(
    database_url: str, tmp_path: Path, sink: SmtpServer
) -> None:
    """Eight processes take 2,000 deliveries from one table: 2,000 messages, none twice."""
    with sink, Fleet(tmp_path, database_url, smtp(sink), concurrency=100, poll="200ms") as fleet:
        keys = fleet.enqueue(DELIVERIES)
        dispatchers = fleet.start_many(DISPATCHERS, "--drain")
        assert {each.wait() for each in dispatchers} == {0}
        assert taken_by(sink) == Counter(keys)
        assert fleet.states == {"accepted": DELIVERIES}
        # They worked side by side: this was no queue before one of them.
        assert sum(accepted_by(each) > 0 for each in dispatchers) > 1


def test_two_of_eight_are_killed_and_nothing_is_lost_or_leaves_twice(
    database_url: str, tmp_path: Path, sink: SmtpServer
) -> None:
    """Kill -9 while messages flow: each message is accepted or in doubt, and none arrives twice.

    This server can prove nothing, so doubt ends with a person: the row is held.
    """
    with (
        sink,
        Fleet(
            tmp_path, database_url, smtp(sink), concurrency=100, lease="5s", poll="200ms"
        ) as fleet,
    ):
        keys = fleet.enqueue(DELIVERIES)
        dispatchers = fleet.start_many(DISPATCHERS, "--drain")
        victims = dispatchers[:2]
        moments = sorted(random.sample(range(100, DELIVERIES // 2), len(victims)))
        for victim, moment in zip(victims, moments, strict=True):
            sink.wait_for(partial(has_taken, sink, moment), PATIENCE)
            victim.kill()
        codes = {each.wait() for each in dispatchers[2:]}

        accepted, doubted = keys_in(fleet, "accepted"), keys_in(fleet, "held")
        assert accepted | doubted == set(keys)
        assert codes == ({1} if doubted else {0})
        taken = taken_by(sink)
        assert set(taken.values()) == {1}
        assert accepted <= set(taken) <= accepted | doubted
        # Doubt has a cause: an attempt that somebody was lost with while it transmitted.
        lost = rows(
            fleet.url,
            "SELECT delivery_key FROM outbox_deliveries d JOIN outbox_attempts a "
            "ON a.delivery_id = d.id WHERE outcome = 'lost'",
        )
        assert doubted <= {str(key) for (key,) in lost}


def test_eight_dispatchers_started_together_make_one_request_each(
    database_url: str, tmp_path: Path
) -> None:
    """B26: 500 messages, eight processes at once, a slow provider: 500 requests and 500 keys."""
    with (
        Stub("slowok:0.05") as stub,
        Fleet(tmp_path, database_url, resend(stub), concurrency=100, lease="60s") as fleet,
    ):
        fleet.enqueue(500)
        dispatchers = fleet.start_many(DISPATCHERS, "--drain")
        assert {each.wait() for each in dispatchers} == {0}
        keys = Counter(request.key for request in stub.received)
        assert (len(keys), set(keys.values())) == (500, {1})
        assert fleet.states == {"accepted": 500}
        # Nobody claimed what somebody else was claiming.
        assert rows(fleet.url, "SELECT count(*) FROM outbox_attempts") == [(500,)]
        assert [line for each in dispatchers for line in each.log if "database" in line] == []


def accepted_by(dispatcher: Process) -> int:
    return sum("accepted" in line for line in dispatcher.log)
