"""Local time for deadlines: a clock that runs through suspends and never jumps."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def running() -> float:
    """Seconds since the machine started, the time it was suspended included.

    ``time.monotonic`` stands still while a virtual machine is suspended; a
    lease at the database does not.
    """
    return time.clock_gettime(_CLOCK)
