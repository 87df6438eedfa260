"""Who this dispatcher process is, to people and to its own successors."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from outbox._version import __version__
from outbox.records import Dispatcher

_START_TIME = 21
"""Place of the start time among the fields of /proc/self/stat after the command's name
(proc(5): field 22), counted from the process state."""


def myself(slots: int) -> Dispatcher:
    """This process as a row.

    The owner begins with host and process for the reader of a journal, and ends with
    what makes it one of a kind: a process that is started again under the same host name
    and number must not be taken for the dead one.
    """
    host, pid = socket.gethostname(), os.getpid()
    return Dispatcher(
        owner=f"{host[:32]}:{pid}:{secrets.token_hex(8)}",
        host=host[:255],
        machine_boot=_read("/proc/sys/kernel/random/boot_id"),
        pid=pid,
        process_start=_process_start(),
        version=__version__,
        slots=slots,
    )


def _process_start() -> str | None:
    stat = _read("/proc/self/stat")
    if stat is None:
        return None
    fields = stat.rpartition(")")[2].split()
    return fields[_START_TIME - 2] if len(fields) >= _START_TIME else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()[:4096]
    except OSError:
        return None
