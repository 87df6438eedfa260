"""The job's own table. It lives in one database with the outbox, which is the point.

An application makes such a table by its migrations; the example makes it
itself. Works on SQLite and PostgreSQL. That a report is written once is not
its business: the run sees to that.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    select,
)

from examples.website_audit.report import Report

metadata = MetaData()

audit_findings = Table(
    "audit_findings",
    metadata,
    Column("run_key", String(255), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("page", Text, nullable=False),
    Column("rule", String(40), nullable=False),
    Column("severity", String(10), nullable=False),
    Column("sentence", Text, nullable=False),
)


def create(engine: Engine) -> None:
    """Create the table where it is missing; safe when two processes start at once."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # Two of these at once would collide; on SQLite the write lock is enough.
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext("audit_findings"))))
        metadata.create_all(connection)


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
        connection.execute(insert(audit_findings), rows)
