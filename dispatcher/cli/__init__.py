"""The command line: parses, asks, prints. What it prints comes from ``dispatcher.operator``.

Exit codes are the same for every command: 0 fine, 1 something needs a person,
2 wrong usage, 3 cannot tell (the database is away, its schema is not ours).
Modules here import what is heavy inside their functions: ``--help`` and
``--version`` answer at once, whatever is installed.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """The ``postroom`` command."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"postroom {version()}")
        return
    from dispatcher.cli.run import run

    sys.exit(run(arguments))


def version() -> str:
    """The version, read from its file: importing ``outbox`` would load SQLAlchemy as well."""
    spec = find_spec("outbox")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package outbox is not installed beside dispatcher")
    names = runpy.run_path(str(Path(spec.origin).with_name("_version.py")))
    return str(names["__version__"])
