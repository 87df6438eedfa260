"""Which failures of a transaction mean "later", and which mean "not like this"."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

_AWAY = frozenset({"08", "40", "53", "57"})
"""SQLSTATE classes: connection, rollback asked for, no resources, operator intervention
(postgresql.org/docs/current/errcodes-appendix.html)."""


def connection_lost(error: Exception) -> bool:
    """Whether the database was away (or busy), as opposed to refusing what was said to it."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OSError | NoConnection)
    if error.connection_invalidated or "locked" in str(error.orig):
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state[:2] in _AWAY or state == "55P03"
    return isinstance(error, OperationalError)


def first_line(error: Exception) -> str:
    """What the database said, in one line."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().partition("\n")[0]
