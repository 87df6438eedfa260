"""The examples of the documentation: found, written down, run, and compared.

A ``python`` block is a program of its own; a ``console`` block is typed line by line. A comment
above a block (``<!-- file: NAME -->``) says what is special about it; ``docs/README.md`` lists them.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.surface.docs_check import ROOT

RUN = frozenset({"python", "console"})
"""Languages whose blocks are run unless they say why not."""

SHOWN_FOLDER, SHOWN_PORT = "/srv/shop", "2525"
"""What pages write where a run has a folder and a port of its own."""

_FENCE = re.compile(r"^```(\S*)$")
_NOTE = re.compile(r"^<!-- ([a-z ]+?)(?:: (.+))? -->$")
_VARYING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{3})?Z", "INSTANT"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000", "DATE"),
    (r"\d\d:\d\d:\d\d(\.\d|Z)", "TIME"),
    (r"\d{4}-W\d\d", "WEEK"),
    (r"\d{4}-\d\d-\d\d UTC", "DAY"),
    (r"\d[\d.]* (s|min|h)\b", "SPAN"),
    (r"(sqlite|postgresql) \d[\d.]*", "SERVER"),
    (r"(claimed by|dispatching for [\w, ]+ as) \S+(?= for|, )", r"\1 OWNER"),
    (r" +", " "),
)


@dataclass(frozen=True)
class Block:
    """One code block. ``note`` and ``value`` come from the comment above it."""

    page: Path
    line: int
    language: str
    text: str
    note: str = ""
    value: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every code block of a page, in order."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if start is not None and line == "```":
            note = _NOTE.match(lines[start - 1]) if start else None
            fence = _FENCE.match(lines[start])
            text = "".join(f"{each}\n" for each in lines[start + 1 : number])
            named = (note[1], note[2] or "") if note else ("", "")
            found.append(Block(page, start + 1, fence[1] if fence else "", text, *named))
            start = None
        elif start is None and _FENCE.match(line):
            start = number
    return found


def same(text: str) -> str:
    """``text`` without what differs from run to run."""
    for pattern, word in _VARYING:
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class Stage:
    """A folder in which the examples of one page are run, one after the other."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder / "shop"
        self.folder.mkdir()
        self.port = _free_port()
        self._background: list[subprocess.Popen[bytes]] = []
        commands = folder / "bin"
        commands.mkdir()
        for name, words in (("python", ""), ("postroom", " -m dispatcher")):
            script = commands / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{words} "$@"\n')
            script.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.upper().startswith("POSTROOM_")}
        self._environ = {
            **kept,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **(environ or {}),
        }

    def type(self, command: str) -> str:
        """Run one line of shell; what it said on both channels. It has to end with 0."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        said = done.stdout.decode()
        assert done.returncode == 0, f"$ {command}\n{said}"
        return said

    def start(self, command: str) -> None:
        """Run one line in the background until this stage is left; it listens when this returns."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self._environ
        )
        self._background.append(process)
        while process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as probe:
                    probe.recv(100)
            except ConnectionRefusedError:
                continue
            return
        raise AssertionError(f"$ {command} ended with {process.returncode}")

    def perform(self, block: Block) -> str:
        """Write or run one block; what a program said."""
        text = block.text.replace(SHOWN_PORT, str(self.port))
        if block.note == "file":
            (self.folder / block.value).write_text(text, encoding="utf-8")
        elif block.language == "console":
            self._session(block, text)
        elif block.language == "python":
            (self.folder / "example.py").write_text(text, encoding="utf-8")
            return self.type("python example.py")
        return ""

    def _session(self, block: Block, text: str) -> None:
        commands = re.split(r"^\$ ", text, flags=re.MULTILINE)
        assert not commands[0].strip(), f"{block.place}: a session begins with a command"
        for each in commands[1:]:
            command, _, expected = each.partition("\n")
            if command.endswith(" &"):
                self.start(command.removesuffix(" &"))
                continue
            said = self.type(command).replace(str(self.folder), SHOWN_FOLDER)
            assert same(said) == same(expected), f"{block.place}: $ {command}\n{said}"

    def end(self) -> None:
        """End what runs in the background."""
        for process in self._background:
            process.terminate()
            process.wait(timeout=30)


@contextmanager
def stage(folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[Stage]:
    """A :class:`Stage` below ``folder``."""
    made = Stage(folder, environ)
    try:
        yield made
    finally:
        made.end()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
