"""Deliveries, recipients, attempts, requests, evidence, blobs, accounts, dispatchers,
tombstones, tallies, instance; the SQL contract for producers in any language.

The SQL stands in ``migrations/sql``: one file for each database, so that it can be
read, and printed by ``postroom migrate --sql``, as it is run.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "outbox_delivery_blobs",
    "outbox_blobs",
    "outbox_evidence",
    "outbox_requests",
    "outbox_attempts",
    "outbox_recipients",
    "outbox_deliveries",
    "outbox_accounts",
    "outbox_dispatchers",
    "outbox_tombstones",
    "outbox_tallies",
    "outbox_instance",
)
_FUNCTIONS = ("outbox_cancel", "outbox_put_blob", "outbox_enqueue", "outbox_same_message")


def upgrade() -> None:
    dialect = op.get_context().dialect.name
    script = Path(__file__).parent.parent / "sql" / f"0001_{dialect}.sql"
    for paragraph in script.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("--")]
        statement = "\n".join(lines).strip().removesuffix(";")
        if statement:
            # A colon would be read as a bind parameter by text().
            op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    op.execute("DROP VIEW outbox_delivery_status")
    if op.get_context().dialect.name == "postgresql":
        for function in _FUNCTIONS:
            op.execute(f"DROP FUNCTION {function}")
    for table in _TABLES:
        op.execute(f"DROP TABLE {table}")
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION outbox_now()")
