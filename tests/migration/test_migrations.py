"""The migrations make what the code expects, from many processes at once, and say what they refuse."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import text

import outbox
from outbox import migrations
from outbox.database import open_engine
from tests.conformance.ledger import change, engine_at, mail, rows
from tests.migration.catalog import Catalog, catalog

ROOT = Path(__file__).parents[2]
NEWER = "9999"


def _catalog(url: str, schema: str | None = None) -> Catalog:
    engine = open_engine(url, schema=schema)
    try:
        with engine.connect() as connection:
            return catalog(connection)
    finally:
        engine.dispose()


# --------------------------------------------------------------------------- #
# What they make
# --------------------------------------------------------------------------- #


def test_the_migrated_schema_is_that_of_the_models(
    database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Columns, types, defaults, checks, keys, indexes with their predicates, storage: all equal."""
    if database_url.startswith("sqlite"):
        modelled = f"sqlite:///{tmp_path / 'models.db'}"
    else:
        modelled = request.getfixturevalue("empty_postgres_url")
    with engine_at(modelled) as engine, engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(
                text(
                    "CREATE FUNCTION outbox_now() RETURNS timestamptz LANGUAGE sql VOLATILE "
                    "AS 'SELECT clock_timestamp()'"
                )
            )
        outbox.metadata.create_all(connection)
    made, expected = _catalog(database_url), _catalog(modelled)
    for kind in {"tables", "columns", "constraints", "indexes"} & set(expected):
        assert expected[kind]
        assert made[kind] == expected[kind]


def test_the_printed_sql_makes_the_same(
    empty_database_url: str, request: pytest.FixtureRequest
) -> None:
    """``migrate --sql``, run by the database's own command line, builds what ``migrate`` builds."""
    lite = empty_database_url.startswith("sqlite")
    database_url: str = request.getfixturevalue("sqlite_url" if lite else "postgres_url")
    script = migrations.sql(empty_database_url)
    _run_script(empty_database_url, script)
    assert _catalog(empty_database_url) == _catalog(database_url)
    assert migrations.migrate(empty_database_url) == migrations.HEAD
    [(namespace,)] = rows(empty_database_url, "SELECT namespace FROM outbox_instance")
    assert len(namespace) == 36
    assert [(namespace,)] != rows(database_url, "SELECT namespace FROM outbox_instance")


def _run_script(url: str, script: str) -> None:
    client = "sqlite3" if url.startswith("sqlite") else "psql"
    if shutil.which(client):
        target = [url.removeprefix("sqlite:///")] if client == "sqlite3" else ["-qX", url]
        options = ["-bail"] if client == "sqlite3" else ["-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [client, *options, *target], input=script, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
    elif client == "sqlite3":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(script.encode())


def test_downgrading_removes_everything(database_url: str) -> None:
    """After the downgrade nothing of ours is left, and migrating works again."""
    with engine_at(database_url) as engine, engine.begin() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context) as op:
            migrations.downgrade(op)
            migrations.downgrade(op)  # nothing to do is fine
    assert set().union(*_catalog(database_url).values()) == set()
    assert migrations.migrate(database_url) == ""


def test_head_is_the_newest_revision() -> None:
    """The revision that the code asks for is the last one of the history, and there is one head."""
    assert migrations._scripts().get_heads() == [migrations.HEAD]


def test_a_new_installation_has_a_namespace_of_its_own(empty_database_url: str) -> None:
    """The instance row names a random UUIDv4 and the release that made it."""
    migrations.migrate(empty_database_url)
    [row] = rows(
        empty_database_url, "SELECT id, namespace, oldest_code, oldest_code_at FROM outbox_instance"
    )
    assert uuid.UUID(row[1]).version == 4
    assert (row[0], *row[2:]) == (1, "0.1.0", migrations.HEAD)


def test_migrations_import_no_application_code() -> None:
    """A revision runs again years later, when the application's modules have moved on."""
    files = sorted((ROOT / "migrations").rglob("*.py"))
    assert len(files) >= 2
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, file
                names = [node.module or ""]
            roots = {name.partition(".")[0] for name in names}
            assert not roots & {"outbox", "dispatcher", "providers", "tests"}, file


# --------------------------------------------------------------------------- #
# Many processes, and killed ones
# --------------------------------------------------------------------------- #

