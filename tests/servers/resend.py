"""A Resend that remembers: keys for a day, what it took, and faults on order or at random.

In a test::

    with ResendServer("emulated:close", "emulated") as server:
        ...  # server.url, server.accepted, server.wait_for_accepted(1)

As a process, which prints ``listening PORT`` and, after SIGTERM, its counts::

    python -m tests.servers.resend --ledger FILE --seed 7 --lose 0.15 --delay 0.05

It is the HTTP stub of :mod:`tests.servers.http` with one more mode, ``emulated``, which keeps
what Resend documents (resend.com/docs/dashboard/emails/idempotency-keys): the same key with the
same body gets the first answer again and nothing is sent; another body is answered 409
``invalid_idempotent_request``; a request under work 409 ``concurrent_idempotent_requests``.
An acceptance is in ``accepted``, and as a JSON line in the ledger, before a byte of its answer
leaves. A body that broke off is never accepted. Faults befall replays as well.

``emulated:FAULT`` does to one request what ``Faults`` does at random:

    close, reset, trunc     taken; the answer is lost
    hang:S                  taken; silence for S seconds
    gated                   taken, and under work until ``open_gate()`` or the client has gone
    slow:S                  under work for S seconds, then taken and answered
    429:S, 500              not taken
    500after                taken, and answered 500
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.servers.http import HttpServer
from tests.servers.http_turns import BEHAVIOURS, Received, Turn

RETENTION = 24 * 3600.0
"""Seconds for which Resend remembers a key."""

LOST = ("close", "reset", "trunc")
"""Faults after which the message is taken and the client has no whole answer."""

Headers = dict[str, str]
Reply = tuple[int, dict[str, object], Headers]


@dataclass(frozen=True, slots=True)
class Faults:
    """Random faults: ``lose`` is the part of answers that are lost after acceptance,
    ``refuse`` the part of requests that are answered 500 and not taken. ``delay`` is the
    longest time, in seconds, that one request is under work.

    What befalls a request depends on the seed, its key and how often that key came; not on
    the order in which clients happen to arrive.
    """

    seed: int = 0
    lose: float = 0.0
    refuse: float = 0.0
    delay: float = 0.0

    def of(self, key: str, turn: int) -> tuple[str, float]:
        """The fault of the ``turn``-th request with ``key``, and how long it takes."""
        dice = random.Random(f"{self.seed}:{key}:{turn}")
        throw, delay = dice.random(), dice.random() * self.delay
        if throw < self.lose:
            return dice.choice(LOST), delay
        return ("500" if throw < self.lose + self.refuse else ""), delay


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One message that was taken: it would have been sent."""

    key: str
    sha256: str
    at: float
    subject: str
    answered: bool
    """Whether a whole answer was going to leave."""


@dataclass(slots=True)
class _Known:
    """A key that is remembered. ``reply`` is None while the first request is under work."""

    sha256: str
    since: float
    reply: Reply | None = None


