"""The Resend emulator itself: a check that counts wrongly would prove nothing."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.forked_commands import ROOT
from tests.servers.resend import Faults, ResendServer

Answer = tuple[int, dict[str, Any]]


def ask(port: int, key: str | None, subject: str = "s", **headers: str) -> Answer:
    """POST one message; raises what the client raises when the answer is lost."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    sent = {"Authorization": "Bearer re_x", "User-Agent": "test", **headers}
    if key is not None:
        sent["Idempotency-Key"] = key
    try:
        connection.request("POST", "/emails", json.dumps({"subject": subject}), sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_the_same_request_gets_the_first_answer_and_sends_nothing() -> None:
    """Key and body again: the same id, one acceptance."""
    with ResendServer() as server:
        first, second = ask(server.port, "k"), ask(server.port, "k")
        assert first == second
        assert first[0] == 200
        assert server.copies() == {"k": 1}
        assert server.replayed == {"k": 1}


def test_another_body_under_a_key_is_refused() -> None:
    """409 invalid_idempotent_request, and nothing is taken."""
    with ResendServer() as server:
        ask(server.port, "k", "one")
        status, body = ask(server.port, "k", "two")
        assert (status, body["name"]) == (409, "invalid_idempotent_request")
        assert server.subjects() == {"one": 1}


def test_a_request_under_work_is_told_so() -> None:
    """409 concurrent_idempotent_requests while the first has no answer; afterwards that one."""
    with ResendServer("emulated:gated", "emulated") as server:
        answers: list[Answer] = []
        first = threading.Thread(target=lambda: answers.append(ask(server.port, "k")))
        first.start()
        server.wait_for_accepted(1)
        status, body = ask(server.port, "k")
        assert (status, body["name"]) == (409, "concurrent_idempotent_requests")
        server.open_gate()
        first.join()
        assert ask(server.port, "k") == answers[0]
        assert server.copies() == {"k": 1}


def test_a_key_is_forgotten_after_its_retention() -> None:
    """After a day the same request is a new message."""
    with ResendServer() as server:
        first = ask(server.port, "k")
        server.advance(24 * 3600 - 60)
        assert ask(server.port, "k") == first
        server.advance(120)
        assert ask(server.port, "k") != first
        assert server.copies() == {"k": 2}


def test_without_a_key_each_request_is_a_message() -> None:
    """Nothing is remembered that was not asked for."""
    with ResendServer() as server:
        ask(server.port, None)
        ask(server.port, None)
        assert len(server.accepted) == 2


@pytest.mark.parametrize("fault", ["close", "reset", "trunc"])
def test_a_lost_answer_leaves_the_message_taken(fault: str) -> None:
    """The client has no whole answer; the server has the message, and says so when asked again."""
    with ResendServer(f"emulated:{fault}", "emulated") as server:
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(server.port, "k")
        assert len(server.accepted) == 1
        assert not server.accepted[0].answered
        assert ask(server.port, "k")[0] == 200
        assert server.copies() == {"k": 1}


def test_what_is_refused_before_acceptance_frees_the_key() -> None:
    """A 429 and a 500 took nothing; the key is new afterwards."""
    with ResendServer("emulated:429:7", "emulated:500", "emulated") as server:
        assert [ask(server.port, "k")[0] for _ in range(3)] == [429, 500, 200]
        assert server.copies() == {"k": 1}
        assert server.replayed == {}


def test_a_500_after_acceptance_has_the_message() -> None:
    """The same status may follow a message that was taken."""
    with ResendServer("emulated:500after", "emulated") as server:
        assert ask(server.port, "k")[0] == 500
        assert server.copies() == {"k": 1}
        assert ask(server.port, "k")[0] == 200
        assert server.copies() == {"k": 1}


def test_a_body_that_breaks_off_is_not_taken() -> None:
    """Half a request is no message."""
    with ResendServer() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(
                b"POST /emails HTTP/1.1\r\nAuthorization: Bearer re_x\r\nUser-Agent: t\r\n"
                b'Idempotency-Key: k\r\nContent-Length: 100\r\n\r\n{"subject": "h'
            )
        server.wait_for(1)
        server.wait_until_quiet()
        assert server.accepted == []
        assert ask(server.port, "k")[0] == 200


def test_random_faults_depend_on_seed_and_key_alone() -> None:
    """The order in which requests arrive changes nothing."""
    keys = [f"k{number}" for number in range(400)]
    one, two = Faults(seed=5, lose=0.2), Faults(seed=5, lose=0.2)
    forwards = {key: one.of(key, 1)[0] for key in keys}
    backwards = {key: two.of(key, 1)[0] for key in reversed(keys)}
    assert forwards == backwards
    lost = sum(fault != "" for fault in forwards.values())
    assert 40 < lost < 120
    assert forwards != {key: Faults(seed=6, lose=0.2).of(key, 1)[0] for key in keys}


def test_as_a_process_it_keeps_a_ledger(tmp_path: Path) -> None:
    """The ledger has a line for each acceptance, and SIGTERM prints the counts."""
    ledger = tmp_path / "ledger.jsonl"
    command = [sys.executable, "-m", "tests.servers.resend", "--ledger", str(ledger)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        ask(port, "a", "first")
        ask(port, "a", "first")
        ask(port, "b", "second")
        process.send_signal(signal.SIGTERM)
        counts = json.loads(process.stdout.readline())
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    lines = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    assert [(line["key"], line["subject"]) for line in lines] == [("a", "first"), ("b", "second")]
    assert (counts["accepted"], counts["replayed"], counts["requests"]) == (2, 1, 3)
