"""The job's own tables. They live in one database with the outbox, which is the point.

An application makes such tables by its migrations; the example makes them
itself. Works on SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Dialect,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    func,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from examples.website_audit.report import Report


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. SQLite keeps no time zone, so what comes back is marked as the UTC it is."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return value and (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC))


metadata = MetaData()

audit_runs = Table(
    "audit_runs",
    metadata,
    # The guard of the whole example: a run that is complete cannot be completed again.
    Column("run_key", String(255), primary_key=True),
    Column("site", String(255), nullable=False),
    Column("week", String(8), nullable=False),
    Column("week_start", UtcDateTime, nullable=False),
    Column("week_end", UtcDateTime, nullable=False),
    Column("pages", Integer, nullable=False),
    Column("findings", Integer, nullable=False),
    Column("completed_at", UtcDateTime, nullable=False),
)

audit_reports = Table(
    "audit_reports",
    metadata,
    Column("run_key", ForeignKey(audit_runs.c.run_key), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("page", Text, nullable=False),
    Column("rule", String(40), nullable=False),
    Column("severity", String(10), nullable=False),
    Column("sentence", Text, nullable=False),
)

_INSERT: dict[str, Callable[[Table], sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


def create(engine: Engine) -> None:
    """Create the two tables where they are missing; safe when two processes start at once."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # Two of these at once would collide; on SQLite the write lock is enough.
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext("audit_runs"))))
        metadata.create_all(connection)


def completed_at(connection: Connection, run_key: str) -> datetime | None:
    """When the run was completed; None while it is not."""
    return connection.scalar(
        select(audit_runs.c.completed_at).where(audit_runs.c.run_key == run_key)
    )


def complete(connection: Connection, run_key: str, report: Report, *, at: datetime) -> bool:
    """Record the run as complete; False, and nothing written, when it already is.

    Another process that is completing the same run in a transaction of its own
    is waited for: the unique key decides which of the two comes first.
    """
    statement = _INSERT[connection.dialect.name](audit_runs).values(
        run_key=run_key,
        site=report.customer.id,
        week=report.week.label,
        week_start=report.week.start,
        week_end=report.week.end,
        pages=report.pages,
        findings=len(report.findings),
        completed_at=at,
    )
    written = statement.on_conflict_do_nothing().returning(audit_runs.c.run_key)
    return connection.scalar(written) is not None


def write_report(connection: Connection, run_key: str, report: Report) -> None:
    """One row per finding; a clean site has none."""
    rows = [
        {
            "run_key": run_key,
            "position": position,
            "page": finding.page,
            "rule": finding.rule,
            "severity": finding.severity.value,
            "sentence": finding.sentence,
        }
        for position, finding in enumerate(report.findings, start=1)
    ]
    if rows:
        connection.execute(insert(audit_reports), rows)