_PROCESSES = """
import os, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from outbox.migrations import migrate

def one(target, go, kill_before):
    @event.listens_for(Engine, "before_cursor_execute")
    def count(*arguments):
        nonlocal kill_before
        kill_before -= "outbox_" in arguments[2]
        if kill_before == 0:
            os.kill(os.getpid(), 9)
    os.read(go, 1)
    url, _, schema = target.partition(" ")
    print(repr(migrate(url, schema=schema or None)), flush=True)
    os._exit(0)

processes, kill_before, *targets = sys.argv[1:]
for target in targets:
    go, start = os.pipe()
    children = []
    for _ in range(int(processes)):
        child = os.fork()
        if not child:
            os.close(start)
            one(target, go, int(kill_before))
        children.append(child)
    os.close(start)
    for child in children:
        print("status", os.waitpid(child, 0)[1], flush=True)
"""
"""Migrates each target in that many processes, which all begin at the same moment."""


def processes(count: int, *targets: str, kill_before: int = -1) -> list[str]:
    """What the processes said, sorted: ``status`` and revisions found."""
    done = subprocess.run(
        [sys.executable, "-c", _PROCESSES, str(count), str(kill_before), *targets],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


def test_six_processes_at_once(empty_database_url: str, tmp_path: Path) -> None:
    """B41: six first starts on an empty database all succeed, one of them does the work, and there
    is one version row; three times over."""
    if empty_database_url.startswith("sqlite"):
        targets = [f"sqlite:///{tmp_path / f'round{n}.db'}" for n in range(3)]
    else:
        targets = [empty_database_url, *(f"{empty_database_url} round{n}" for n in range(2))]
    assert processes(6, *targets) == ["''"] * 3 + [repr(migrations.HEAD)] * 15 + ["status 0"] * 18
    for target in targets:
        url, _, schema = target.partition(" ")
        prefix = f"{schema}." if schema else ""
        version = rows(url, f"SELECT version_num FROM {prefix}outbox_schema_version")
        assert version == [(migrations.HEAD,)]
        assert rows(url, f"SELECT count(*) FROM {prefix}outbox_instance") == [(1,)]


@pytest.mark.parametrize("statement", [2, 30])
def test_a_killed_migration_leaves_nothing(empty_database_url: str, statement: int) -> None:
    """B41: killed before any of its statements, it has done nothing, and the next one succeeds."""
    said = processes(1, empty_database_url, kill_before=statement)
    assert said == [f"status {int(signal.SIGKILL)}"]
    assert set().union(*_catalog(empty_database_url).values()) == set()
    assert migrations.migrate(empty_database_url) == ""
    assert migrations.migrate(empty_database_url) == migrations.HEAD


# --------------------------------------------------------------------------- #
# Older and newer
# --------------------------------------------------------------------------- #


def _check(url: str) -> None:
    with engine_at(url) as engine, engine.connect() as connection:
        migrations.check(connection)


def _at(url: str, revision: str) -> None:
    change(url, f"UPDATE outbox_schema_version SET version_num = '{revision}'")


def test_the_current_schema_is_accepted(database_url: str) -> None:
    """A database at the code's own revision needs nothing."""
    _check(database_url)
    assert migrations.migrate(database_url) == migrations.HEAD


def test_a_newer_database_is_refused(database_url: str) -> None:
    """B41: one clear line says which revision it is at and what to install; nothing is changed."""
    _at(database_url, NEWER)
    for refused in (_check, migrations.migrate):
        with pytest.raises(outbox.SchemaTooNew) as reason:
            refused(database_url)
        said = str(reason.value)
        assert f"this database is at {NEWER}, which outbox 0.1.0 does not know" in said
        assert "\n" not in said
    assert rows(database_url, "SELECT version_num FROM outbox_schema_version") == [(NEWER,)]


@pytest.mark.parametrize(
    ("oldest_code", "at", "accepted"),
    [
        ("0.1.0", NEWER, True),
        ("0.0.9", NEWER, True),
        ("0.1.1", NEWER, False),
        ("0.10.0", NEWER, False),
        ("0.1.0", "9998", False),
        ("0.1.0", "0001", False),
    ],
)
def test_a_newer_database_may_vouch_for_old_code(
    sqlite_url: str, oldest_code: str, at: str, *, accepted: bool
) -> None:
    """Accepted only if the release that made this very revision names our version or an older one."""
    _at(sqlite_url, NEWER)
    change(
        sqlite_url,
        f"UPDATE outbox_instance SET oldest_code = '{oldest_code}', oldest_code_at = '{at}'",
    )
    if accepted:
        _check(sqlite_url)
    else:
        with pytest.raises(outbox.SchemaTooNew):
            _check(sqlite_url)
    with pytest.raises(outbox.SchemaTooNew):
        migrations.migrate(sqlite_url)


def test_an_older_database_is_told_to_migrate(empty_database_url: str) -> None:
    """Without our tables, or at an earlier revision, the error names the command."""
    with pytest.raises(outbox.SchemaTooOld, match=r'no outbox tables.*run "postroom migrate"'):
        _check(empty_database_url)
    migrations.migrate(empty_database_url)
    _at(empty_database_url, "0001")
    needs = f"is at 0001, this version of outbox needs {migrations.HEAD}"
    with pytest.raises(outbox.SchemaTooOld, match=needs):
        _check(empty_database_url)


def test_a_database_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    """The driver's report is cut to its first line, and no password is in it."""
    for url in (
        f"sqlite:///{tmp_path / 'no folder' / 'x.db'}",
        "postgresql://user:secret@127.0.0.1:1/none",
    ):
        with pytest.raises(outbox.InvalidDatabase) as reason:
            migrations.migrate(url)
        assert str(reason.value).startswith("migrating failed: ")
        assert "\n" not in str(reason.value)
        assert "secret" not in str(reason.value)


# --------------------------------------------------------------------------- #
# A schema of its own
# --------------------------------------------------------------------------- #

ODD = ["mail", "Mail Room", 'quo"ted', "back\\slash", "täb\tund, komma", "it's"]


def test_a_schema_of_any_name(empty_postgres_url: str) -> None:
    """Tables, functions and connections stay in the schema, whatever characters its name has."""
    for name in ODD:
        assert migrations.migrate(empty_postgres_url, schema=name) == ""
        assert migrations.migrate(empty_postgres_url, schema=name) == migrations.HEAD
        engine = open_engine(empty_postgres_url, schema=name)
        with engine.begin() as connection:
            migrations.check(connection)
            outbox.enqueue(connection, mail(), key="from:python")
            connection.execute(
                text("SELECT outbox_enqueue('from:sql', :message)"), {"message": mail().to_json()}
            )
        engine.dispose()
        with psycopg.connect(empty_postgres_url) as connection:
            found = connection.execute(
                psycopg.sql.SQL("SELECT count(*) FROM {}.outbox_deliveries").format(
                    psycopg.sql.Identifier(name)
                )
            ).fetchone()
        assert found == (2,), name
    assert rows(
        empty_postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    ) == [(0,)]


def test_the_printed_sql_makes_the_schema(empty_postgres_url: str) -> None:
    """With a schema, the SQL creates it and puts everything there."""
    _run_script(empty_postgres_url, migrations.sql(empty_postgres_url, schema='Mail "Room'))
    assert migrations.migrate(empty_postgres_url, schema='Mail "Room') == migrations.HEAD


def test_a_schema_that_is_there_needs_no_right_to_create_one(empty_postgres_url: str) -> None:
    """A role that owns its schema, and may create no other, can migrate."""
    role = f"owner_{os.urandom(4).hex()}"
    change(
        empty_postgres_url,
        f"CREATE ROLE {role} LOGIN",
        f"CREATE SCHEMA mail AUTHORIZATION {role}",
    )
    _, _, where = empty_postgres_url.rpartition("@")
    try:
        assert migrations.migrate(f"postgresql://{role}@{where}", schema="mail") == ""
    finally:
        change(empty_postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# --------------------------------------------------------------------------- #
# Locks
# --------------------------------------------------------------------------- #


def test_a_lock_that_is_not_to_be_had_is_named(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for another migration ends with one line, not for ever."""
    monkeypatch.setattr(migrations, "_LOCK_WAIT", "1ms")
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [migrations._LOCK])
        with pytest.raises(outbox.InvalidDatabase, match="lock timeout"):
            migrations.migrate(postgres_url)
