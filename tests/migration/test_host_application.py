"""Beside an application's own Alembic history, or inside it, and neither disturbs the other."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, MetaData, inspect

import outbox
from outbox import migrations
from tests.conformance.ledger import change, engine_at, mail, one_mail, rows

_ENV = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, Text

import outbox

options = context.config.attributes
metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True), Column("note", Text))
if options.get("offline"):
    context.configure(dialect_name=options["offline"], literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    connection = options["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=outbox.migrations.include_name,
        compare_server_default=True,
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()
"""
_TEMPLATE = '''"""${message}"""
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
def upgrade():
    ${upgrades if upgrades else "pass"}
def downgrade():
    ${downgrades if downgrades else "pass"}
'''
_ORDERS = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "h1", None
def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
def downgrade():
    op.drop_table("orders")
"""
_WITH_OURS = """
from alembic import op
from outbox import migrations
revision, down_revision = "h2", "h1"
def upgrade():
    migrations.upgrade(op, to="0001")
def downgrade():
    migrations.downgrade(op)
"""
_WITH_OUR_NEWER = f"""
from alembic import op
from outbox import migrations
revision, down_revision = "h2b", "h2"
def upgrade():
    migrations.upgrade(op, to="{migrations.HEAD}", since="0001")
def downgrade():
    migrations.downgrade(op, to="0001")
"""
_NOTE = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "h3", {after!r}
def upgrade():
    op.add_column("orders", sa.Column("note", sa.Text))
def downgrade():
    with op.batch_alter_table("orders") as batch:
        batch.drop_column("note")
"""


class Host:
    """An application with a history of its own, on one connection."""

    def __init__(self, folder: Path, connection: Connection, *, ours_inside: bool) -> None:
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(_ENV)
        (folder / "script.py.mako").write_text(_TEMPLATE)
        revisions = {"h1": _ORDERS, "h3": _NOTE.format(after="h2b" if ours_inside else "h1")}
        if ours_inside:
            revisions |= {"h2": _WITH_OURS, "h2b": _WITH_OUR_NEWER}
        for name, body in revisions.items():
            (folder / "versions" / f"{name}.py").write_text(body)
        self.connection = connection
        self.output = io.StringIO()
        self.config = Config(output_buffer=self.output, stdout=io.StringIO())
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("path_separator", "os")
        self.config.attributes["connection"] = connection

    def upgrade(self, to: str = "head") -> None:
        command.upgrade(self.config, to)
        self.connection.commit()

    def downgrade(self, to: str = "base") -> None:
        command.downgrade(self.config, to)
        self.connection.commit()

    def has_nothing_to_generate(self) -> None:
        """``alembic check``: raises when autogenerate finds a difference."""
        command.check(self.config)
        self.connection.rollback()


@pytest.fixture
def connection(empty_database_url: str) -> Iterator[Connection]:
    """A connection of the application's to its own empty database."""
    with engine_at(empty_database_url) as engine, engine.connect() as connection:
        yield connection


def _tables(connection: Connection) -> set[str]:
    found = set(inspect(connection).get_table_names())
    connection.rollback()
    return found


def test_two_histories_live_beside_each_other(
    empty_database_url: str, connection: Connection, tmp_path: Path
) -> None:
    """A host upgrades, generates an empty difference and downgrades; ours is where it was."""
    host = Host(tmp_path / "host", connection, ours_inside=False)
    host.upgrade("h1")
    migrations.migrate(empty_database_url)
    one_mail(empty_database_url)
    host.upgrade()
    host.has_nothing_to_generate()
    host.downgrade()
    assert {name for name in _tables(connection) if not name.startswith("outbox_")} == {
        "alembic_version"
    }
    migrations.check(connection)
    connection.rollback()
    assert migrations.migrate(empty_database_url) == migrations.HEAD
    assert rows(empty_database_url, "SELECT count(*) FROM outbox_deliveries") == [(1,)]
    assert rows(empty_database_url, "SELECT count(*) FROM alembic_version") == [(0,)]


def test_ours_inside_the_hosts_revision(
    empty_database_url: str, connection: Connection, tmp_path: Path
) -> None:
    """One tool runs both: ``upgrade(op)`` builds what ``migrate`` then finds current, and
    ``downgrade(op)`` takes only ours away."""
    host = Host(tmp_path / "host", connection, ours_inside=True)
    host.upgrade()
    migrations.check(connection)
    connection.rollback()
    assert migrations.migrate(empty_database_url) == migrations.HEAD
    assert one_mail(empty_database_url).created
    host.has_nothing_to_generate()
    host.downgrade("h1")
    assert _tables(connection) == {"alembic_version", "orders"}
    host.upgrade()
    assert one_mail(empty_database_url).created
    host.downgrade()
    assert _tables(connection) == {"alembic_version"}


