"""Jobs that happen once: schedules, runs, their attempts, backfills; events consumed once.

Expand only: the code of 0002 goes on working with this schema.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TABLES = (
    "outbox_run_attempts",
    "outbox_runs",
    "outbox_backfills",
    "outbox_schedules",
    "outbox_consumed_events",
)


def upgrade() -> None:
    dialect = op.get_context().dialect.name
    script = Path(__file__).parent.parent / "sql" / f"0003_{dialect}.sql"
    for paragraph in script.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("--")]
        statement = "\n".join(lines).strip().removesuffix(";")
        if statement:
            # A colon would be read as a bind parameter by text().
            op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    for table in _TABLES:
        op.execute(f"DROP TABLE {table}")
    op.execute("UPDATE outbox_instance SET oldest_code_at = '0002'")
