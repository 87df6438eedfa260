"""Dispatchers as real processes on one database: started, signalled, waited for, always reaped.

A test says what it waits for (a line of a log, a row, a process that ends), and
never how long something takes: :data:`PATIENCE` only turns a test that would
hang into one that fails and shows every log.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import outbox
from outbox.database import open_engine
from tests.command_line import CommandLine
from tests.conformance.ledger import rows

PATIENCE = 90.0
"""Seconds after which a wait is a failure and not slowness."""

DATABASE = "FLEET_DATABASE"
"""The variable that holds the database's URL: it may have a password."""

API_KEY = "FLEET_API_KEY"
"""The variable that holds an API key for accounts that need one."""

UNHANDLED = ("Traceback", "this is a defect", "exception was never retrieved", "was destroyed")
"""What no log of a dispatcher may hold, whatever happened to it."""


class Process:
    """One process of ours; its lines are kept as they come."""

    def __init__(self, name: str, command: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._said: dict[str, list[str]] = {"out": [], "err": []}
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Ctrl-C in the terminal of the tests is not a signal for these.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            self._reader(self._process.stdout, "out"),
            self._reader(self._process.stderr, "err"),
        ]

    # What it said

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def out(self) -> list[str]:
        with self._changed:
            return list(self._said["out"])

    @property
    def log(self) -> list[str]:
        with self._changed:
            return list(self._said["err"])

    def wait_for_line(self, text: str, count: int = 1) -> None:
        """Return when ``count`` lines of the log hold ``text``."""

        def there() -> bool:
            return sum(text in line for line in self._said["err"]) >= count

        with self._changed:
            if not self._changed.wait_for(lambda: there() or self._ended(), PATIENCE):
                raise TimeoutError(f"{self.name} never said {text!r}:\n{self._tail()}")
            assert there(), f"{self.name} ended and never said {text!r}:\n{self._tail()}"

    # What is done to it

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP, and return when it stands still."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code, once it has ended and all it said is here."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} does not end:\n{self._tail()}") from None
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def terminate(self) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, and return when it is gone; nothing if it has ended already."""
        self._process.kill()
        self.wait()

    def _ended(self) -> bool:
        return not any(reader.is_alive() for reader in self._readers)

    def _tail(self) -> str:
        return "\n".join([*self._said["err"][-40:], *self._said["out"][-5:]])

    def _reader(self, stream: IO[str], kind: str) -> threading.Thread:
        def read() -> None:
            with stream:
                for line in stream:
                    with self._changed:
                        self._said[kind].append(line.rstrip("\n"))
                        self._changed.notify_all()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        # A wait for a line ends when nothing more can come.
        threading.Thread(target=self._tell_the_end, args=(thread,), daemon=True).start()
        return thread

    def _tell_the_end(self, reader: threading.Thread) -> None:
        reader.join()
        with self._changed:
            self._changed.notify_all()


class Fleet:
    """The dispatchers of one test, with the configuration they share.

    ``account`` holds lines of TOML for the account ``main``. At the end every
    process is killed, and no log may hold what nobody handled.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        account: str,
        *,
        lease: str = "20s",
        poll: str = "50ms",
        concurrency: int = 20,
        grace: str = "60s",
        retry_after: str = "100ms",
    ) -> None:
        self.url = url
        self.folder = folder
        self.processes: list[Process] = []
        self.postroom = CommandLine(folder, {DATABASE: url, API_KEY: "re_example_KEY_123"})
        (folder / "postroom.toml").write_text(
            f"""
[database]
url = "env:{DATABASE}"

[defaults]
account = "main"
from = "Reports <reports@example.com>"

[dispatcher]
lease = "{lease}"
poll_interval = "{poll}"
concurrency = {concurrency}
shutdown_grace = "{grace}"

[accounts.main]
retry = {{ attempts = 50, window = "1h", first_delay = "{retry_after}", max_delay = "{retry_after}" }}
{account}
""",
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self.processes:
            with suppress(TimeoutError):
                process.kill()
        if error is None:
            self.assert_clean_logs()
        else:
            self.show_logs()

    def start(self, *words: str) -> Process:
        """Start ``postroom dispatch`` with ``words``."""
        name = f"dispatcher {len(self.processes) + 1}"
        command = [sys.executable, "-m", "dispatcher", "dispatch", *words]
        process = Process(name, command, self.folder, self.postroom._environ())
        self.processes.append(process)
        return process

    def another_account(self, name: str) -> Path:
        """A configuration for the same database that knows only this account, which is a folder."""
        text = (self.folder / "postroom.toml").read_text(encoding="utf-8")
        head, _, _ = text.partition("[accounts.main]")
        path = self.folder / f"{name}.toml"
        account = f'[accounts.{name}]\nprovider = "file"\n'
        path.write_text(head.replace('"main"', f'"{name}"') + account, encoding="utf-8")
        return path

    def freeze(self, process: Process) -> None:
        """Stop a process at a moment at which it keeps nobody from writing.

        Stopped inside a transaction it would hold SQLite's only lock, or rows, for as
        long as it stands still.
        """
        deadline = time.monotonic() + PATIENCE
        process.stop()
        while not self._nobody_writes():
            assert time.monotonic() < deadline, f"{process.name} is always inside a transaction"
            process.signal(signal.SIGCONT)
            process.stop()

    def _nobody_writes(self) -> bool:
        if not self.url.startswith("sqlite"):
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            # What PostgreSQL is still doing for it ends by itself.
            self.until(lambda: rows(self.url, sessions + "AND state = 'active'") == [(1,)])
            return rows(self.url, sessions + "AND state LIKE 'idle in%'") == [(0,)]
        path = self.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("ROLLBACK")
            return True

    def start_many(self, count: int, *words: str) -> list[Process]:
        """Start ``count`` of them, one right after the other."""
        return [self.start(*words) for _ in range(count)]

    def run(self, program: str, *arguments: str) -> Process:
        """Start a Python program (its text) that imports what the tests import."""
        name = f"program {len(self.processes) + 1}"
        command = [sys.executable, "-c", program, *arguments]
        process = Process(name, command, self.folder, self.postroom._environ())
        self.processes.append(process)
        return process

    # What stands in the database

    @property
    def states(self) -> Counter[str]:
        """How many deliveries are in each state."""
        found = rows(self.url, "SELECT state, count(*) FROM outbox_deliveries GROUP BY state")
        return Counter({str(state): int(count) for state, count in found})

    def one(self, sql: str) -> tuple[object, ...]:
        """The only row of a query."""
        [row] = rows(self.url, sql)
        return tuple(row)

    def until(self, condition: Callable[[], object]) -> None:
        """Return when ``condition`` about the database holds; asked again and again."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"did not happen; {self.states}"
            time.sleep(0.02)

    def enqueue(self, count: int, prefix: str = "k") -> list[str]:
        """Enqueue ``count`` deliveries in one transaction; their keys."""
        keys = [f"{prefix}:{number:05d}" for number in range(count)]
        self.enqueue_keys(keys)
        return keys

    def enqueue_keys(self, keys: Iterable[str], **options: object) -> None:
        """Enqueue one small delivery under each key, in one transaction."""
        engine = open_engine(self.url)
        try:
            with engine.begin() as connection:
                outbox.enqueue_many(connection, ((small(key), key) for key in keys), **options)  # type: ignore[arg-type]
        finally:
            engine.dispose()

    # What was said

    def assert_clean_logs(self) -> None:
        """No process said anything that nobody handled."""
        for process in self.processes:
            bad = [line for line in process.log for word in UNHANDLED if word in line]
            assert bad == [], f"{process.name}: {bad}"

    def show_logs(self) -> None:
        """Print the end of every log, for the report of a test that failed."""
        for process in self.processes:
            print(f"--- {process.name}, the last of {len(process.log)} lines")
            print(process._tail())


def small(key: str) -> outbox.Email:
    """A small message that names its key."""
    return outbox.Email(to="ana@example.org", subject=key, text=f"About {key}.\n")
