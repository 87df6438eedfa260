"""``postroom web``: answer over HTTP those who wake us."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import typer

from dispatcher.cli.options import WrongUsage, configuration
from dispatcher.cli.output import cleaned

_EXTRA = frozenset({"starlette", "uvicorn"})


def web(context: typer.Context) -> int:
    """Answer POST /jobs/tick until SIGTERM or SIGINT.

    Then nothing new is answered, and no run is started; those under way may finish within
    [jobs] shutdown_grace, and what is left is given back.
    """
    try:
        from dispatcher.web import service
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        text = f'this needs {error.name}, which is not installed: pip install "postroom[web]"'
        raise WrongUsage(text) from None
    service.run(configuration(context), log=_log)
    return 0


def _log(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S}Z {cleaned(line)}\n")
    sys.stderr.flush()
