"""What an error of a job means for its run: try again, or never again. Pure.

The same two answers as for deliveries: permanent, or again later. A job says so itself by
raising ``Permanent`` or ``RetryAfter``, or declares classes of its own. Of all others, those
count as permanent that no repetition mends: an error in the program, a missing right, a
table or column that is not there. Everything else may go away: it is tried again, as often as
the run has attempts.
"""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import exc

from outbox import errors
from outbox.records_runs import FailedAttempt
from outbox.states_jobs import RunFailedReason
from outbox.texts import cleaned

PERMANENT: Final[dict[str, tuple[type[BaseException], ...]]] = {
    "declared": (errors.Permanent,),
    "programming": (
        AssertionError,
        AttributeError,
        ImportError,
        NameError,
        NotImplementedError,
        SyntaxError,
        TypeError,
        exc.ArgumentError,
        exc.CompileError,
        exc.InvalidRequestError,
        sqlite3.ProgrammingError,
        errors.InvalidKey,
        errors.InvalidMessage,
        errors.KeyConflict,
        errors.NotInTransaction,
        errors.UnsupportedConnection,
    ),
    "permission": (PermissionError,),
    "schema": (errors.SchemaTooNew, errors.SchemaTooOld),
}
"""Classes of errors that are permanent, by what is wrong."""

SQLSTATES: Final[tuple[tuple[str, str], ...]] = (
    ("42501", "permission"),  # insufficient_privilege
    ("28", "permission"),  # invalid authorization specification
    ("42", "schema"),  # syntax error, undefined table or column
    ("3D", "schema"),  # no such database
    ("3F", "schema"),  # no such schema
    ("0A", "programming"),  # feature not supported
)
"""PostgreSQL's codes, the first prefix that fits
(https://www.postgresql.org/docs/current/errcodes-appendix.html)."""

SQLITE_TEXTS: Final[tuple[tuple[str, str], ...]] = (
    ("no such table", "schema"),
    ("no such column", "schema"),
    ("has no column named", "schema"),
    ("syntax error", "schema"),
    ("readonly database", "permission"),
    ("not authorized", "permission"),
)
"""SQLite has one code for all of these (SQLITE_ERROR), so its words have to do."""

ERROR_CHARACTERS: Final = 500
TRACEBACK_CHARACTERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt: ``first``, doubled each time up to ``most``."""

    first: timedelta = timedelta(0)
    most: timedelta = timedelta(hours=1)

    def after(self, attempts: int) -> timedelta:
        """The wait after that many attempts that counted."""
        doubled = min(max(attempts, 1) - 1, 32)
        return min(self.first * (1 << doubled), self.most)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, classified. ``why``: what makes it permanent, None if it is not.

    ``retry_after`` is what the job asked for, if it did.
    """

    error: str
    error_type: str
    why: str | None
    retry_after: timedelta | None = None


def failure_of(error: BaseException, declared: tuple[type[BaseException], ...] = ()) -> Failure:
    """What ``error`` means. ``declared``: classes that this job holds to be permanent."""
    line = " ".join(str(error).split())
    name = type(error).__qualname__
    return Failure(
        error=cleaned(f"{name}: {line}" if line else name, ERROR_CHARACTERS) or name,
        error_type=f"{type(error).__module__}.{name}"[:255],
        why=_why(error, declared),
        retry_after=error.delay if isinstance(error, errors.RetryAfter) else None,
    )


def _why(error: BaseException, declared: tuple[type[BaseException], ...]) -> str | None:
    if isinstance(error, errors.RetryAfter):
        return None
    if isinstance(error, declared):
        return "declared"
    if isinstance(error, BaseExceptionGroup):
        reasons = [_why(each, declared) for each in error.exceptions]
        return reasons[0] if all(reasons) else None
    for cause in _causes(error):
        for why, classes in PERMANENT.items():
            if isinstance(cause, classes):
                return why
        if found := _database(cause):
            return found
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error itself, or what the driver said, where SQLAlchemy or Django wraps it."""
    if isinstance(error, exc.StatementError) and error.orig is not None:
        yield from _causes(error.orig)
    elif type(error).__module__ == "django.db.utils" and error.__cause__ is not None:
        yield from _causes(error.__cause__)
    else:
        yield error


def _database(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return next((why for prefix, why in SQLSTATES if state.startswith(prefix)), None)
    if isinstance(error, sqlite3.Error):
        said = str(error)
        return next((why for text, why in SQLITE_TEXTS if text in said), None)
    return None


def failed_attempt(
    error: BaseException,
    *,
    declared: tuple[type[BaseException], ...],
    counted: int,
    most: int | None,
    backoff: Backoff,
    at: datetime,
) -> FailedAttempt:
    """What becomes of a run whose attempt ended with ``error`` at ``at``.

    ``counted``: the attempts that count, this one included; ``most``: how many it has.
    """
    failure = failure_of(error, declared)
    exhausted = most is not None and counted >= most
    reason = (
        RunFailedReason.PERMANENT.value
        if failure.why
        else RunFailedReason.EXHAUSTED.value
        if exhausted
        else None
    )
    wait = backoff.after(counted) if failure.retry_after is None else failure.retry_after
    return FailedAttempt(
        error=failure.error,
        error_type=failure.error_type,
        traceback=_traceback(error),
        permanent=failure.why is not None,
        retry_at=None if reason else at + max(wait, timedelta(0)),
        reason=reason,
    )


def _traceback(error: BaseException) -> str:
    """The whole of it, or its two ends: what was raised stands last."""
    text = "".join(traceback.format_exception(error))
    text = "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text)
    if len(text) <= TRACEBACK_CHARACTERS:
        return text
    half = TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n…\n{text[-half:]}"
