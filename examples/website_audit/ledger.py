"""What a database and a mail folder really hold: the demo counts, it does not claim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, column, func, select, table

import outbox
from examples.website_audit import schema
from examples.website_audit.job import JOB
from examples.website_audit.report import plural

_deliveries = table("outbox_deliveries", column("state"))
_runs = table("outbox_runs", column("job"), column("state"), column("records"))


@dataclass(frozen=True)
class Counts:
    """How many rows there are in one view of the database."""

    runs: int = 0
    """Complete ones."""
    findings: int = 0
    """What the runs say they found."""
    rows: int = 0
    """Report rows; as many as findings, unless something was written by halves."""
    deliveries: int = 0
    accepted: int = 0

    def describe(self) -> str:
        return (
            f"{plural(self.runs, 'run')}, {plural(self.rows, 'report row')}, "
            f"{plural(self.deliveries, 'delivery')}"
        )


@dataclass(frozen=True)
class Books:
    """Everything the demo talks about, as it was at one moment."""

    counts: Counts
    states: dict[str, str]
    """State of each delivery asked about; those that do not exist are left out."""
    mails: dict[str, bytes]
    """The mails that have left, by file name."""


def count(connection: Connection) -> Counts:
    """What ``connection`` sees, including what it has not committed yet."""
    states = select(_deliveries.c.state, func.count()).group_by(_deliveries.c.state)
    by_state: dict[str, int] = {row[0]: row[1] for row in connection.execute(states)}
    complete = (_runs.c.job == JOB, _runs.c.state == "succeeded")
    runs, findings = connection.execute(
        select(func.count(), func.coalesce(func.sum(_runs.c.records), 0)).where(*complete)
    ).one()
    return Counts(
        runs=runs,
        findings=int(findings),
        rows=connection.scalar(select(func.count()).select_from(schema.audit_findings)) or 0,
        deliveries=sum(by_state.values()),
        accepted=by_state.get("accepted", 0),
    )


def read_books(engine: Engine, keys: Iterable[str], mail_folder: Path) -> Books:
    """Count the rows, ask for the deliveries named by ``keys``, read every mail."""
    with engine.connect() as connection:
        found = {key: outbox.find(connection, key) for key in keys}
        return Books(
            counts=count(connection),
            states={key: str(delivery.state) for key, delivery in found.items() if delivery},
            mails={mail.name: mail.read_bytes() for mail in sorted(mail_folder.glob("*.eml"))},
        )
