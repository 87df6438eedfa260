"""An operator's desk: the verbs on one database, as the command line calls them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from dispatcher import operator_verbs
from dispatcher.config import Config, load
from dispatcher.verb_report import Kind, Report
from dispatcher.verb_subjects import Act, Wish
from outbox.reports import Filter
from providers.contract import Capabilities, InDoubt
from providers.memory import MemoryProvider
from tests.conformance.bench import Bench
from tests.conformance.runs import drain

LOST = InDoubt("the answer was lost")
KEYED = Capabilities(means=("replay",), replay="same_response", key_retention=86400.0, events=True)
"""As the adapter that the desk's configuration names (``resend``): asked again by key."""


def configured(url: str, provider: str = "memory") -> Config:
    """Accounts ``main`` and ``backup``; ``main`` is a keyed provider's if it is ``resend``."""
    variables = {
        "POSTROOM_DATABASE__URL": url,
        "POSTROOM_ACCOUNTS__MAIN__PROVIDER": provider,
        "POSTROOM_ACCOUNTS__BACKUP__PROVIDER": "memory",
        "POSTROOM_DEFAULTS__FROM": "Reports <reports@example.com>",
    }
    if provider == "resend":
        variables["POSTROOM_ACCOUNTS__MAIN__API_KEY"] = "env:RESEND_API_KEY"
    return load(environ=variables)


@dataclass(frozen=True)
class Desk:
    """Verbs by name, on a key or a filter."""

    bench: Bench
    url: str
    provider: str = "memory"

    @property
    def config(self) -> Config:
        return configured(self.url, self.provider)

    def preview(self, act: Act, target: str | Filter, **wish: Any) -> Report:
        return operator_verbs.preview(self.config, Wish(act, **wish), target)

    def act(self, act: Act, target: str | Filter, **wish: Any) -> Report:
        return operator_verbs.act(
            self.config, Wish(act, **wish), target, actor="eve@desk", note="because"
        )

    def doubt(self, key: str = "k", **options: Any) -> MemoryProvider:
        """A delivery whose one transmission was never answered, in doubt."""
        self.bench.enqueue(key, **options)
        provider = MemoryProvider(script=[LOST], capabilities=KEYED)
        drain(self.url, {"main": provider}, mode="once")
        return provider

    def rounds(self, provider: MemoryProvider, times: int = 1) -> None:
        for _ in range(times):
            self.bench.due_now()
            drain(self.url, {"main": provider}, mode="once")

    def states(self) -> dict[str, str]:
        rows = self.bench.sql("SELECT delivery_key, state FROM outbox_deliveries")
        return {row.delivery_key: row.state for row in rows}

    def audit(self) -> list[Any]:
        return self.bench.sql("SELECT * FROM outbox_audit ORDER BY id")


def done(report: Report) -> int:
    """How many deliveries were done, or would be."""
    return report.rows(Kind.DONE)


@contextmanager
def locking(bench: Bench, key: str) -> Any:
    """Hold the lock of one delivery's row in a transaction of somebody else's."""
    with bench.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(
            text("SELECT id FROM outbox_deliveries WHERE delivery_key = :key FOR UPDATE"),
            {"key": key},
        )
        yield
        transaction.rollback()
