"""A run happens once, whatever happens to the processes that work on it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.job_rig import attempts, database_now, until
from tests.conformance.ledger import change, rows
from tests.forked_commands import ROOT

KEY = "report:s:w48"
COMMAND = [sys.executable, "-m", "tests.acceptance.job_worker"]


@pytest.fixture
def url(database_url: str) -> str:
    """A database with a table for the job's results."""
    change(database_url, "CREATE TABLE results (label VARCHAR(20), result INTEGER)")
    return database_url


class Worker:
    """One start of the job as a process, spoken to over its pipes."""

    def __init__(self, url: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "work", url, "w48", *options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """What it says next."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, what: str) -> None:
        """What it is to do next."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def until_stopped(self) -> None:
        """Return when SIGSTOP has stopped it, whoever sent that."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the process to stop")

    def wait(self) -> int:
        """Its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait(60)
        self._process.stdout.close()
        return code

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self.wait()


@contextmanager
def worker(url: str, *options: str) -> Iterator[Worker]:
    made = Worker(url, *options)
    try:
        yield made
    finally:
        made.end()


def many(*arguments: str) -> list[str]:
    """What a crowd, or a row of killed ones, said."""
    done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def lapsed(url: str) -> bool:
    """Whether the first attempt's lease has run out, by the database's clock."""
    [(expires,)] = attempts(url, "lease_expires_at", key=KEY)
    at = database_now(url)
    return bool(
        (f"{at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" if isinstance(expires, str) else at) > expires
    )


def results(url: str) -> tuple[int, int]:
    """Rows of results and of deliveries."""
    [(found, mails)] = rows(
        url, "SELECT (SELECT count(*) FROM results), (SELECT count(*) FROM outbox_deliveries)"
    )
    return found, mails


def test_of_six_at_once_one_works(url: str) -> None:
    """Concurrent starts: one is told that it is theirs; the others, who has it or that it is complete."""
    said = many("crowd", url, "w48", "6")
    words = Counter(" ".join(line.split()[:2]) for line in said)
    assert words["status 0"] == 6
    assert words["ready 1"] == 1
    others = [line for line in said if line.startswith(f"{KEY} is")]
    assert len(others) == 6
    assert sum("is complete: 1 delivery pending" in line for line in others) == 1
    assert sum("elsewhere" in line or "complete since" in line for line in others) == 5
    assert results(url) == (1, 1)
    assert attempts(url, "number, outcome", key=KEY) == [(1, "succeeded")]


def test_killed_before_any_statement_the_run_happens_once(url: str) -> None:
    """Crash before and after the commit: results, delivery and completion are there together, or
    none of them; the next start does what is left, and no more."""
    said = [line.split() for line in many("killed", url)]
    died, again = said[0::2], said[1::2]
    assert {tuple(line[1:]) for line in again} == {("again", "1", "1", "succeeded")}
    seen = {tuple(line[1:]) for line in died}
    nothing = {("killed", "0", "0", state) for state in ("none", "running")}
    assert seen == nothing | {
        ("killed", "1", "1", "succeeded"),
        ("survived", "1", "1", "succeeded"),
    }
    assert len(died) > 20
    assert rows(url, "SELECT count(*) FROM outbox_run_attempts WHERE outcome IS NULL") == [(0,)]
    [(tally,)] = rows(url, "SELECT value FROM outbox_tallies WHERE name = 'runs_finished'")
    assert tally == len(died)


@pytest.mark.parametrize("ending", ["check", "finish"])
def test_stopped_past_its_lease_a_worker_changes_nothing(url: str, ending: str) -> None:
    """Woken after another has finished, with its results ready: told so, and refused."""
    with worker(url, "--lease", "1", "--wait") as old:
        assert old.line() == "ready 1"
        old.signal(signal.SIGSTOP)
        old.until_stopped()
        until(lambda: lapsed(url), "the lease to lapse")
        with worker(url) as new:
            assert new.line() == "ready 2"
            assert new.line() == f"{KEY} is complete: 1 delivery pending"
            assert new.wait() == 0
        old.signal(signal.SIGCONT)
        old.tell(ending)
        assert old.line().startswith(f"lost: {KEY}: attempt 1 does not own this run any more")
        if ending == "check":
            old.tell("finish")
            assert old.line().startswith("lost: ")
        assert old.wait() == 0
    assert results(url) == (1, 1)
    assert attempts(url, "outcome", key=KEY) == [("lost",), ("succeeded",)]


def test_stopped_at_its_commit_a_worker_changes_nothing(url: str) -> None:
    """The same when it is stopped before the first statement of its transaction."""
    with worker(url, "--lease", "1", "--stop") as old:
        assert old.line() == "ready 1"
        old.until_stopped()
        until(lambda: lapsed(url), "the lease to lapse")
        with worker(url) as new:
            assert new.line() == "ready 2"
            assert new.line() == f"{KEY} is complete: 1 delivery pending"
            assert new.wait() == 0
        old.signal(signal.SIGCONT)
        assert old.line().startswith(f"lost: {KEY}: attempt 1 does not own this run any more")
        assert old.wait() == 0
    assert results(url) == (1, 1)


def test_stopped_and_woken_in_time_a_worker_goes_on(url: str) -> None:
    """A lease that lapsed while nobody else came is still its own."""
    with worker(url, "--lease", "1", "--wait") as old:
        assert old.line() == "ready 1"
        old.signal(signal.SIGSTOP)
        old.until_stopped()
        until(lambda: lapsed(url), "the lease to lapse")
        old.signal(signal.SIGCONT)
        old.tell("check")
        assert old.line() == "still ours"
        old.tell("finish")
        assert old.line() == f"{KEY} is complete: 1 delivery pending"
        assert old.wait() == 0
    assert results(url) == (1, 1)
    assert attempts(url, "outcome", key=KEY) == [("succeeded",)]
