"""Refusing a connection: what is wrong with it, and what to pass or do instead. Pure."""

from __future__ import annotations

from outbox.errors import NotInTransaction, UnsupportedConnection


def autocommit(kind: str, *, cure: str = "with outbox.transaction(conn):") -> NotInTransaction:
    """The error for a connection that commits each statement."""
    return NotInTransaction(
        f"this {kind} connection is in autocommit mode, so the delivery would be committed on its "
        f'own.\n  Use "{cure}", or pass own_transaction=True if there is nothing to commit it with.'
    )


def check_free(kind: str, *, in_transaction: bool) -> None:
    """Raises NotInTransaction when ours cannot begin, since one is open."""
    if in_transaction:
        raise NotInTransaction(
            f"this {kind} connection is in a transaction already; commit or roll it back first, or "
            "enqueue in that one"
        )


def check_dialect(name: str) -> None:
    """Raises UnsupportedConnection for a database that cannot hold the outbox."""
    if name not in {"sqlite", "postgresql"}:
        raise UnsupportedConnection(
            f"the outbox lives in SQLite or PostgreSQL, not in {name}: enqueue on a connection "
            "to the database that holds its tables"
        )


def unsupported(connection: object, function: str, *, asynchronous: bool) -> UnsupportedConnection:
    """The error for what is no connection, or one of the other colour."""
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if asynchronous:
        cure = _ASYNCHRONOUS.get(function, "await outbox.enqueue_async(…)")
        return UnsupportedConnection(f"{kind} is asynchronous: {cure}")
    return UnsupportedConnection(
        f"{function} does not know {kind}: pass an SQLAlchemy Session or Connection, a sqlite3 or "
        "psycopg connection (psycopg2 too), or Django's connection"
    )


_ASYNCHRONOUS = {"run.finish": "async with run.finish(…) as tx"}
