"""A whole dispatcher in this process, with accounts that a test has scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dispatcher.config import load
from dispatcher.events import Event
from dispatcher.loop import Mode
from dispatcher.service import dispatch
from outbox.records import Backlog
from providers.contract import Provider

ACCOUNT = {
    "PROVIDER": "memory",
    "RETRY": "{ attempts = 4, window = '1h', first_delay = '100ms', max_delay = '100ms' }",
}


@dataclass
class Run:
    """What one dispatcher did."""

    events: list[Event] = field(default_factory=list)
    left: Backlog | None = None

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def drain(
    url: str,
    providers: Mapping[str, Provider],
    *,
    mode: Mode = "drain",
    lease: timedelta = timedelta(seconds=20),
    slots: int = 20,
) -> Run:
    """Run a dispatcher over ``url`` until nothing is due; the first account is the default.

    Retries come after at most a tenth of a second, so that a test may watch several.
    """
    variables = {
        "POSTROOM_DATABASE__URL": url,
        "POSTROOM_DEFAULTS__ACCOUNT": next(iter(providers)),
        "POSTROOM_DEFAULTS__FROM": "Reports <reports@example.com>",
        **{
            f"POSTROOM_ACCOUNTS__{name.upper()}__{key}": value
            for name in providers
            for key, value in ACCOUNT.items()
        },
        "POSTROOM_DISPATCHER__POLL_INTERVAL": "50ms",
        "POSTROOM_DISPATCHER__CONCURRENCY": str(slots),
    }
    config = load(environ=variables)
    config = _with_lease(config, lease)
    run = Run()
    named = {name: ("memory", provider) for name, provider in providers.items()}
    run.left = asyncio.run(dispatch(config, mode, named, run.events.append))
    return run


def _with_lease(config: Any, lease: timedelta) -> Any:
    """A lease shorter than a configuration may ask for, so that its end can be watched."""
    from dataclasses import replace

    return replace(config, dispatcher=config.dispatcher.model_copy(update={"lease": lease}))
