"""How Alembic runs the migrations: on a connection it is handed, or as SQL text.

``outbox.migrations`` is the only caller. The version table is never Alembic's
default, so that an application's own history lives beside ours undisturbed.
"""

from __future__ import annotations

from typing import Any

from alembic import context

options: dict[str, Any] = context.config.attributes
common: dict[str, Any] = {
    "version_table": "outbox_schema_version",
    "transactional_ddl": True,
    "transaction_per_migration": False,
}

if context.is_offline_mode():
    context.configure(
        dialect_name=options["dialect"],
        output_buffer=options["output"],
        dialect_opts={"paramstyle": "named"},
        literal_binds=True,
        **common,
    )
    with context.begin_transaction():
        if options["schema"]:
            quoted = '"' + options["schema"].replace('"', '""') + '"'
            context.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
            context.execute(f"SET LOCAL search_path = {quoted}")
        context.run_migrations()
else:
    context.configure(connection=options["connection"], **common)
    context.run_migrations()
