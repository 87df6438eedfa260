"""Children as the rehearsal sees them: started, waited for, killed or stopped, always reaped.

They are not asyncio's subprocesses: one that is cancelled while it starts (Ctrl-C) may wait for
ever for pipes that were never connected.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import dispatcher
from dispatcher.rehearse.child import Order
from dispatcher.rehearse.setup import Setup

AHEAD = 3
"""Children that wait for their orders, ready to begin at once."""


class ChildEnded(Exception):
    """A child ended before it reached the point that was waited for; says what it complained of."""


class Child:
    """One process of ours, and what it has said so far."""

    def __init__(self, complaints: Path) -> None:
        """Start it. It runs the very code that runs here, whatever the working directory holds;
        Ctrl-C in the terminal does not reach it."""
        code = str(Path(next(iter(dispatcher.__path__))).parent)
        path = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH", "")]))
        self._complaints = complaints
        with complaints.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "dispatcher.rehearse.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
                bufsize=0,
            )
        assert self._process.stdout is not None  # noqa: S101  (it was opened as a pipe)
        self._heard = self._process.stdout.fileno()
        os.set_blocking(self._heard, False)
        self._said = b""
        self._ended = False
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._heard, self._listen)

    def carry_out(self, setup: Setup, order: Order) -> None:
        """Give it its order."""
        self._write(json.dumps({"setup": setup.written(), "order": asdict(order)}))

    async def reaches(self, point: str, times: int = 1) -> None:
        """Return when the child has said ``point`` so often. Raises ChildEnded."""
        while self._said.decode().split("\n").count(point) < times:
            if self._ended:
                raise ChildEnded(f"before {point}: {self._last_words()}")
            await self._change()

    def kill(self) -> None:
        """As ``kill -9`` does: nothing is finished."""
        if not self._process.stdout or self._process.stdout.closed:
            return
        asyncio.get_running_loop().remove_reader(self._heard)
        with self._process:  # closes the pipes, and waits for what is killed at once
            self._process.kill()

    def stop(self) -> None:
        """As a service manager does: SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def go_on(self) -> None:
        """Let what stalls in the child go on."""
        self._write("")

    async def ends(self) -> int:
        """Its exit code, once it has closed its output and ended."""
        while not self._ended:
            await self._change()
        return await asyncio.to_thread(self._process.wait)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _listen(self) -> None:
        heard = os.read(self._heard, 4096)
        self._said += heard
        if not heard:
            self._ended = True
            asyncio.get_running_loop().remove_reader(self._heard)
        self._changed.set()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None  # noqa: S101  (as above)
        with suppress(BrokenPipeError):  # it has ended: whoever waits for it is told
            self._process.stdin.write(line.encode() + b"\n")

    def _last_words(self) -> str:
        lines = self._complaints.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


class Children:
    """The children of one rehearsal: a few are started ahead, and wait for their orders."""

    def __init__(self, setup: Setup, wanted: int) -> None:
        """``wanted``: how many orders there will be, at most."""
        self._setup = setup
        self._complaints = Path(setup.folder) / "children.log"
        self._left = wanted
        self._waiting: deque[Child] = deque()
        self._start_ahead()

    @contextmanager
    def started(self, order: Order) -> Iterator[Child]:
        """A child that carries out ``order``; killed at the end if it is still there."""
        child = self._waiting.popleft() if self._waiting else Child(self._complaints)
        try:
            self._start_ahead()
            child.carry_out(self._setup, order)
            yield child
        finally:
            child.kill()

    def close(self) -> None:
        """Kill those that were started and not wanted."""
        while self._waiting:
            self._waiting.popleft().kill()

    def _start_ahead(self) -> None:
        while self._left > 0 and len(self._waiting) < AHEAD:
            self._left -= 1
            self._waiting.append(Child(self._complaints))
