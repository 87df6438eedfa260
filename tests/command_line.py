"""The real command line in processes of its own, piped or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests import forked_commands
from tests.forked_commands import ROOT


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        return self.out + self.err


@dataclass
class CommandLine:
    """``postroom`` in a working directory, with no POSTROOM variables but ``environ``."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, *words: str, stdin: str | bytes = b"", stdout: IO[str] | int = subprocess.PIPE
    ) -> Ended:
        """Run one command with its output piped, or going to ``stdout``."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        if self._needs_its_own_start or stdout != subprocess.PIPE:
            ended = subprocess.run(
                [sys.executable, "-m", "dispatcher", *words],
                cwd=self.folder,
                env=self._environ(),
                input=given,
                stdout=stdout,
                stderr=subprocess.PIPE,
                timeout=120,
            )
            return Ended(ended.returncode, (ended.stdout or b"").decode(), ended.stderr.decode())
        with TemporaryFile() as to, TemporaryFile() as out, TemporaryFile() as err:
            to.write(given)
            to.seek(0)
            files = (to.fileno(), out.fileno(), err.fileno())
            code = forked_commands.run(
                words, folder=self.folder, environ=self._environ(), files=files
            )
            out.seek(0)
            err.seek(0)
            return Ended(code, out.read().decode(), err.read().decode())

    @property
    def _needs_its_own_start(self) -> bool:
        """What Python reads when it starts cannot be given to a process that has started."""
        return any(name.startswith(("PYTHON", "LC_", "LANG")) for name in self.environ)

    def on_terminal(self, *words: str, width: int = 80) -> Ended:
        """Run one command with a terminal of this width as its output."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        with TemporaryFile() as err:
            ordered = forked_commands.start(
                words,
                folder=self.folder,
                environ=self._environ(),
                files=(theirs, theirs, err.fileno()),
            )
            os.close(theirs)
            read = b"".join(iter(lambda: _read(ours), b""))
            os.close(ours)
            code = forked_commands.wait(ordered)
            err.seek(0)
            said = err.read()
        return Ended(code, read.decode().replace("\r\n", "\n"), said.decode())

    def _environ(self) -> Mapping[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith("POSTROOM_") and name not in {"COLUMNS", "LINES"}
        }
        return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **self.environ}


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the last process has closed the other side
        return b""
