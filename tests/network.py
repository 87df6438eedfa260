"""Keep tests that claim to need no network from using it.

An audit hook sees every way to a socket, the ones from C included. Hooks
cannot be taken off again, so there is one, and it obeys a switch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EVENTS = frozenset(
    {
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendto",
        "socket.sendmsg",
    }
)


class NetworkUsed(AssertionError):
    """A test without network tried to use it."""


class _Switch:
    """The one audit hook of this process, and whether it refuses just now."""

    def __init__(self) -> None:
        self.on = False
        self._installed = False

    def install(self) -> None:
        if not self._installed:
            sys.addaudithook(self._watch)
            self._installed = True

    def _watch(self, event: str, _: tuple[Any, ...]) -> None:
        if self.on and event in _EVENTS:
            raise NetworkUsed(f"{event}: tests in this folder use no network")


_SWITCH = _Switch()


@contextmanager
def refused() -> Iterator[None]:
    """Within the block every use of the network raises :class:`NetworkUsed`."""
    _SWITCH.install()
    before, _SWITCH.on = _SWITCH.on, True
    try:
        yield
    finally:
        _SWITCH.on = before
