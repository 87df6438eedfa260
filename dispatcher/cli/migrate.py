"""``postroom migrate``: bring the database to the schema of this version."""

from __future__ import annotations

from typing import Annotated

import typer

from dispatcher.cli.options import configuration
from dispatcher.cli.output import say


def migrate(
    context: typer.Context,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for an empty database; change nothing.")
    ] = False,
) -> int:
    """Create or upgrade the outbox's tables. Safe from many processes at once."""
    from dispatcher.operator import database_name, sqlite_file
    from outbox import migrations

    config = configuration(context)
    url = config.database_url()
    if sql:
        print(migrations.sql(url, schema=config.schema).rstrip())
        return 0
    file = sqlite_file(url)
    if file is not None and file.parent.parent.is_dir():
        # One level only: a mistyped path must not become a tree of folders.
        file.parent.mkdir(exist_ok=True)
    before = migrations.migrate(url, schema=config.schema)
    name = database_name(url)
    if before == migrations.HEAD:
        say(f"already at {before}: {name}")
    elif before:
        say(f"migrated from {before} to {migrations.HEAD}: {name}")
    else:
        say(f"migrated to {migrations.HEAD}: {name}")
    return 0
