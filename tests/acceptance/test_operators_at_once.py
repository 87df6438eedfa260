"""Operators in processes of their own, at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from outbox.database import open_engine
from outbox.states import State
from tests.command_line import CommandLine
from tests.rows import add_attempt, add_delivery, instant


def fill(url: str) -> None:
    """A hundred deliveries: 40 accepted, 30 and 10 that failed, 20 that may have been taken."""
    engine = open_engine(url)
    with engine.begin() as connection:
        for i in range(40):
            add_delivery(connection, f"accepted{i}", state=State.ACCEPTED)
        for i in range(30):
            add_delivery(connection, f"failed{i}", state=State.FAILED, reason="throttled")
        for i in range(10):
            add_delivery(connection, f"dead{i}", state=State.FAILED, reason="exhausted")
        for i in range(20):
            held = add_delivery(connection, f"unknown{i}", state=State.HELD)
            add_attempt(
                connection, held, 1, transmitting_at=instant(-900), outcome="in_doubt",
                finished_at=instant(-900),
            )  # fmt: skip
    engine.dispose()


def test_two_shells_retry_the_same_failures_at_once(database_url: str, tmp_path: Path) -> None:
    """B91: 40 requests, one for each failed delivery; what was accepted or may have been is
    untouched; each retry is recorded once, with who and why; the key stays the same."""
    fill(database_url)
    environ = {
        "POSTROOM_DATABASE__URL": database_url,
        "POSTROOM_ACCOUNTS__MAIN__PROVIDER": "file",
        "POSTROOM_ACCOUNTS__MAIN__DIRECTORY": str(tmp_path / "mail"),
        "POSTROOM_DEFAULTS__FROM": "Reports <r@example.com>",
    }
    postroom = CommandLine(tmp_path, environ)
    preview = postroom("deliveries", "retry", "--account", "main", "--json").json
    assert (preview["done"], preview["refused"]) == (40, 20)
    assert "settle" in str(preview["groups"][-1]["instead"])
    words = ("retry", "--state", "failed", "--yes", "--reason", "relay is back")
    shells = [
        subprocess.Popen(
            [sys.executable, "-m", "dispatcher", "deliveries", *words, "--actor", f"shell{n}"],
            cwd=tmp_path,
            env={**postroom._environ()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(2)
    ]
    ended = [(shell.communicate(timeout=120), shell.returncode) for shell in shells]
    assert [code for _, code in ended] == [0, 0], ended
    assert postroom("dispatch", "--drain").code == 1  # twenty still want a person
    assert len(list((tmp_path / "mail").glob("*.eml"))) == 40
    counted = {
        (group["state"], group["reason"]): group["rows"]
        for group in postroom("deliveries", "list", "--group-by", "reason", "--json").json["groups"]
    }
    assert counted == {("accepted", None): 80, ("held", "no_evidence"): 20}
    entries = postroom("audit", "--limit", "1000", "--json").json["entries"]
    retried = [entry["subject"] for entry in entries if not entry["subject"].startswith("--")]
    assert sorted(retried) == sorted(
        [f"failed{i}" for i in range(30)] + [f"dead{i}" for i in range(10)]
    )
    assert {entry["note"] for entry in entries} == {"relay is back"}
    assert {entry["actor"] for entry in entries} <= {"shell0", "shell1"}
