"""``postroom web`` as a process of its own, on a database whose clock a test moves."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from tests.clocks import MovedClock

ROOT = Path(__file__).parents[2]
TOKEN = "correct-horse-battery-staple-7"
AFTER_NOON = datetime(2026, 6, 1, 12, 1, tzinfo=UTC)
PATIENCE = 60.0

JOBS = """
import pathlib
import time

import outbox


@outbox.job("report", period="cron */5 * * * * timezone=UTC", missed="all", lease="1h")
def report(run):
    here = pathlib.Path(__file__).parent
    (here / f"begun-{run.label}").touch()
    while not (here / "go").exists():
        time.sleep(0.01)
    with run.finish() as tx:
        mail = outbox.Email(to="ana@example.org", subject="Report", text=run.label)
        tx.enqueue(mail, name="owner")
"""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Web:
    """The server's process; its log is read as it comes."""

    def __init__(self, url: str, folder: Path, *, config: str = "", token: str = TOKEN) -> None:
        self.folder = folder
        self.clock = MovedClock(url, folder, AFTER_NOON)
        (folder / "myjobs.py").write_text(JOBS)
        (folder / "token").write_text(token + "\n")
        (folder / "postroom.toml").write_text(
            f'[database]\nurl = "{url}"\n[jobs]\nmodules = ["myjobs"]\npoll_interval = "50ms"\n'
            f'shutdown_grace = "1s"\n{config}\n[web.public]\nlisten = "127.0.0.1:0"\n'
            f'tick_token = "file:{folder / "token"}"\n'
        )
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._pool = ThreadPoolExecutor(16)

    def __enter__(self) -> Web:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("POSTROOM_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clocked", "web"],
            cwd=self.folder,
            env={**kept, "PYTHONPATH": str(ROOT), **self.clock.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.wait_for_line("listening on"))
            assert found is not None
        except BaseException:
            self.__exit__()
            raise
        self.port = int(found[1])
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._pool.shutdown()

    def go(self) -> None:
        """Let the job's function go on."""
        (self.folder / "go").touch()

    def ask(
        self,
        target: str = "/jobs/tick",
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        chunked: bool = False,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(
                method, target, body=body, headers=dict(headers or {}), encode_chunked=chunked
            )
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def tick(self, query: str = "", *, token: str = TOKEN) -> Answer:
        """``POST /jobs/tick`` as a scheduler does it."""
        headers = {"Authorization": f"Bearer {token}", "Content-Length": "0"}
        return self.ask(f"/jobs/tick{query}", headers=headers)

    def ticking(self, query: str = "") -> Future[Answer]:
        """The same while the test goes on."""
        return self._pool.submit(self.tick, query)

    def stop(self) -> int:
        """SIGTERM, and wait; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    @property
    def log(self) -> str:
        """What it has written."""
        with self._more:
            return "".join(self._lines)

    def wait_for_line(self, text: str) -> str:
        """The first line that holds ``text``, when it is there."""
        with self._more:
            self._more.wait_for(
                lambda: any(text in line or not line for line in self._lines), PATIENCE
            )
            for line in self._lines:
                if text in line:
                    return line
        raise AssertionError(f"no line says {text!r}:\n{self.log}")

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in chain(iter(self._process.stderr.readline, ""), [""]):
            with self._more:
                self._lines.append(line)
                self._more.notify_all()
