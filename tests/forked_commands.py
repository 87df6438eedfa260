"""Commands that start in milliseconds: forked from a process that has imported the command line.

Starting Python and importing everything takes most of a second, and the tests of the command
line start it hundreds of times. So each process that runs tests keeps one helper,
``python -m tests.forked_commands``, which imports all of it, opens nothing, and forks a child for
each command. The child has the arguments, folder, environment and files that it was given, and
is a real process with an exit code of its own.

The helper ends when the socket to it does, however the tests end.
"""

from __future__ import annotations

import array
import atexit
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LENGTH = struct.Struct("!I")
_FILES = 3


def run(
    words: Sequence[str], *, folder: Path, environ: Mapping[str, str], files: tuple[int, int, int]
) -> int:
    """Run ``postroom`` with ``words``; ``files`` are its standard input, output and error.

    Returns its exit code, negative for a signal.
    """
    ordered = start(words, folder=folder, environ=environ, files=files)
    return wait(ordered)


def start(
    words: Sequence[str], *, folder: Path, environ: Mapping[str, str], files: tuple[int, int, int]
) -> socket.socket:
    """Start a command; :func:`wait` tells how it ended."""
    ours, theirs = socket.socketpair()
    order = json.dumps({"words": list(words), "folder": str(folder), "environ": dict(environ)})
    with theirs:
        _send(_helper(), order.encode(), [*files, theirs.fileno()])
    return ours


def wait(ordered: socket.socket, seconds: float = 120) -> int:
    with ordered:
        ordered.settimeout(seconds)
        code = ordered.recv(16)
    if not code:
        raise RuntimeError("the process that forks commands is gone")
    return int(code)


@cache
def _helper() -> socket.socket:
    ours, theirs = socket.socketpair()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_commands", str(theirs.fileno())],
            cwd=ROOT,
            env={**kept, "PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait(60)

    atexit.register(end)
    return ours


def _send(to: socket.socket, text: bytes, files: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    head = _LENGTH.pack(len(text))
    to.sendmsg([head], rights)
    to.sendall(text)


# --------------------------------------------------------------------------- #
# Inside the helper
# --------------------------------------------------------------------------- #

_PRELOADED = (
    "aiosqlite",
    "httpx",
    "psycopg",
    "rich.table",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "dispatcher.cli.app",
    "dispatcher.service",
    "outbox.migrations",
    "providers.resend",
    "providers.smtp",
)


def main(number: int) -> None:
    from importlib import import_module

    for name in _PRELOADED:
        import_module(name)
    orders = socket.socket(fileno=number)
    while received := _received(orders):
        text, files = received
        if os.fork() == 0:
            orders.close()
            _supervise(json.loads(text), files)
        for file in files:
            os.close(file)
        while _reaped():
            pass


def _received(orders: socket.socket) -> tuple[bytes, list[int]] | None:
    space = socket.CMSG_SPACE((_FILES + 1) * struct.calcsize("i"))
    head, rights, _, _ = orders.recvmsg(_LENGTH.size, space)
    if not head:
        return None
    files = array.array("i")
    for _, _, data in rights:
        files.frombytes(data)
    left = _LENGTH.unpack(head)[0]
    text = b""
    while len(text) < left:
        text += orders.recv(left - len(text))
    return text, list(files)


def _reaped() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _supervise(order: dict[str, object], files: list[int]) -> None:
    """Fork the command itself, and tell how it ended; never returns."""
    *standard, told = files
    try:
        pid = os.fork()
        if pid == 0:
            os.close(told)
            _become(order, standard)
        for file in standard:
            os.close(file)
        status = os.waitpid(pid, 0)[1]
        os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
    finally:
        os._exit(0)


def _become(order: dict[str, object], standard: list[int]) -> None:
    code: object = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, source in enumerate(standard):
            os.dup2(source, target)
        for source in standard:
            if source >= _FILES:
                os.close(source)
        environ, folder, words = order["environ"], order["folder"], order["words"]
        assert isinstance(environ, dict)
        assert isinstance(folder, str)
        assert isinstance(words, list)
        os.environ.clear()
        os.environ.update(environ)
        time.tzset()
        os.chdir(folder)
        sys.stdin, sys.stdout, sys.stderr = _standard()
        sys.argv = ["postroom", *words]
        from dispatcher.cli import main as command

        try:
            command()
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:  # noqa: BLE001  (as the interpreter does)
            sys.excepthook(*sys.exc_info())
            code = 1
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 0)


def _standard() -> tuple[io.TextIOWrapper, io.TextIOWrapper, io.TextIOWrapper]:
    terminal = os.isatty(1)
    return (
        io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8"),
        io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", line_buffering=terminal
        ),
        io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
            "utf-8",
            "backslashreplace",
            line_buffering=True,
        ),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