@pytest.mark.parametrize("revision", [migrations.HEAD, "9999"])
def test_what_is_there_already_is_left_alone(
    sqlite_url: str, tmp_path: Path, revision: str
) -> None:
    """A host's revision that runs after ``postroom migrate``, of this release or a later one,
    changes nothing of ours."""
    change(sqlite_url, f"UPDATE outbox_schema_version SET version_num = '{revision}'")
    one_mail(sqlite_url)
    with engine_at(sqlite_url) as engine, engine.connect() as connection:
        Host(tmp_path / "host", connection, ours_inside=True).upgrade()
    assert rows(sqlite_url, "SELECT version_num FROM outbox_schema_version") == [(revision,)]
    assert rows(sqlite_url, "SELECT count(*) FROM outbox_deliveries") == [(1,)]


def test_an_unknown_revision_is_refused(connection: Connection) -> None:
    """A host that asks for a revision of a later release is told so."""
    with (
        Operations.context(MigrationContext.configure(connection)) as op,
        pytest.raises(ValueError, match=r"outbox 0\.1\.0 has no revision '0999'"),
    ):
        migrations.upgrade(op, to="0999")


def test_a_start_that_is_not_there_is_refused() -> None:
    """What an offline revision says it starts from has to be a revision before its aim."""
    context = MigrationContext.configure(dialect_name="sqlite", opts={"as_sql": True})
    with (
        Operations.context(context) as op,
        pytest.raises(ValueError, match=r"has no revision '0999' before '0001'"),
    ):
        migrations.upgrade(op, to="0001", since="0999")


def test_the_hosts_search_path_is_given_back(empty_postgres_url: str, tmp_path: Path) -> None:
    """Revisions that follow ours in one transaction still find the host's tables in another schema."""
    change(empty_postgres_url, "CREATE SCHEMA app")
    with engine_at(empty_postgres_url) as engine, engine.connect() as connection:
        host = Host(tmp_path / "host", connection, ours_inside=True)
        host.upgrade("h1")
        connection.exec_driver_sql("SET search_path = app, public")
        connection.commit()
        host.upgrade()
        path = connection.exec_driver_sql("SHOW search_path").scalar()
        assert path == "app, public"
        found = connection.exec_driver_sql(
            "SELECT schemaname, tablename FROM pg_tables WHERE tablename IN "
            "('orders', 'outbox_deliveries', 'outbox_schema_version') ORDER BY tablename"
        ).fetchall()
    assert [tuple(row) for row in found] == [
        ("public", "orders"),
        ("app", "outbox_deliveries"),
        ("app", "outbox_schema_version"),
    ]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_ours_is_in_the_hosts_printed_sql(
    empty_sqlite_url: str, tmp_path: Path, dialect: str
) -> None:
    """``alembic upgrade --sql`` of the host prints our part too, version row included."""
    with engine_at(empty_sqlite_url) as engine, engine.connect() as unused:
        host = Host(tmp_path / "host", unused, ours_inside=True)
        host.config.attributes["offline"] = dialect
        command.upgrade(host.config, "head", sql=True)
    printed = host.output.getvalue()
    assert "INSERT INTO outbox_schema_version (version_num) VALUES ('0001')" in printed
    assert printed.count("CREATE TABLE outbox_deliveries") == 1
    newest = f"INSERT INTO outbox_schema_version (version_num) VALUES ('{migrations.HEAD}')"
    assert newest in printed


def _not_the_version_table(name: str | None, type_: str, _parents: Any) -> bool:
    return not (type_ == "table" and name == migrations.VERSION_TABLE)


def test_a_host_may_include_our_tables(database_url: str) -> None:
    """With ``outbox.metadata`` among its targets, the host's autogenerate finds no difference."""
    with engine_at(database_url) as engine, engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_name": _not_the_version_table,
                "compare_type": True,
                "target_metadata": [MetaData(), outbox.metadata],
            },
        )
        assert compare_metadata(context, outbox.metadata) == []


def test_the_filter_leaves_out_ours_and_nothing_else() -> None:
    """Tables by name, their indexes and constraints by their table; schemas pass."""
    include = migrations.include_name
    assert include("orders", "table", {})
    assert include("app", "schema", {})
    assert include(None, "schema", {})
    assert not include("outbox_deliveries", "table", {})
    assert not include("outbox_schema_version", "table", {})
    assert not include("ix_any", "index", {"table_name": "outbox_deliveries"})
    assert include("ix_any", "index", {"table_name": "orders"})


def test_two_releases_share_one_way_to_enqueue(sqlite_url: str) -> None:
    """A vouched newer schema still takes what this release writes."""
    change(
        sqlite_url,
        "UPDATE outbox_schema_version SET version_num = '9999'",
        "UPDATE outbox_instance SET oldest_code_at = '9999'",
        "ALTER TABLE outbox_deliveries ADD COLUMN of_a_later_release TEXT",
    )
    assert one_mail(sqlite_url, message=mail()).created
