"""Processes that work on jobs, by a clock of the test's own, and what they have done in the end."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from outbox.jobs.periods import parse_rule
from tests.clocks import MovedClock
from tests.conformance.ledger import change, rows

ROOT = Path(__file__).parents[2]
POSTROOM = [sys.executable, "-m", "tests.clocked"]


@dataclass
class Site:
    """A folder with a configuration, a database, and the clock of both."""

    folder: Path
    url: str
    clock: MovedClock
    modules: tuple[str, ...] = ("tests.acceptance.zone_jobs",)
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ", ".join(f'"{name}"' for name in self.modules)
        (self.folder / "postroom.toml").write_text(
            f'[jobs]\nmodules = [{names}]\nconcurrency = 4\npoll_interval = "50ms"\n'
        )
        change(self.url, "CREATE TABLE produced (run_key VARCHAR(200), attempt INTEGER)")

    @property
    def log(self) -> Path:
        """What processes say that nobody listens to."""
        return self.folder / "log.txt"

    def start(self, *words: str, **pipes: Any) -> subprocess.Popen[str]:
        """Start ``postroom`` with these words."""
        kept = {k: v for k, v in os.environ.items() if not k.upper().startswith("POSTROOM_")}
        return subprocess.Popen(
            [*POSTROOM, *words],
            cwd=self.folder,
            env={
                **kept,
                "PYTHONPATH": str(ROOT),
                "POSTROOM_DATABASE__URL": self.url,
                **self.clock.environ,
                **self.environ,
            },
            stdout=pipes.pop("stdout", subprocess.PIPE),
            stderr=pipes.pop("stderr", subprocess.STDOUT),
            text=True,
            **pipes,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and output of one command."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said


@dataclass
class Killed:
    """A process that is started again and again, and killed in between."""

    site: Site
    words: tuple[str, ...]
    kills: int = 0
    process: subprocess.Popen[str] | None = None

    def keep(self) -> None:
        """Start it if it has ended."""
        if self.process is None or self.process.poll() is not None:
            self.end()
            with self.site.log.open("a") as log:
                self.process = self.site.start(*self.words, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL, if it is there."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            self.kills += 1

    def end(self) -> None:
        """Make sure that it is not there."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()


def storm(site: Site, *, until: datetime, chance: random.Random) -> int:
    """Two workers and a loop of ticks, killed at random, until the clock shows ``until``; the kills."""
    pack = [
        Killed(site, ("jobs", "work")),
        Killed(site, ("jobs", "work")),
        Killed(site, ("jobs", "tick")),
    ]
    try:
        while site.clock.now < until:
            for each in pack:
                each.keep()
            time.sleep(chance.uniform(0.05, 0.4))
            if chance.random() < 0.25:
                chance.choice(pack).kill()
    finally:
        for each in pack:
            each.end()
    return sum(each.kills for each in pack)


def settle(site: Site) -> None:
    """By a clock that stands: take over what the dead have left, and do what is due."""
    for _ in range(20):
        code, said = site.run("jobs", "tick")
        assert code == 0, said
        left = rows(
            site.url, "SELECT count(*) FROM outbox_runs WHERE state IN ('planned', 'running')"
        )
        if left == [(0,)]:
            return
    raise AssertionError(f"runs are left: {left}")


def expected(site: Site) -> set[str]:
    """The keys of every period of every subject that has fallen due, by the calendar itself."""
    from outbox.jobs.run_keys import run_key

    found: set[str] = set()
    now = site.clock.now
    schedules = rows(
        site.url,
        "SELECT job, subject, timezone, active_since FROM outbox_schedules WHERE subject <> ''",
    )
    rules = dict(rows(site.url, "SELECT job, rule FROM outbox_schedules WHERE subject = ''"))
    for job, subject, timezone, since in schedules:
        began = since if isinstance(since, datetime) else datetime.fromisoformat(since)
        for period in parse_rule(rules[job]).in_zone(timezone).due_since(began):
            if period.due > now:
                break
            found.add(run_key(job, subject, period.label))
    return found


def check_exactly_once(site: Site) -> set[str]:
    """Every period of every subject has one run, which succeeded, with its result and its delivery
    once; the keys."""
    wanted = expected(site)
    assert "Traceback" not in (site.log.read_text() if site.log.exists() else "")
    runs = Counter(
        dict(rows(site.url, "SELECT run_key, count(*) FROM outbox_runs GROUP BY run_key"))
    )
    states = rows(site.url, "SELECT DISTINCT state FROM outbox_runs")
    assert [tuple(row) for row in states] == [("succeeded",)]
    assert set(runs) == wanted
    assert set(runs.values()) == {1}
    produced = Counter(key for (key,) in rows(site.url, "SELECT run_key FROM produced"))
    assert (set(produced), set(produced.values())) == (wanted, {1})
    deliveries = Counter(key for (key,) in rows(site.url, "SELECT run_key FROM outbox_deliveries"))
    assert (set(deliveries), set(deliveries.values())) == (wanted, {1})
    return wanted
