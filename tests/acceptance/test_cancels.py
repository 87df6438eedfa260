"""Producers that cancel while dispatchers send (B93)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from outbox import Cancelled, Requested, TooLate, cancel, transaction
from tests.acceptance.accounts import resend
from tests.acceptance.fleet import Fleet
from tests.acceptance.sinks import Stub
from tests.conformance.ledger import engine_at, rows
from tests.long_forms import LONG

COUNT = 1000 if LONG else 300
"""Deliveries that are cancelled."""


def _cancel(url: str, keys: list[str]) -> dict[str, object]:
    answers: dict[str, object] = {}
    with engine_at(url) as engine:
        for key in keys:
            with engine.connect() as connection, transaction(connection):
                answers[key] = cancel(connection, key)
    return answers


def test_what_a_cancel_says_is_what_happens(database_url: str, tmp_path: Path) -> None:
    """Said to be stopped: the provider never hears of it. Said to be in flight or too late: it is
    taken, or cancelled without a request. Nothing that left is ever called cancelled."""
    with (
        Stub("slowok:0.05") as stub,
        Fleet(tmp_path, database_url, resend(stub), concurrency=10) as fleet,
    ):
        keys = fleet.enqueue(COUNT)
        first, *others = [keys[:20], *(keys[start::3] for start in (20, 21, 22))]
        for part in others:
            random.Random(93).shuffle(part)
        answers = _cancel(fleet.url, first)
        dispatchers = fleet.start_many(2)
        stub.wait_for(10)
        with ThreadPoolExecutor(len(others)) as pool:
            for found in pool.map(lambda part: _cancel(fleet.url, part), others):
                answers |= found
        fleet.until(lambda: set(fleet.states) <= {"accepted", "cancelled"})
        fleet.enqueue_keys(["last"])
        fleet.until(lambda: set(fleet.states) <= {"accepted", "cancelled"})
        answers |= _cancel(fleet.url, ["last"])
        for dispatcher in dispatchers:
            assert dispatcher.terminate() == 0
        sent = {request.key for request in stub.received}
        states = {
            str(key): (str(public_id) in sent, str(state))
            for key, public_id, state in rows(
                fleet.url, "SELECT delivery_key, public_id, state FROM outbox_deliveries"
            )
        }
    left_and_state = {
        Cancelled: {(False, "cancelled")},
        Requested: {(False, "cancelled"), (True, "accepted")},
        TooLate: {(True, "accepted")},
    }
    for key, answer in answers.items():
        assert states[key] in left_and_state[type(answer)], (key, answer, states[key])
    assert {type(answers[key]) for key in first} == {Cancelled}
    assert type(answers["last"]) is TooLate
    assert len(sent) == len(stub.received)
