"""What stands between a sender and its rounds, without an event loop: answers, and a desk."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from dispatcher.rounds import Rounds
from dispatcher.wishes import Open
from outbox.records import Claimed, Granted, Mark, Refused
from tests.explorer.world import Process

T = TypeVar("T")
_WAITING: Any = object()


class Answer:
    """A future without a loop."""

    def __init__(self) -> None:
        self.value: Any = _WAITING

    def done(self) -> bool:
        return self.value is not _WAITING

    def set_result(self, value: Any) -> None:
        self.value = value


class Asked(Exception):
    """A permit asks for a mark."""

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark


class Desk:
    """What a permit sees of the rounds: it asks for a mark, and reads the lease's deadline."""

    def __init__(self, process: Process, answer: Granted | Refused | None = None) -> None:
        self._process = process
        self._answer = answer

    async def mark(self, mark: Mark) -> Granted | Refused:
        if self._answer is None:
            raise Asked(mark)
        return self._answer

    def lease_deadline(self, claimed: Claimed) -> float:
        rounds = Rounds(cast(Any, None), cast(Any, None), lambda _: None)
        remember(rounds, self._process)
        return rounds.lease_deadline(claimed)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("this coroutine waits for something")


def remember(rounds: Rounds, process: Process) -> None:
    """Put into rounds what this dispatcher had in memory."""
    if process.lease is not None:
        known = process.lease
        rounds._open = {known.claimed.id: Open(known.claimed, known.deadline, known.started)}
    rounds.suspicious = process.suspicious
    rounds.quarantined = process.quarantined
    if process.gate is not None:
        rounds._gates = {process.gate.account: process.gate}
