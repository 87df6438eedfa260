"""Text from outside, made fit to be stored. Pure.

A provider's reason may hold NUL (which PostgreSQL refuses), half a surrogate
pair (which no encoder takes) or control sequences (which a terminal obeys). One
such text in a batch would fail the statement for every row of it.
"""

from __future__ import annotations

import re

_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


def cleaned(text: str | None, limit: int = 500) -> str | None:
    """``text`` without control characters and surrogates, at most ``limit`` characters."""
    if text is None:
        return None
    safe = _UNFIT.sub("\ufffd", text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
