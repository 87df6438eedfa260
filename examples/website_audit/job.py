"""The weekly website audit: a report and its mail, written together or not at all.

The order of things is what makes this safe to start at any time, any number
of times, from any number of places:

1. Ask whether the run is complete. If so, nothing is done, not even fetched.
2. Fetch the pages. It may take a minute, so no transaction is open: a lock held
   that long would stop everybody else.
3. One transaction: the run's completion, the report, and the pending delivery.
   Completion comes first, because its unique key is the guard: of two processes
   that got this far, one waits there for the other and then stops.
4. COMMIT. Before it, nothing has happened, whatever crashes; after it, everything
   has, and the dispatcher will deliver the mail, whatever crashes.

Nothing here sends anything. The job ends when the delivery is *pending*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine

import outbox
from examples.website_audit import schema
from examples.website_audit.customers import Customer
from examples.website_audit.fetch import collect
from examples.website_audit.findings import find
from examples.website_audit.periods import Week
from examples.website_audit.report import Report, email, plural

JOB = "website-audit"


@dataclass(frozen=True)
class Written:
    """This start did the work."""

    run_key: str
    pages: int
    findings: int
    delivery: outbox.Enqueued

    def explain(self) -> str:
        return (
            f"{self.run_key}: {plural(self.pages, 'page')} read, "
            f"{plural(self.findings, 'finding')} written, 1 delivery {self.delivery.state}"
        )


@dataclass(frozen=True)
class AlreadyComplete:
    """An earlier start did the work; this one changed nothing."""

    run_key: str
    completed_at: datetime | None
    delivery_state: str

    def explain(self) -> str:
        since = f" since {self.completed_at:%Y-%m-%d %H:%M:%SZ}" if self.completed_at else ""
        return (
            f"{self.run_key}: complete{since}, nothing written; "
            f"its delivery is {self.delivery_state}"
        )


def run_key(customer: Customer, week: Week) -> str:
    """The run's identity: what it is about and when, never when it was started."""
    return outbox.key(JOB, customer.id, week.label)


def delivery_key(customer: Customer, week: Week) -> str:
    """The identity of the mail to the owner, named inside its run."""
    return outbox.key(JOB, customer.id, week.label, "owner")


def audit(
    engine: Engine,
    customer: Customer,
    week: Week,
    *,
    send_before: datetime | None = None,
    before_commit: Callable[[Connection], None] | None = None,
) -> Written | AlreadyComplete:
    """Audit one customer's site for one week, unless that is done already.

    ``send_before`` is the instant from which the mail is not worth sending any
    more. ``before_commit`` is called after the last write and before COMMIT;
    it is there to rehearse a crash in the worst moment.

    Raises SiteUnavailable when the site cannot be read; nothing is written then.
    """
    key = run_key(customer, week)
    with engine.connect() as connection:
        if schema.completed_at(connection, key):
            return _earlier_run(connection, customer, week)

    site = collect(customer.site)
    report = Report(customer, week, len(site.pages), find(site), site.left_out)

    with engine.begin() as connection:
        if not schema.complete(connection, key, report, at=datetime.now(UTC)):
            return _earlier_run(connection, customer, week)  # done while we were fetching
        schema.write_report(connection, key, report)
        delivery = outbox.enqueue(
            connection, email(report), key=delivery_key(customer, week), send_before=send_before
        )
        if before_commit:
            before_commit(connection)
    return Written(key, report.pages, len(report.findings), delivery)


def _earlier_run(connection: Connection, customer: Customer, week: Week) -> AlreadyComplete:
    key = run_key(customer, week)
    delivery = outbox.find(connection, delivery_key(customer, week))
    return AlreadyComplete(
        run_key=key,
        completed_at=schema.completed_at(connection, key),
        delivery_state=str(delivery.state) if delivery else "no longer kept",
    )
