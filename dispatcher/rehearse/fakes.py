"""Fake providers: what they took stands in a ledger, and what goes wrong is ordered from them.

Three kinds, because doubt ends differently with each: one that knows a key again and repeats
its answer, one that can be asked later and is late with its answers, one that has nothing.

The ledger is a file, one line for each thing that happened, written before anything is
answered: it survives the process that wrote it, as a provider's own books do. The fake keeps
nothing in memory but its orders, so that a second instance of it, in another process, is the
same provider.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeAlias

from providers.contract import (
    Absent,
    Accepted,
    Capabilities,
    Finding,
    Found,
    InDoubt,
    Inquiry,
    KeyMismatch,
    Message,
    Outcome,
    Permit,
    Rejected,
    Result,
    Throttled,
    Unavailable,
    digest,
)
from providers.memory import request_bytes

RETRY_AFTER = 30.0
"""Seconds for which a throttling fake wants to be left alone."""


class Kind(StrEnum):
    """What a fake offers to settle doubt."""

    KEY = "key"
    LOOK_UP = "look_up"
    NOTHING = "nothing"


class Fault(StrEnum):
    """What goes wrong with one request."""

    NONE = "none"
    REFUSED = "refused"
    """The message is refused for good."""
    THROTTLED = "throttled"
    UNREACHABLE = "unreachable"
    """No connection: nothing leaves."""
    REQUEST_LOST = "request_lost"
    """The connection breaks while the message is on its way; the provider never has it."""
    ANSWER_LOST = "answer_lost"
    """The provider takes it, and its answer never comes."""
    STALLS_BEFORE = "stalls_before"
    """The sender stands still before anything leaves, then goes on."""
    STALLS_UNREACHABLE = "stalls_unreachable"
    """As above, then finds no connection."""
    STALLS_AFTER = "stalls_after"
    """The provider takes it, and its answer is long in coming."""


What: TypeAlias = Literal["request", "taken", "repeated", "asked"]
Pause: TypeAlias = Callable[[str], Awaitable[None]]
"""Called with the point that a stalled send has reached; it goes on when that returns."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger. ``at`` is an instant of the rehearsal's clock, in seconds."""

    provider: str
    what: What
    correlation: str
    key: str
    content: str
    at: float
    answer: str = ""


class Ledger:
    """What the providers of one rehearsal were asked, and what they took."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ledger.jsonl"

    def write(self, entry: Entry) -> None:
        """Append one line; a single write, so that two processes never mix theirs."""
        line = json.dumps(asdict(entry)) + "\n"
        with self._file.open("a", encoding="ascii") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def entries(self, provider: str, what: What) -> list[Entry]:
        """Everything of one kind that one provider saw, in order."""
        if not self._file.exists():
            return []
        lines = self._file.read_text(encoding="ascii").splitlines()
        read = (Entry(**json.loads(line)) for line in lines)
        return [each for each in read if (each.provider, each.what) == (provider, what)]

    def count(self, provider: str, what: What) -> int:
        """How often it happened."""
        return len(self.entries(provider, what))

    def copies(self, provider: str) -> Counter[str]:
        """How many copies of each message a provider took, by correlation value."""
        return Counter(each.correlation for each in self.entries(provider, "taken"))


@dataclass(frozen=True, slots=True)
class Traits:
    """How a fake's times are, in seconds."""

    longest_send: float
    key_retention: float
    index_lag: float


def capabilities(kind: Kind, traits: Traits) -> Capabilities:
    """What a fake declares."""
    match kind:
        case Kind.KEY:
            return Capabilities(
                means=("replay",), replay="same_response", key_retention=traits.key_retention
            )
        case Kind.LOOK_UP:
            return Capabilities(means=("look_up",), look_up="by_key", index_lag=traits.index_lag)
        case Kind.NOTHING:
            return Capabilities()


class FakeProvider:
    """One fake account; see :class:`providers.contract.Provider`.

    ``clock`` gives the rehearsal's instant, in seconds; ``pause`` is asked where a send stalls.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        ledger: Ledger,
        traits: Traits,
        *,
        clock: Callable[[], float],
        pause: Pause,
        faults: Iterable[Fault] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.ledger = ledger
        self.traits = traits
        self.clock = clock
        self.capabilities = capabilities(kind, traits)
        self.longest_send = traits.longest_send
        self.pause = pause
        self._faults = deque(faults)

    @property
    def identity(self) -> str:
        """One and the same for every instance of this fake."""
        return f"rehearsal:{self.name}"

    async def send(self, message: Message, permit: Permit) -> Result:
        """Take the message, unless the next fault says otherwise."""
        fault = self._faults.popleft() if self._faults else Fault.NONE
        if fault in {Fault.STALLS_BEFORE, Fault.STALLS_UNREACHABLE}:
            await self.pause("claimed")
        if fault in {Fault.UNREACHABLE, Fault.STALLS_UNREACHABLE}:
            return Result(Unavailable("connection refused"))
        request = message.kept or request_bytes(message)
        await permit.transmitting(message.recipients, request)
        permit.check()
        self._write("request", message, digest(request))
        if fault in _WITHOUT_TAKING:
            return Result(_WITHOUT_TAKING[fault])
        answer = self._take(message, digest(request))
        if fault is Fault.STALLS_AFTER:
            await self.pause("taken")
        if fault is Fault.ANSWER_LOST:
            return Result(InDoubt("read time-out"))
        return Result(answer)

    async def look_up(self, inquiry: Inquiry) -> Finding:
        """Only what was taken longer ago than the lag is shown."""
        shown_from = self.clock() - self.traits.index_lag
        for taken in self.ledger.entries(self.name, "taken"):
            if taken.correlation == inquiry.correlation and taken.at <= shown_from:
                self._asked(inquiry, "found")
                return Found(taken.answer)
        self._asked(inquiry, "absent")
        return Absent()

    async def aclose(self) -> None:
        """Nothing is kept open."""

    def _take(self, message: Message, content: str) -> Outcome:
        """As a provider does that knows its keys: once for each, as long as it remembers."""
        if self.kind is Kind.KEY:
            since = self.clock() - self.traits.key_retention
            for taken in self.ledger.entries(self.name, "taken"):
                if taken.key == message.idempotency_key and taken.at > since:
                    if taken.content != content:
                        return KeyMismatch("this key was used with another content")
                    self._write("repeated", message, content, taken.answer)
                    return Accepted(taken.answer, replayed=True)
        answer = f"{self.name}-{self.ledger.count(self.name, 'taken') + 1}"
        self._write("taken", message, content, answer)
        return Accepted(answer)

    def _write(self, what: What, message: Message, content: str, answer: str = "") -> None:
        correlation, key = message.correlation, message.idempotency_key
        self.ledger.write(Entry(self.name, what, correlation, key, content, self.clock(), answer))

    def _asked(self, inquiry: Inquiry, answer: str) -> None:
        key = inquiry.idempotency_key
        self.ledger.write(
            Entry(self.name, "asked", inquiry.correlation, key, "", self.clock(), answer)
        )


_WITHOUT_TAKING: dict[Fault, Outcome] = {
    Fault.REFUSED: Rejected("no such mailbox", "550"),
    Fault.THROTTLED: Throttled(RETRY_AFTER, "too many requests"),
    Fault.REQUEST_LOST: InDoubt("connection reset"),
}
