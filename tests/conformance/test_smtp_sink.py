"""The SMTP sink as a process of its own, as acceptance tests use it."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import sys
from pathlib import Path

from providers.contract import Accepted, Result, Unavailable
from providers.mime import render
from providers.smtp import SmtpProvider
from tests.conformance.smtp_rig import RecordingPermit, message, settings

ROOT = Path(__file__).parents[2]


async def send_three(port: int) -> list[Result]:
    provider = SmtpProvider("main", settings(port))
    try:
        return [await provider.send(message(), RecordingPermit()) for _ in range(3)]
    finally:
        await provider.aclose()


def test_the_sink_runs_as_a_process_and_keeps_a_ledger(tmp_path: Path) -> None:
    """It prints its port, writes one line per message taken, and its counts at the end."""
    ledger = tmp_path / "mail.jsonl"
    command = [sys.executable, "-m", "tests.servers.smtp", "--ledger", str(ledger)]
    command += ["--step", "dot=451/250", "--extension", "SIZE=100000"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        results = asyncio.run(send_three(port))
        process.send_signal(signal.SIGTERM)
        counts = json.loads(process.stdout.readline())
    assert process.returncode == 0
    assert [type(result.outcome) for result in results] == [Unavailable, Accepted, Accepted]
    assert counts == {"connections": 1, "taken": 2}
    lines = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    assert [line["number"] for line in lines] == [1, 2]
    assert lines[0]["to"] == ["ana@example.org"]
    content = render(message(), eight_bit=False, smtputf8=False)
    assert base64.b64decode(lines[0]["message"]) == content
