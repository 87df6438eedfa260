"""The weekly website audit: a report and its mail, written together or not at all.

The order of things is what makes this safe to start at any time, any number
of times, from any number of places:

1. Open the run of this site and this week. If it is complete already, or
   another process is at it, nothing is done, not even fetched.
2. Fetch the pages. It may take a minute, so no transaction is open: a lock held
   that long would stop everybody else. The run's lease is renewed meanwhile.
3. One transaction, ``run.finish``: the report, the pending delivery, and that the
   run is complete. It is refused if another process has taken the run over.
4. COMMIT. Before it, nothing has happened, whatever crashes; after it, everything
   has, and the dispatcher will deliver the mail, whatever crashes.

Nothing here sends anything. The job ends when the delivery is *pending*.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Engine

import outbox
from examples.website_audit import schema
from examples.website_audit.customers import Customer
from examples.website_audit.fetch import collect
from examples.website_audit.findings import RULES_VERSION, find
from examples.website_audit.report import Report, email, plural
from outbox.periods import Period

JOB = "website-audit"
LEASE = timedelta(seconds=60)
"""How long a run stays a process's own without a sign of life from it."""


def audit(
    engine: Engine,
    customer: Customer,
    week: Period,
    *,
    send_before: datetime | None = None,
    lease: timedelta = LEASE,
) -> str:
    """Audit one customer's site for one week, unless that is done already; say how it stands.

    ``send_before`` is the instant from which the mail is not worth sending any more.

    Raises SiteUnavailable when the site cannot be read: nothing is written then, and the next
    start tries again. Raises InputChanged when the week was audited from another site, or by
    other rules.
    """
    with outbox.open_run(
        JOB,
        subject=customer.id,
        period=week,
        inputs={"site": customer.site_name, "rules": RULES_VERSION},
        database=engine.url.render_as_string(hide_password=False),
        lease=lease,
    ) as run:
        if not run.mine:  # complete already, or busy elsewhere
            return run.explain()
        site = collect(customer.site, on_page=run.progress)
        report = Report(customer, week, len(site.pages), find(site), site.left_out)
        run.output(records=len(report.findings), summary={"pages": report.pages})
        with engine.connect() as connection, run.finish(connection) as tx:
            schema.write_report(connection, run.key, report)
            tx.enqueue(email(report), name="owner", send_before=send_before)
        pages, findings = plural(report.pages, "page"), plural(len(report.findings), "finding")
        return f"{run.explain()}; {pages} read, {findings} written"


def delivery_key(customer: Customer, week: Period) -> str:
    """The key of the mail to the owner, as the run derives it: for whoever looks for it later."""
    return outbox.key(JOB, customer.id, week.label, "owner")
