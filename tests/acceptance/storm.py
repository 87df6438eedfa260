"""Many deliveries through a storm: dispatchers killed at random, answers lost, the database restarted.

    python -m tests.acceptance.storm --provider resend --database postgresql --deliveries 1000

A supervisor keeps a few dispatcher processes alive, kills one of them with SIGKILL every few
hundred milliseconds, and starts another in its place. Meanwhile the provider takes messages and
loses a part of its answers. The killing ends when little is left; whoever is alive then finishes.
What happened is counted at the provider and read from the database, and nowhere else.

Everything that is thrown by dice depends on ``--seed``; what the operating system decides does
not, so two storms with one seed are alike and not equal.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outbox.migrations import migrate
from tests.acceptance.matrix import KeyProvider, SmtpAccount, configuration, enqueue, start
from tests.acceptance.zygote import Forked, Zygote
from tests.conformance.ledger import rows
from tests.postgres import Server
from tests.servers.resend import Faults, ResendServer
from tests.servers.smtp import SmtpServer
from tests.session import Session

ACCOUNT = "main"
POLL = "200ms"
CALM_BELOW = 0.05
"""The part of the deliveries that is still open when the killing ends."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad it gets. Times in seconds; ``lose`` is the part of answers that are lost.

    A dispatcher lives for about ``dispatchers`` kills. That has to be much longer than one
    delivery takes: a delivery whose dispatchers all die under it, three of them while it is their
    only one, is rightly suspected and held.
    """

    deliveries: int
    seed: int = 1
    dispatchers: int = 6
    slots: int = 3
    kill_after: tuple[float, float] = (0.2, 0.7)
    lose: float = 0.15
    delay: float = 0.15
    lease: float = 5.0
    longest: float = 600.0
    """After this the killing ends, however much is left; but not before one dispatcher was killed
    in the middle of a transmission, however slow the machine is."""
    patience: float = 900.0

    @property
    def keys(self) -> list[str]:
        return [f"storm:{number:05d}" for number in range(self.deliveries)]


@dataclass(slots=True)
class Storm:
    """What was seen of one storm."""

    seconds: float = 0.0
    kills: int = 0
    restarts: int = 0
    transmitting_when_killed: set[str] = field(default_factory=set)
    """Deliveries that a killed dispatcher had marked and not settled."""
    claimed_when_killed: set[str] = field(default_factory=set)
    """Deliveries that a killed dispatcher had claimed and not marked."""
    states: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    copies: int = 0
    """Second acceptances that the database knows of."""

    def summary(self) -> str:
        """For a report; a line for each part."""
        marked, claimed = len(self.transmitting_when_killed), len(self.claimed_when_killed)
        reasons = f" {dict(self.reasons)}" if self.reasons else ""
        ends = f"{self.kills} dispatchers killed, {self.restarts} restarts of the database"
        return "\n".join(
            [
                f"{self.seconds:.1f} s, {ends}",
                f"at the kills {claimed} deliveries were claimed only, {marked} were transmitting",
                f"states: {dict(Counter(self.states.values()))}{reasons}",
            ]
        )


class LossySink(SmtpServer):
    """The SMTP sink, which drops the connection after a part of the final dots."""

    def __init__(self, weather: Weather) -> None:
        dice = random.Random(weather.seed)
        dots = ["drop" if dice.random() < weather.lose else "250" for _ in range(20_000)]
        super().__init__(steps={"dot": dots}, delay=weather.delay / 2)
        self.lost: set[str] = set()
        """Subjects of the messages whose answer was lost."""
        self._dot = threading.local()

    def action(self, *steps: str) -> str | None:
        action = super().action(*steps)
        if "dot" in steps:
            self._dot.action = action
        return action

    def note_taken(
        self, connection: int, sender: str, recipients: list[str], wire: bytes, content: bytes
    ) -> int:
        if self._dot.action == "drop":
            self.lost.add(subject_of(content))
        return super().note_taken(connection, sender, recipients, wire, content)

    def subjects(self) -> Counter[str]:
        """How often a message with each subject was taken."""
        return Counter(subject_of(each.content) for each in self.taken)


def subject_of(content: bytes) -> str:
    """The subject of a message whose subject is ASCII."""
    found = re.search(rb"^Subject: (.*?)\r\n", content, re.MULTILINE)
    return found[1].decode("ascii") if found else ""


class Supervisor:
    """Keeps dispatchers alive and kills them."""

    def __init__(self, zygote: Zygote, url: str, config: Path, weather: Weather) -> None:
        self._url = url
        self._weather = weather
        self._dice = random.Random(f"supervisor:{weather.seed}")
        self._begin: Callable[[], Forked] = lambda: start(
            zygote, url, config, "--lease", str(weather.lease)
        )
        self._alive: list[Forked] = []
        self.storm = Storm()

    def run(self, restarts: Sequence[Callable[[], None]] = ()) -> Storm:
        """Until nothing is open; ``restarts`` are spread over the first part of the storm."""
        storm, weather = self.storm, self._weather
        began = time.monotonic()
        self._alive = [self._begin() for _ in range(weather.dispatchers)]
        due = [
            (weather.deliveries * (1 - (n + 1) / (len(restarts) + 2)), restart)
            for n, restart in enumerate(restarts)
        ]
        while (left := self._open()) > 0:
            assert time.monotonic() - began < weather.patience, f"{left} open: {self._tail()}"
            if due and left <= due[0][0]:
                due.pop(0)[1]()
                storm.restarts += 1
            elif self._stormy(left, time.monotonic() - began):
                time.sleep(self._dice.uniform(*weather.kill_after))
                self._kill_one()
            else:
                time.sleep(0.05)
            self._replace_the_dead()
        storm.seconds = time.monotonic() - began
        for process in self._alive:
            code = process.terminate()
            # One that was started a moment ago hears the signal before it listens to it.
            assert code in {0, -signal.SIGTERM}, process.said
        self._read()
        return storm

    def _stormy(self, left: int, seconds: float) -> bool:
        weather = self._weather
        enough = self.storm.transmitting_when_killed and seconds >= weather.longest
        return left > weather.deliveries * CALM_BELOW and not enough

    def _kill_one(self) -> None:
        victim = self._alive.pop(self._dice.randrange(len(self._alive)))
        victim.kill()
        self.storm.kills += 1
        for key, phase in self._left_by(victim.pid):
            transmitting = phase == "transmitting"
            found = self.storm.transmitting_when_killed if transmitting else None
            (self.storm.claimed_when_killed if found is None else found).add(key)
        self._alive.append(self._begin())

    def _left_by(self, pid: int) -> list[tuple[str, str]]:
        """Key and phase of what a dead process holds; its leases run for seconds yet."""
        found = rows(
            self._url,
            "SELECT delivery_key, phase FROM outbox_deliveries d JOIN outbox_attempts a "
            "ON a.delivery_id = d.id AND a.number = d.last_attempt "
            f"WHERE d.state = 'sending' AND d.lease_owner LIKE '%:{pid}:%'",
        )
        return [(str(key), str(phase)) for key, phase in found]

    def _replace_the_dead(self) -> None:
        """Only SIGKILL ends a dispatcher; and one that finds no database when it starts gives up."""
        dead = [process for process in self._alive if not process.running]
        for process in dead:
            said = process.said
            no_database = "OperationalError" in said and "dispatching for" not in said
            assert no_database, f"process {process.pid} ended by itself: {said}"
            self._alive.remove(process)
            self._alive.append(self._begin())

    def _open(self) -> int:
        [(count,)] = rows(
            self._url,
            "SELECT count(*) FROM outbox_deliveries "
            "WHERE state IN ('pending', 'sending', 'in_doubt')",
        )
        return int(count)

    def _read(self) -> None:
        found = rows(self._url, "SELECT delivery_key, state, reason, copies FROM outbox_deliveries")
        self.storm.states = {str(key): str(state) for key, state, _, _ in found}
        self.storm.reasons = Counter(str(reason) for _, _, reason, _ in found if reason)
        self.storm.copies = sum(int(copies > 1) for _, _, _, copies in found)

    def _tail(self) -> str:
        return "\n".join(process.said[-600:] for process in self._alive)


def through_resend(
    zygote: Zygote,
    url: str,
    folder: Path,
    weather: Weather,
    restarts: Sequence[Callable[[], None]] = (),
) -> Storm:
    """A storm over the Resend emulator; checks that no person was needed."""
    faults = Faults(seed=weather.seed, lose=weather.lose, delay=weather.delay)
    with ResendServer(faults=faults) as server:
        config = configuration(
            folder, {ACCOUNT: KeyProvider(server).toml}, concurrency=weather.slots, poll=POLL
        )
        enqueue(url, weather.keys)
        storm = Supervisor(zygote, url, config, weather).run(restarts)
        print(f"{storm.summary()}\nprovider: {server.summary()}", flush=True)
        assert set(storm.states.values()) == {"accepted"}
        assert server.subjects() == Counter(weather.keys), "lost, or sent twice"
        assert set(server.copies().values()) == {1}
        assert len(server.copies()) == weather.deliveries, "a delivery had two keys"
        assert {len(digests) for digests in server.bodies().values()} == {1}
        assert server.refused["invalid_idempotent_request"] == 0
        assert storm.copies == 0
        return storm


def through_smtp(
    zygote: Zygote,
    url: str,
    folder: Path,
    weather: Weather,
    restarts: Sequence[Callable[[], None]] = (),
) -> Storm:
    """A storm over SMTP with ``when_unsure = hold``; checks who waits for a person, and why."""
    with LossySink(weather) as server:
        account = SmtpAccount(server).toml + '\nwhen_unsure = "hold"'
        config = configuration(folder, {ACCOUNT: account}, concurrency=weather.slots, poll=POLL)
        enqueue(url, weather.keys)
        storm = Supervisor(zygote, url, config, weather).run(restarts)
        taken = server.subjects()
        held = {key for key, state in storm.states.items() if state == "held"}
        accepted = {key for key, state in storm.states.items() if state == "accepted"}
        print(
            f"{storm.summary()}\nprovider: {len(taken)} taken, {len(server.lost)} answers lost",
            flush=True,
        )
        assert set(storm.states) == held | accepted == set(weather.keys)
        assert set(taken.values()) == {1}, "sent twice"
        assert accepted <= set(taken), "lost"
        assert held <= storm.transmitting_when_killed | server.lost, "held without a reason"
        assert storm.reasons.keys() <= {"no_evidence"}
        return storm


STORMS: dict[str, Callable[..., Storm]] = {"resend": through_resend, "smtp": through_smtp}


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[tuple[str, list[Callable[[], None]]]]:
    """A migrated database, and how it is restarted on the way."""
    if kind == "sqlite":
        url = f"sqlite:///{folder / 'storm.db'}"
        migrate(url)
        yield url, []
        return
    session = Session.begin()
    try:
        server = Server(session.own_folder())
        server.start()
        try:
            migrate(server.url)
            yield server.url, restarts_of(server)
        finally:
            server.stop()
    finally:
        session.end()


def restarts_of(server: Server) -> list[Callable[[], None]]:
    """One restart in good order, one as after a crash."""
    return [lambda: server.restart(signal.SIGINT), lambda: server.restart(signal.SIGQUIT)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.storm")
    parser.add_argument("--provider", choices=sorted(STORMS), default="resend")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="postgresql")
    parser.add_argument("--deliveries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lose", type=float, default=0.15)
    given = parser.parse_args(arguments)
    weather = Weather(given.deliveries, seed=given.seed, lose=given.lose)
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="postroom-storm-"))
        folder = Path(name)
        url, restarts = stack.enter_context(_database(given.database, folder))
        zygote = stack.enter_context(Zygote(folder))
        options: Any = (restarts,)
        STORMS[given.provider](zygote, url, folder, weather, *options)
    print("nothing lost, nothing sent twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
