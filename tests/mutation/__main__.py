"""``make mutate``: take each guard out of a copy of the project, and see its test fail.

The copy is made once for each process that works; a guard is put back before the next one is
taken out. Arguments choose guards by a part of their name. Exit code 1 if a guard is missed by
nobody, or if a test fails with every guard in place.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.mutation.guards import GUARDS, Cut, Guard
from tests.session import Session

ROOT = Path(__file__).parents[2]
COPIED = ("outbox", "dispatcher", "providers", "migrations", "examples", "tests", "docs")
FILES = ("pyproject.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "Makefile")
PYTEST_FAILED = 1
"""pytest's exit code when tests ran and some failed; another one means that they did not run."""


def main(words: Sequence[str]) -> int:
    chosen = [each for each in GUARDS if not words or any(word in each.name for word in words)]
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="postroom-mutate-") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            copies.put(_copy(Path(folder) / str(number)))
        with _server() as url, ThreadPoolExecutor(workers) as pool:
            if said := _all_in_place(copies, chosen, url):
                print(said)
                print("With every guard in place, this must pass.")
                return 1
            missed = [
                name for name in pool.map(lambda each: _try(each, copies, url), chosen) if name
            ]
    invariants = {each.invariant for each in chosen}
    print(
        f"{len(chosen)} guards of {len(invariants)} invariants were taken out, one after the other: "
        f"{len(chosen) - len(missed)} were missed by their tests, {len(missed)} by nobody."
    )
    return 1 if missed else 0


@contextmanager
def _server() -> Iterator[str]:
    """One PostgreSQL for all these runs of pytest; it ends with this process, however that ends."""
    session = Session.begin()
    try:
        yield session.server_url()
    finally:
        session.end()


def _copy(target: Path) -> Path:
    target.mkdir(parents=True)
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "var")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, target / name)
    return target


def _all_in_place(copies: queue.Queue[Path], chosen: Iterable[Guard], url: str) -> str:
    copy = copies.get()
    code, said = _pytest(copy, sorted({each.test for each in chosen}), url)
    copies.put(copy)
    return said if code else ""


def _try(guard: Guard, copies: queue.Queue[Path], url: str) -> str:
    """Its name if nobody missed it."""
    copy = copies.get()
    before = {cut.file: (copy / cut.file).read_text("utf-8") for cut in guard.cuts}
    try:
        for cut in guard.cuts:
            _take_out(copy / cut.file, cut)
        code, said = _pytest(copy, [guard.test, "-x"], url)
    finally:
        for file, text in before.items():
            (copy / file).write_text(text, "utf-8")
        copies.put(copy)
    caught = code == PYTEST_FAILED
    print(f"{'missed by' if caught else 'NOT MISSED BY'} {guard.test}: {guard.name}", flush=True)
    if not caught:
        print(f"    pytest ended with {code}: {said.strip().splitlines()[-1:]}", flush=True)
    return "" if caught else guard.name


def _take_out(file: Path, cut: Cut) -> None:
    text = file.read_text("utf-8")
    if text.count(cut.text) != 1:
        raise SystemExit(f"{cut.file}: {cut.text!r} stands there {text.count(cut.text)} times")
    file.write_text(text.replace(cut.text, cut.without), "utf-8")


def _pytest(copy: Path, words: Sequence[str], url: str) -> tuple[int, str]:
    environ = {**os.environ, "PYTHONPATH": str(copy), "POSTROOM_TEST_POSTGRES_URL": url}
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=copy,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
