"""Bring a database to the schema this version needs, safely from many processes at once.

Two processes that create the same table at once both fail on some statement or
other, whatever ``IF NOT EXISTS`` says. So the whole upgrade is one transaction
that first takes a lock: ``BEGIN IMMEDIATE`` on SQLite, a transaction-level
advisory lock on PostgreSQL (which a pooler cannot lose between statements).
Whoever comes second finds the work done.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, String, column, inspect, select, table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema

from outbox._version import __version__
from outbox.database import open_engine, parse_url
from outbox.errors import InvalidDatabase, SchemaTooNew, SchemaTooOld

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

VERSION_TABLE = "outbox_schema_version"
HEAD = "0003"
"""The revision this version of the code needs."""

_VERSION = table(VERSION_TABLE, column("version_num", String()))
_LOCK = 0x6F7574626F78  # "outbox": one number for every installation in a database
_LOCK_WAIT = "120s"
_DDL_WAIT = "15s"


def migrate(url: str, *, schema: str | None = None) -> str:
    """Upgrade the database at ``url`` to :data:`HEAD`; return the revision found before ("" if new).

    ``schema`` (PostgreSQL only) is created if it is not there, and holds the
    tables. Safe when many processes run it at once; an interrupted one leaves
    nothing behind.

    Raises SchemaTooNew for a database that a newer version has migrated, and
    InvalidDatabase when it cannot be reached or a lock is not to be had.
    """
    from alembic import command

    engine = open_engine(url, schema=schema)
    try:
        with engine.begin() as connection:
            _take_lock(connection, schema)
            found = revision(connection)
            if found not in _known():
                raise _too_new(found)
            config = _config(connection=connection)
            command.upgrade(config, HEAD)
            return found
    except DBAPIError as error:
        raise InvalidDatabase(f"migrating failed: {_first_line(error)}") from error
    finally:
        engine.dispose()


def sql(url: str, *, schema: str | None = None) -> str:
    """The SQL that :func:`migrate` would run on an empty database of ``url``'s kind."""
    from alembic import command

    backend = parse_url(url).get_backend_name()
    output = io.StringIO()
    command.upgrade(_config(dialect=backend, output=output, schema=schema), HEAD, sql=True)
    return output.getvalue()


def upgrade(op: Any, to: str = HEAD, *, since: str = "") -> None:
    """Run our migrations up to ``to`` inside a revision of a host application's own history.

    ``op`` is Alembic's ``op`` in that revision. What is already there is left
    alone; our version table is kept as ``postroom migrate`` keeps it. ``since``
    is what an earlier revision of the host's brought our tables to: it is asked
    for only where SQL is printed and no database can say so.
    Raises ValueError for a revision that this version does not have.
    """
    from alembic.util import CommandError

    try:
        steps = list(_scripts().walk_revisions("base", to))[::-1]
    except CommandError:
        raise ValueError(f"outbox {__version__} has no revision {to!r}") from None
    offline = op.get_context().as_sql
    found = since if offline else revision(op.get_bind())
    wanted = [step.revision for step in steps]
    if offline and found and found not in wanted:
        raise ValueError(f"outbox {__version__} has no revision {found!r} before {to!r}")
    if found and found not in wanted:
        return  # at a later one already
    start = wanted.index(found) + 1 if found else 0
    if not found:
        op.execute(
            f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    for step in steps[start:]:
        step.module.upgrade()
        op.execute(_VERSION.delete())
        op.execute(_VERSION.insert().values(version_num=step.revision))


def downgrade(op: Any, to: str = "base") -> None:
    """Undo our migrations down to ``to`` inside a host application's own downgrade."""
    found = revision(op.get_bind())
    if not found:
        return
    for step in _scripts().iterate_revisions(found, to):
        step.module.downgrade()
        op.execute(_VERSION.delete())
        if step.down_revision:
            op.execute(_VERSION.insert().values(version_num=str(step.down_revision)))
    if to == "base":
        op.execute(f"DROP TABLE {VERSION_TABLE}")


def include_name(name: str | None, type_: str, parent_names: Any) -> bool:
    """An ``include_name`` filter for a host application's autogenerate: leave our tables out."""
    table = name if type_ == "table" else parent_names.get("table_name")
    return not (table or "").startswith("outbox_")


def revision(connection: Connection) -> str:
    """The revision the database is at; "" when the outbox was never installed there."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    found = connection.execute(select(_VERSION.c.version_num)).scalar()
    return found or ""


def check(connection: Connection) -> None:
    """Make sure that this version of the code may use this database.

    A newer schema is accepted only when the release that made it says so: it
    then names, in ``outbox_instance``, its revision and the oldest code that
    may go on using it.

    Raises SchemaTooOld or SchemaTooNew, each with the cure.
    """
    found = revision(connection)
    if found == HEAD:
        return
    if found in _known():
        at = f"is at {found}" if found else "has no outbox tables"
        raise SchemaTooOld(
            f'this database {at}, this version of outbox needs {HEAD}: run "postroom migrate"'
        )
    vouched = connection.execute(
        text("SELECT oldest_code, oldest_code_at FROM outbox_instance")
    ).one_or_none()
    if vouched is None or vouched[1] != found or _numbers(vouched[0]) > _numbers(__version__):
        raise _too_new(found)


def _take_lock(connection: Connection, schema: str | None) -> None:
    if connection.dialect.name != "postgresql":
        return  # BEGIN IMMEDIATE has it
    connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    connection.execute(text(f"SET LOCAL lock_timeout = '{_DDL_WAIT}'"))
    # IF NOT EXISTS would still ask for the right to create schemas.
    if schema is not None and schema not in inspect(connection).get_schema_names():
        connection.execute(CreateSchema(schema))


def _too_new(found: str) -> SchemaTooNew:
    return SchemaTooNew(
        f"this database is at {found}, which outbox {__version__} does not know (it needs {HEAD}): "
        "install the version that migrated it, or a newer one"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0] or type(error.orig).__name__


def _location() -> Path:
    """In the wheel the migrations are ``outbox/_migrations``; in the repository, at the top."""
    package = Path(__file__).parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"


def _config(**attributes: Any) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_location()).replace("%", "%%"))
    config.attributes.update(attributes)
    return config


def _scripts() -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config())


def _known() -> set[str]:
    return {"", *(script.revision for script in _scripts().walk_revisions())}
