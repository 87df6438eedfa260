"""Servers that wait for the test, as patiently as a loaded machine needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from tests.acceptance.fleet import PATIENCE
from tests.servers.http import HttpServer
from tests.servers.smtp import SmtpServer


class HeldSink(SmtpServer):
    """Holds the first answers to one step until it is told to go on; then answers everybody."""

    def __init__(
        self, step: str, *, times: int = 1, steps: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(steps=steps)
        self._step = step
        self._left = times
        self._go_on = threading.Event()
        self.held = 0
        self.answered = 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.go_on()
        super().__exit__(kind, error, traceback)

    def action(self, *steps: str) -> str | None:
        with self._changed:
            hold = self._step in steps and self._left > 0
            self._left -= hold
            self.held += hold
            self._changed.notify_all()
        if hold:
            self._go_on.wait(PATIENCE)
        with self._changed:
            self.answered += hold
            self._changed.notify_all()
        return super().action(*steps)

    def go_on(self) -> None:
        """Answer those that wait, and hold nobody any more."""
        self._left = 0
        self._go_on.set()

    def wait_until_held(self, times: int = 1) -> None:
        """Return when so many wait for the answer."""
        self.wait_for(lambda: self.held >= times, PATIENCE)


class Stub(HttpServer):
    """The HTTP stub; its ``gated`` requests stay open until the test opens the gate."""

    def pass_gate(self) -> None:
        self._gate.wait(2 * PATIENCE)

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE):
                raise TimeoutError(f"did not happen; {len(self._received)} requests came")
