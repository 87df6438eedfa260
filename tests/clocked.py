"""``postroom`` with a clock that a test moves: ``python -m tests.clocked jobs work``."""

from __future__ import annotations

import sys

from dispatcher.cli.run import run
from tests.clocks import installed_from_environment

if __name__ == "__main__":
    installed_from_environment()
    sys.exit(run(sys.argv[1:]))
