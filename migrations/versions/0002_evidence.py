"""Doubt and recovery: sender domains, crashes alone, probes and the breaker, the audit trail.

Expand only: the code of 0001 goes on working with this schema.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COLUMNS = (
    ("outbox_accounts", "consecutive"),
    ("outbox_accounts", "probe_until"),
    ("outbox_attempts", "alone"),
    ("outbox_deliveries", "crashes_alone"),
    ("outbox_deliveries", "sender_domain"),
)


def upgrade() -> None:
    dialect = op.get_context().dialect.name
    script = Path(__file__).parent.parent / "sql" / f"0002_{dialect}.sql"
    for paragraph in script.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("--")]
        statement = "\n".join(lines).strip().removesuffix(";")
        if statement:
            # A colon would be read as a bind parameter by text().
            op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    op.execute("DROP TABLE outbox_audit")
    if op.get_context().dialect.name == "sqlite":
        # A column with a CHECK cannot be dropped by itself (sqlite.org/lang_altertable.html).
        with op.batch_alter_table("outbox_accounts") as batch:
            batch.drop_constraint("ck_outbox_accounts_probe_until_form", type_="check")
    for table, column in _COLUMNS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    op.execute("UPDATE outbox_instance SET oldest_code_at = '0001'")
