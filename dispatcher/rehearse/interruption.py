"""Ctrl-C and SIGTERM in a rehearsal: noted at once, obeyed where nothing can be torn.

Python raises KeyboardInterrupt between any two bytecodes, also in the middle of closing a
connection, and then somebody else's code prints a traceback. So the first signal here only
cancels what is played, or is obeyed at the next :meth:`Interruption.obeyed` when nothing is
played. A second one interrupts anywhere: whoever presses Ctrl-C twice waits for a database
that does not answer.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Whether somebody wants the rehearsal to end."""

    def __init__(self) -> None:
        self.asked = False
        self._cancel: Callable[[], object] | None = None

    def obeyed(self) -> None:
        """Raises KeyboardInterrupt if a signal came."""
        if self.asked:
            raise KeyboardInterrupt

    def run(self, played: Coroutine[Any, Any, T]) -> T:
        """``asyncio.run``, which a signal cancels. Raises KeyboardInterrupt when one did."""
        try:
            return asyncio.run(self._cancellable(played))
        finally:
            self.obeyed()

    async def _cancellable(self, played: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(played)
        loop = asyncio.get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.asked:
            task.cancel()
        try:
            return await task
        finally:
            self._cancel = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signals' handler."""
        del number, frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._cancel is not None:
            self._cancel()


@contextmanager
def noted() -> Iterator[Interruption]:
    """Both signals are noted in the block, also where they were ignored: a script's job in the
    background is started so, and the scratch has to go all the same. Signals are the main
    thread's; in another one none is noted."""
    interruption = Interruption()
    with _handled_by(interruption.note):
        yield interruption


@contextmanager
def ignored() -> Iterator[None]:
    """Neither signal does anything in the block: half of a clean-up is what nobody wants."""
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], None] | signal.Handlers,
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