class ResendServer(HttpServer):
    """The emulator on 127.0.0.1, in threads of its own; modes as in the module's docstring."""

    def __init__(
        self,
        *modes: str,
        faults: Faults | None = None,
        retention: float = RETENTION,
        acceptances: Path | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(*(modes or ("emulated",)), port=port)
        self.faults = faults or Faults()
        self._retention = retention
        self._acceptances = acceptances
        self._known: dict[str, _Known] = {}
        self._turns: Counter[str] = Counter()
        self._ahead = 0.0
        self.accepted: list[Acceptance] = []
        self.replayed: Counter[str] = Counter()
        """How often each key got its first answer again."""
        self.refused: Counter[str] = Counter()
        """How often each error name was answered."""

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    # What a test asks ------------------------------------------------------ #

    def copies(self) -> Counter[str]:
        """How often each key was taken."""
        with self._changed:
            return Counter(each.key for each in self.accepted)

    def subjects(self) -> Counter[str]:
        """How often a message with each subject was taken."""
        with self._changed:
            return Counter(each.subject for each in self.accepted)

    def bodies(self) -> dict[str, set[str]]:
        """The digests of all whole bodies that came with each key."""
        found: dict[str, set[str]] = {}
        for request in self.received:
            if request.whole:
                found.setdefault(request.key or "", set()).add(request.sha256)
        return found

    def wait_for_accepted(self, count: int) -> list[Acceptance]:
        """What was taken, once it is ``count`` messages; blocks."""
        self._wait(lambda: len(self.accepted) >= count)
        return list(self.accepted)

    def advance(self, seconds: float) -> None:
        """Let the clock by which keys are forgotten run ahead."""
        self._ahead += seconds

    def summary(self) -> dict[str, int]:
        """Counts, for a report."""
        with self._changed:
            return {
                "requests": len(self._received),
                "accepted": len(self.accepted),
                "keys": len({each.key for each in self.accepted}),
                "answers_lost": sum(not each.answered for each in self.accepted),
                "replayed": self.replayed.total(),
                "refused": self.refused.total(),
            }

    # What a turn does ------------------------------------------------------ #

    def emulate(self, turn: Turn) -> bool:
        """Whether the connection goes on."""
        request = turn.request
        if not request.whole:
            return False
        fault, _, argument = turn.argument.partition(":")
        delay = 0.0
        if not turn.argument:
            with self._changed:
                self._turns[request.key or ""] += 1
                nth = self._turns[request.key or ""]
            fault, delay = self.faults.of(request.key or "", nth)
        refusal = _unauthorised(request)
        if refusal is not None:
            return self._answer(turn, refusal)
        first, known = self._begun(request)
        if not first:
            return self._worked(turn, fault, argument, delay, known)
        try:
            return self._worked(turn, fault, argument, delay, None)
        finally:
            self._forget_unanswered(request)

    def _begun(self, request: Received) -> tuple[bool, Reply | None]:
        """Whether this is a key's first request; if not, what stands for it already."""
        now = time.monotonic() + self._ahead
        with self._changed:
            if request.key is None:
                return True, None
            known = self._known.get(request.key)
            if known is None or now - known.since >= self._retention:
                self._known[request.key] = _Known(request.sha256, now)
                return True, None
            if known.sha256 != request.sha256:
                return False, _error(409, "invalid_idempotent_request")
            if known.reply is None:
                return False, _error(409, "concurrent_idempotent_requests", {"Retry-After": "1"})
            self.replayed[request.key] += 1
            return False, known.reply

    def _worked(
        self, turn: Turn, fault: str, argument: str, delay: float, known: Reply | None
    ) -> bool:
        if fault == "429":
            return self._answer(turn, _error(429, "rate_limit_exceeded", {"Retry-After": argument}))
        if fault == "500":
            return self._answer(turn, _error(500, "application_error"))
        self.pause(delay + (float(argument) if fault == "slow" else 0.0))
        reply = known
        if reply is None:
            reply = self._take(turn.request, answered=fault in {"", "slow"})
        if fault == "gated":
            self._until_gone_or_open(turn)
        if known is None:
            self._know(turn.request, reply)
        if fault == "500after":
            return self._answer(turn, _error(500, "internal_server_error"))
        if fault in {"close", "reset", "trunc", "hang"}:
            BEHAVIOURS[fault](Turn(self, turn.connection, turn.request, argument))
            return False
        return self._answer(turn, reply)

    def _answer(self, turn: Turn, reply: Reply) -> bool:
        status, body, headers = reply
        if status >= 400:
            with self._changed:
                self.refused[str(body["name"])] += 1
        return turn.answer(status, body, headers)

    def _take(self, request: Received, *, answered: bool) -> Reply:
        body: Any = json.loads(request.body)
        taken = Acceptance(
            key=request.key or "",
            sha256=request.sha256,
            at=time.time(),
            subject=str(body.get("subject", "")),
            answered=answered,
        )
        with self._changed:
            self.accepted.append(taken)
            number = len(self.accepted)
            if self._acceptances is not None:
                with self._acceptances.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_line(taken)) + "\n")
            self._changed.notify_all()
        seed = f"{number}:{taken.key}".encode()
        return 200, {"id": hashlib.sha256(seed).hexdigest()[:32]}, {}

    def _know(self, request: Received, reply: Reply) -> None:
        with self._changed:
            if request.key in self._known:
                self._known[request.key].reply = reply

    def _forget_unanswered(self, request: Received) -> None:
        """A key whose request was not taken is free again."""
        with self._changed:
            known = self._known.get(request.key or "")
            if known is not None and known.reply is None:
                del self._known[request.key or ""]

    def _until_gone_or_open(self, turn: Turn) -> None:
        turn.connection.settimeout(0.02)
        while not self._gate.is_set():
            try:
                if not turn.connection.recv(1, socket.MSG_PEEK):
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        turn.connection.settimeout(None)


def _emulated(turn: Turn) -> bool:
    assert isinstance(turn.server, ResendServer)
    return turn.server.emulate(turn)


BEHAVIOURS["emulated"] = _emulated


def _unauthorised(request: Received) -> Reply | None:
    if "authorization" not in request.headers:
        return _error(401, "missing_api_key")
    if "user-agent" not in request.headers:
        return _error(403, "invalid_api_key")
    if request.key is not None and not 1 <= len(request.key) <= 256:
        return _error(400, "invalid_idempotency_key")
    return None


def _error(status: int, name: str, headers: Headers | None = None) -> Reply:
    body: dict[str, object] = {"statusCode": status, "name": name, "message": f"emulated {name}"}
    return status, body, headers or {}


def _line(taken: Acceptance) -> dict[str, object]:
    return {
        "key": taken.key,
        "sha256": taken.sha256,
        "t": taken.at,
        "subject": taken.subject,
        "answered": taken.answered,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.resend")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--mode", action="append", default=[])
    parser.add_argument("--retention", type=float, default=RETENTION)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lose", type=float, default=0.0)
    parser.add_argument("--refuse", type=float, default=0.0)
    parser.add_argument("--delay", type=float, default=0.0)
    given = parser.parse_args(arguments)
    ends = {signal.SIGTERM, signal.SIGINT}
    # Before any thread starts, so that every one of them leaves the signals to this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with ResendServer(
        *given.mode,
        faults=Faults(given.seed, given.lose, given.refuse, given.delay),
        retention=given.retention,
        acceptances=given.ledger,
        port=given.port,
    ) as server:
        print(f"listening {server.port}", flush=True)
        signal.sigwait(ends)
    print(json.dumps(server.summary()), flush=True)
    return 0


if __name__ == "__main__":
    # As a module of that name, so that the mode finds its own class.
    from tests.servers.resend import main as run

    sys.exit(run())
