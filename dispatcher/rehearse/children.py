"""Children as the rehearsal sees them: started, waited for, killed or stopped, always reaped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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
    """One process of ours."""

    def __init__(self, process: asyncio.subprocess.Process, complaints: Path) -> None:
        self._process = process
        self._complaints = complaints

    async def carry_out(self, setup: Setup, order: Order) -> None:
        """Give it its order."""
        assert self._process.stdin is not None  # noqa: S101  (it was opened as a pipe)
        text = json.dumps({"setup": setup.written(), "order": asdict(order)})
        self._process.stdin.write(text.encode() + b"\n")
        with suppress(ConnectionError):  # it has ended: whoever waits for it is told
            await self._process.stdin.drain()

    async def reaches(self, point: str, times: int = 1) -> None:
        """Return when the child has said ``point`` so often. Raises ChildEnded."""
        assert self._process.stdout is not None  # noqa: S101  (as above)
        while times:
            line = await self._process.stdout.readline()
            if not line:
                await self._process.wait()
                raise ChildEnded(f"before {point}: {self._last_words()}")
            times -= line.decode().strip() == point

    async def kill(self) -> None:
        """As ``kill -9`` does: nothing is finished."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def stop(self) -> None:
        """As a service manager does: SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def go_on(self) -> None:
        """Let what stalls in the child go on."""
        assert self._process.stdin is not None  # noqa: S101  (as above)
        self._process.stdin.write(b"\n")

    async def ends(self) -> int:
        """Its exit code."""
        return await self._process.wait()

    def _last_words(self) -> str:
        lines = self._complaints.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


class Children:
    """The children of one rehearsal: a few are started ahead, and wait for their orders.

    They run the very code that runs here, whatever the working directory holds; Ctrl-C in the
    terminal does not reach them.
    """

    def __init__(self, setup: Setup, wanted: int) -> None:
        """``wanted``: how many orders there will be, at most."""
        self._setup = setup
        self._left = wanted
        self._waiting: deque[asyncio.Task[Child]] = deque()
        self._start_ahead()

    @asynccontextmanager
    async def started(self, order: Order) -> AsyncIterator[Child]:
        """A child that carries out ``order``; killed at the end if it is still there."""
        starting = self._waiting.popleft() if self._waiting else self._start()
        self._start_ahead()
        child = await starting
        try:
            await child.carry_out(self._setup, order)
            yield child
        finally:
            await child.kill()

    async def aclose(self) -> None:
        """Kill those that were started and not wanted."""
        self._left = 0
        while self._waiting:
            await (await self._waiting.popleft()).kill()

    def _start_ahead(self) -> None:
        while self._left > 0 and len(self._waiting) < AHEAD:
            self._left -= 1
            self._waiting.append(self._start())

    def _start(self) -> asyncio.Task[Child]:
        return asyncio.create_task(_start(Path(self._setup.folder) / "children.log"))


async def _start(complaints: Path) -> Child:
    code = str(Path(next(iter(dispatcher.__path__))).parent)
    path = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH", "")]))
    with complaints.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "dispatcher.rehearse.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )  # fmt: skip
    return Child(process, complaints)
