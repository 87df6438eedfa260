"""A workbench for store tests: one database, two owners, and the clock moved in the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, text

import outbox
from dispatcher import decide
from dispatcher.backoff import RetryPolicy
from outbox import Email
from outbox.database import open_engine
from outbox.records import Claimed, Granted, Lane, Mark, OpenAttempt, Refused, Settlement
from outbox.store import accounts, claim, marks, reads, settle, sweep
from providers.contract import Outcome, Result

T = TypeVar("T")
LEASE = timedelta(seconds=60)
POLICY = RetryPolicy()


@dataclass(frozen=True)
class Bench:
    """Store functions, each in a transaction of its own."""

    engine: Engine

    def do(self, work: Callable[[Connection], T]) -> T:
        with self.engine.begin() as connection:
            return work(connection)

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        def work(connection: Connection) -> list[Any]:
            result = connection.execute(text(statement), parameters)
            return list(result.all()) if result.returns_rows else []

        return self.do(work)

    def enqueue(self, key: str = "k", **options: Any) -> int:
        mail = Email(
            to=options.pop("to", "ana@example.org"),
            from_="Reports <reports@example.com>",
            subject=f"About {key}",
            text="Hello",
        )
        return self.do(lambda c: outbox.enqueue(c, mail, key=key, **options).id)

    def claim(
        self, owner: str = "a", limit: int = 10, account: str = "main", *, alone: bool = False
    ) -> list[Claimed]:
        lane = Lane(account, f"memory:{account}", limit, takes_unnamed=True)
        return self.do(
            lambda c: claim.claim(
                c,
                [lane],
                owner=owner,
                lease=LEASE,
                default_from=None,
                namespace=reads.namespace(c),
                alone=alone,
            )
        )

    def mark(self, claimed: Claimed, owner: str = "a") -> Granted | Refused:
        wanted = Mark(claimed.id, claimed.attempt, claimed.token, claimed.carried, "key", "digest")

        def work(connection: Connection) -> Granted | Refused:
            at = reads.database_now(connection)
            return marks.mark(connection, [wanted], owner=owner, at=at, lease=LEASE)[claimed.id]

        return self.do(work)

    def renew(self, claimed: Claimed, owner: str = "a") -> bool:
        def work(connection: Connection) -> bool:
            expires = reads.database_now(connection) + LEASE
            pairs = [(claimed.id, claimed.token)]
            return bool(marks.renew(connection, pairs, owner=owner, expires=expires))

        return self.do(work)

    def settle(self, claimed: Claimed, outcome: Outcome) -> bool:
        """Whether the outcome decided the row's state."""
        return self.decide(
            claimed, lambda row, at: decide.settle(row, Result(outcome), POLICY, now=at, jitter=0.5)
        )

    def decide(self, claimed: Claimed, decision: Callable[[OpenAttempt, Any], Settlement]) -> bool:
        def work(connection: Connection) -> bool:
            at = reads.database_now(connection)
            rows = settle.load(connection, [(claimed.id, claimed.attempt)], at=at)
            settlement = decision(rows[claimed.id], at)
            decided = settle.apply(connection, [settlement], at=at, shard=1)
            if settlement.pause is not None:
                accounts.pause(connection, [settlement.pause], at=at, by="a")
            return claimed.id in decided

        return self.do(work)

    def sweep(self) -> int:
        def work(connection: Connection) -> int:
            at = reads.database_now(connection)
            decisions = [decide.lapsed(each) for each in sweep.lapsed(connection, at=at)]
            return len(settle.apply(connection, decisions, at=at, shard=1))

        return self.do(work)

    def lapse(self) -> None:
        """Every lease ran out a moment ago."""
        self.sql(
            "UPDATE outbox_deliveries SET lease_expires_at = '2026-01-01T00:00:00.000Z' "
            "WHERE lease_expires_at IS NOT NULL"
        )

    def due_now(self) -> None:
        """Every waiting row has come due, those in doubt as well."""
        self.sql(
            "UPDATE outbox_deliveries SET due_at = '2026-01-01T00:00:00.000Z' "
            "WHERE state IN ('pending', 'in_doubt')"
        )

    def row(self, id_: int) -> Any:
        return self.sql("SELECT * FROM outbox_deliveries WHERE id = :id", id=id_)[0]

    def attempts(self, id_: int) -> list[tuple[str, str | None]]:
        rows = self.sql(
            "SELECT phase, outcome FROM outbox_attempts WHERE delivery_id = :id ORDER BY number",
            id=id_,
        )
        return [(row.phase, row.outcome) for row in rows]

    def evidence(self, id_: int) -> list[tuple[str, str]]:
        rows = self.sql(
            "SELECT kind, verdict FROM outbox_evidence WHERE delivery_id = :id ORDER BY id", id=id_
        )
        return [(row.kind, row.verdict) for row in rows]


@contextmanager
def opened(url: str) -> Iterator[Bench]:
    """A workbench on the database at ``url``."""
    engine = open_engine(url)
    try:
        yield Bench(engine)
    finally:
        engine.dispose()
