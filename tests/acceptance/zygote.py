"""Dispatchers that start in milliseconds: forked from a process that has imported everything.

A dispatcher that is killed every few hundred milliseconds must be there again within a few.
Starting Python and importing the drivers alone takes longer. So one small process,
``python -m tests.acceptance.zygote``, imports all of it, opens nothing, and forks a child for
each line it is told; the child runs :mod:`tests.acceptance.crashing` with the arguments of that
line. The children are real processes: they have their own connections, and SIGKILL leaves of
them what it leaves of any other.

The zygote ends, and its children with it, when its standard input ends; so nothing outlives
a test run, however that ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from tests.forked_commands import ROOT

PATIENCE = 90.0
"""Seconds after which a wait is a failure and not slowness."""


class Forked:
    """One child of the zygote."""

    def __init__(self, zygote: Zygote, pid: int, log: Path) -> None:
        self._zygote = zygote
        self.pid = pid
        self.log = log

    @property
    def running(self) -> bool:
        return self._zygote.status(self.pid) is None

    @property
    def said(self) -> str:
        """Everything it wrote."""
        try:
            return self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def wait_until_ready(self) -> None:
        """Return when it dispatches; signals are heard from then on."""
        self.wait_for_line("dispatching for")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing if it has ended."""
        self._zygote.signal(self.pid, number)

    def wait_until_stopped(self) -> None:
        """Return when SIGSTOP has stopped it, whoever sent that."""
        deadline = time.monotonic() + PATIENCE
        while _state(self.pid) != "T":
            assert self.running, f"process {self.pid} has ended: {self.said}"
            assert time.monotonic() < deadline, f"process {self.pid} does not stop"
            time.sleep(0.01)

    def wait_for_line(self, text: str) -> None:
        """Return when it has written ``text``."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.said:
            assert self.running, f"process {self.pid} has ended: {self.said}"
            assert time.monotonic() < deadline, f"no {text!r} in: {self.said}"
            time.sleep(0.01)

    def wait(self) -> int:
        """Its exit code, negative for a signal, once it has ended."""
        return self._zygote.wait(self.pid)

    def terminate(self) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, and return when it is gone; nothing if it has ended already."""
        self.signal(signal.SIGKILL)
        self.wait()


class Zygote:
    """The process that forks; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._changed = threading.Condition()
        self._ended: dict[int, int] = {}
        self._born: list[int] = []
        self.children: list[Forked] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.zygote"],
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        if error is not None:
            for child in self.children[-6:]:
                print(f"--- process {child.pid}, the end of {child.log.name}")
                print(child.said[-2000:])

    def fork(self, *arguments: str, environ: dict[str, str] | None = None) -> Forked:
        """Start ``tests.acceptance.crashing`` with ``arguments``."""
        self._count += 1
        log = self._folder / f"process-{self._count:04d}.log"
        order = {"arguments": arguments, "log": str(log), "environ": environ or {}}
        assert self._process.stdin is not None
        with self._changed:
            born = len(self._born)
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            if not self._changed.wait_for(lambda: len(self._born) > born, PATIENCE):
                raise TimeoutError("the zygote forks nothing")
            child = Forked(self, self._born[-1], log)
        self.children.append(child)
        return child

    def status(self, pid: int) -> int | None:
        with self._changed:
            return self._ended.get(pid)

    def signal(self, pid: int, number: signal.Signals) -> None:
        with self._changed:
            # Under the lock: what is not in here is not reaped yet, or is about to be.
            if pid not in self._ended:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    return

    def wait(self, pid: int) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: pid in self._ended, PATIENCE):
                raise TimeoutError(f"process {pid} does not end")
            return self._ended[pid]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, pid, *rest = line.split()
            with self._changed:
                if word == "born":
                    self._ended.pop(int(pid), None)
                    self._born.append(int(pid))
                else:
                    self._ended[int(pid)] = int(rest[0])
                self._changed.notify_all()


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(("POSTROOM_", "PYTEST_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT)}


def _state(pid: int) -> str:
    """The letter that ``ps`` shows for a process; "" when it is gone."""
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()[:1]


# --------------------------------------------------------------------------- #
# Inside the zygote
# --------------------------------------------------------------------------- #

_PRELOADED = (
    "aiosqlite",
    "anyio._backends._asyncio",
    "certifi",
    "httpcore",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "dispatcher.cli.app",
    "dispatcher.service",
    "providers.resend",
    "providers.smtp",
    "tests.acceptance.crashing",
)


def _tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def _reap(_number: int, _frame: FrameType | None) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _CHILDREN.discard(pid)
        _tell(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


_CHILDREN: set[int] = set()


def _child(order: dict[str, object], arguments: Sequence[str]) -> None:
    """Become what was ordered; never returns."""
    from tests.acceptance import crashing

    code = 70
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        environ = order["environ"]
        assert isinstance(environ, dict)
        os.environ.update(environ)
        code = crashing.main(arguments)
    except BaseException as error:  # noqa: BLE001 - a forked copy must not go on as a zygote
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def main() -> None:
    from importlib import import_module

    for name in _PRELOADED:
        import_module(name)
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        order = json.loads(line)
        # No child is reaped before it is known.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            _child(order, order["arguments"])
        _CHILDREN.add(pid)
        _tell(f"born {pid}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for pid in list(_CHILDREN):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
