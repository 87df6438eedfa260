"""The job, killed in the worst moment: everything is written, nothing is committed.

``python -m examples.website_audit.crash`` takes the arguments of the job. It
ends by SIGKILL, which no ``except`` and no ``finally`` can soften, so what is
found in the database afterwards is what a power cut would have left.
"""

from __future__ import annotations

import os
import signal
import sys

from sqlalchemy import Connection

from examples.website_audit import ledger
from examples.website_audit.__main__ import main


def kill_this_process(connection: Connection) -> None:
    """Say what the open transaction holds, then die without committing it."""
    print("in the open transaction:", ledger.count(connection).describe(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(before_commit=kill_this_process))
