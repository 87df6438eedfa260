"""Where a server listens, as it is written in the configuration. Pure."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\s\[\]/]+)):([0-9]{1,5})")


def host_and_port(address: str) -> tuple[str, int]:
    """``127.0.0.1:8026`` or ``[::1]:8026``, taken apart; port 0 is any free one.

    Raises ValueError with a line that begins behind the key's name.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3]) > 65_535:
        raise ValueError('is no address to listen on: write "127.0.0.1:8026" or "[::1]:8026"')
    return match[1] or match[2], int(match[3])
