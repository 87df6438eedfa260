"""A dispatcher that kills or stops itself at a chosen boundary; without one, a plain one.

    python -m tests.acceptance.crashing --config FILE --at "after the mark's commit" --attempt 1

``--do stop`` sends SIGSTOP instead of SIGKILL, once; SIGCONT lets it go on.

Only this entry knows how to crash: it wraps the dispatcher's own functions from outside, and the
code that goes into production has no hook. What differs from ``postroom dispatch`` besides: the
lease may be shorter than a configuration allows, and the test's own provider ``ledger`` is known.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import doubt, permit, rounds, send, service, transactions
from dispatcher.config import load
from dispatcher.wishes import Committed
from providers import registry


class Boundary(StrEnum):
    """Where a dispatcher can die, in the order in which it gets there."""

    BEFORE_CLAIM = "before the claim's commit"
    AFTER_CLAIM = "after the claim's commit"
    BEFORE_MARK = "before the mark's commit"
    AFTER_MARK = "after the mark's commit"
    FIRST_BYTE = "just before the first byte"
    BODY = "in the middle of the body"
    ANSWER = "after the last byte, before the answer"
    READ = "after the answer, before the settle"
    BEFORE_SETTLE = "before the settle's commit"
    AFTER_SETTLE = "after the settle's commit"


FROM_OUTSIDE = {Boundary.ANSWER}
"""Where the dispatcher only waits: whoever holds the answer kills it."""


class Crash:
    """Wraps the dispatcher's functions so that it gets ``signal_`` in attempt ``attempt``."""

    def __init__(self, at: Boundary, attempt: int, signal_: signal.Signals) -> None:
        self._at: Boundary | None = at
        self._attempt = attempt
        self._signal = signal_
        self._mark = False
        self._settle = False
        self._checks = 0

    def install(self) -> None:
        transact = rounds.Rounds._transact
        writing = transactions.writing
        check = permit.SendPermit.check
        attempt = send.Sender._attempt

        async def watched_transact(
            self: rounds.Rounds, marks: Any, settles: Any, *rest: Any, **named: Any
        ) -> Any:
            crash._mark = any(crash._meant(each.mark.attempt) for each in marks)
            crash._settle = any(crash._meant(each.claimed.attempt) for each in settles)
            return await transact(self, marks, settles, *rest, **named)

        async def watched_writing(engine: AsyncEngine, work: Callable[[Connection], Any]) -> Any:
            def watched(connection: Connection) -> Any:
                outcome = work(connection)
                crash._around(outcome, "before")
                return outcome

            outcome = await writing(engine, watched)
            crash._around(outcome, "after")
            return outcome

        def watched_check(self: permit.SendPermit) -> None:
            if crash._meant(self._claimed.attempt):
                crash._checks += 1
                if crash._checks == 1:
                    crash._reached(Boundary.FIRST_BYTE)
                else:
                    crash._reached(Boundary.BODY)
            check(self)

        async def watched_attempt(self: send.Sender, claimed: Any) -> Any:
            end = await attempt(self, claimed)
            if crash._meant(claimed.attempt):
                crash._reached(Boundary.READ)
            return end

        crash = self
        patches: list[tuple[object, str, Callable[..., Any] | Awaitable[Any]]] = [
            (rounds.Rounds, "_transact", watched_transact),
            (rounds, "writing", watched_writing),
            (permit.SendPermit, "check", watched_check),
            (send.Sender, "_attempt", watched_attempt),
        ]
        for target, name, function in patches:
            setattr(target, name, function)

    def _meant(self, attempt: int) -> bool:
        return attempt == self._attempt

    def _around(self, outcome: Any, when: str) -> None:
        """A transaction of a round is about to commit, or has just been."""
        before = when == "before"
        if not isinstance(outcome, Committed):
            return
        if any(self._meant(each.attempt) for each in outcome.claimed):
            self._reached(Boundary.BEFORE_CLAIM if before else Boundary.AFTER_CLAIM)
        if self._mark and outcome.marks:
            self._reached(Boundary.BEFORE_MARK if before else Boundary.AFTER_MARK)
        if self._settle and outcome.settlements:
            self._reached(Boundary.BEFORE_SETTLE if before else Boundary.AFTER_SETTLE)

    def _reached(self, boundary: Boundary) -> None:
        if boundary is self._at:
            self._at = None
            os.kill(os.getpid(), self._signal)


SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def _dispatch(given: argparse.Namespace) -> int:
    registry.MODULES["ledger"] = "tests.acceptance.ledger_provider"
    # The bytes of this entry's processes are in no socket of another machine.
    doubt.DRAIN_MARGIN = timedelta(seconds=given.drain_margin)
    doubt.LOOK_UP_EVERY = timedelta(milliseconds=50)
    config = load(given.config)
    if given.lease is not None:
        changed = {"lease": timedelta(seconds=given.lease)}
        config = replace(config, dispatcher=config.dispatcher.model_copy(update=changed))
    if given.at is not None:
        Crash(Boundary(given.at), given.attempt, SIGNALS[given.do]).install()
    asyncio.run(service.run(config, given.mode, log=_log))
    return 0


def _log(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"{line}\n".encode("utf-8", "replace"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.crashing")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--mode", choices=["forever", "once", "drain"], default="drain")
    parser.add_argument("--lease", type=float, help="seconds")
    parser.add_argument("--drain-margin", type=float, default=60.0, help="seconds")
    parser.add_argument("--at", choices=list(Boundary), help="do it here")
    parser.add_argument("--do", choices=list(SIGNALS), default="kill", help="what happens there")
    parser.add_argument("--attempt", type=int, default=1, help="in this attempt of the delivery")
    return _dispatch(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
