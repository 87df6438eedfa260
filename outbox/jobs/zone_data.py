"""A checksum of what this process knows of a time zone, so that a change of it is noticed.

The files are those that Python's ``zoneinfo`` reads: the system's, else the package
``tzdata`` (https://docs.python.org/3/library/zoneinfo.html#data-sources).
"""

from __future__ import annotations

import hashlib
import zoneinfo
from functools import cache
from importlib import resources
from pathlib import Path


@cache
def zone_data(name: str) -> str:
    """Twelve characters that differ where the data of the zone differ; "" if there are none.

    Read once in a process, as ``zoneinfo`` does.
    """
    content = _content(name)
    return hashlib.sha256(content).hexdigest()[:12] if content else ""


def _content(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        file = Path(folder, name)
        if file.is_file():
            return file.read_bytes()
    package, _, last = f"tzdata/zoneinfo/{name}".rpartition("/")
    try:
        return (resources.files(package.replace("/", ".")) / last).read_bytes()
    except (ModuleNotFoundError, OSError, ValueError):
        return b""
