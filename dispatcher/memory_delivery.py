"""Delivering to nobody, in this process: what the testing kit calls a delivery.

It is the real dispatcher, with an account in memory for each one that a delivery names. It
runs in a thread of its own, so that a test may have an event loop or none, and its loop
leaves the signals of the process alone: they belong to whoever runs the tests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select

from dispatcher.backoff import RetryPolicy
from dispatcher.config import Account, Config, Database, Defaults, Dispatcher
from dispatcher.config_file import Document
from dispatcher.service import dispatch
from outbox import schema
from outbox.database import open_engine, reading
from outbox.states import WhenUnsure
from providers.contract import Message
from providers.memory import MemoryProvider, Settings

DEFAULT_ACCOUNT = "main"
SENDER = "Postroom <postroom@example.com>"
"""The author of messages that name none; in production ``[defaults] from`` says it."""


def deliver(url: str) -> list[Message]:
    """Send what is due in the database at ``url`` to nobody; the messages that would have left,
    in the order in which they did.

    Raises InvalidDatabase, SchemaTooOld or SchemaTooNew.
    """
    accounts = _accounts(url)
    memory = [MemoryProvider(name) for name in accounts]
    sent = _together(memory)
    providers = {each.name: ("memory", each) for each in memory}
    _in_a_thread(lambda: dispatch(_config(url, accounts), "drain", providers, lambda _: None))
    return sent


def _together(providers: Sequence[MemoryProvider]) -> list[Message]:
    """One list of what all of them send."""
    sent: list[Message] = []
    for each in providers:
        each.sent = sent
    return sent


def _accounts(url: str) -> list[str]:
    """The accounts that deliveries name, and the one for those that name none."""
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            named = connection.execute(select(schema.deliveries.c.account).distinct()).scalars()
            return sorted({DEFAULT_ACCOUNT, *filter(None, named)})
    finally:
        engine.dispose()


def _config(url: str, accounts: Sequence[str]) -> Config:
    return Config(
        document=Document(None, Path.cwd(), {}),
        database=Database(url=url),
        defaults=Defaults.model_validate({"account": DEFAULT_ACCOUNT, "from": SENDER}),
        dispatcher=Dispatcher(),
        accounts={
            name: Account(name, "memory", WhenUnsure.HOLD, RetryPolicy(), Settings())
            for name in accounts
        },
    )


class _DeafLoop(asyncio.SelectorEventLoop):
    """An event loop that no signal reaches."""

    def add_signal_handler(self, *args: Any) -> None:  # type: ignore[override]
        """Signals stay with whom they belong to."""


def _in_a_thread(work: Callable[[], Any]) -> None:
    """Run the coroutine that ``work`` makes to its end, in a thread; what it raises is raised."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=_DeafLoop) as runner:
                runner.run(work())
        except BaseException as problem:  # noqa: BLE001  (it is raised again where it is waited for)
            problems.append(problem)

    thread = threading.Thread(target=run, name="deliver")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
