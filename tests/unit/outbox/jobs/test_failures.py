"""Which errors end a run at once, and when the others are tried again."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import exc

import outbox
from outbox.jobs.failures import (
    TRACEBACK_CHARACTERS,
    Backoff,
    failed_attempt,
    failure_of,
)
from tests.unit.outbox.jobs.found_runs import HOUR, NOW


class NoSuchCustomer(Exception):
    """An error of a job's own."""


class FromPsycopg2(Exception):
    """psycopg2's errors carry the code under another name."""

    pgcode = "42703"


def wrapped(error: Exception) -> exc.DBAPIError:
    """``error`` as SQLAlchemy raises it."""
    return exc.DBAPIError("SELECT 1", {}, error)


def from_django(error: Exception) -> Exception:
    """``error`` as Django raises it."""
    kind = type("ProgrammingError", (Exception,), {"__module__": "django.db.utils"})
    made: Exception = kind("x")
    made.__cause__ = error
    return made


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (outbox.Permanent("gone"), "declared"),
        (NoSuchCustomer(), "declared"),
        (AttributeError("x"), "programming"),
        (UnboundLocalError("x"), "programming"),
        (TypeError("x"), "programming"),
        (ModuleNotFoundError("x"), "programming"),
        (AssertionError(), "programming"),
        (exc.InvalidRequestError("x"), "programming"),
        (outbox.KeyConflict("k", "m"), "programming"),
        (outbox.InvalidMessage("to", "m"), "programming"),
        (PermissionError(13, "no"), "permission"),
        (psycopg.errors.InsufficientPrivilege(), "permission"),
        (wrapped(psycopg.errors.InvalidPassword()), "permission"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "permission"),
        (psycopg.errors.UndefinedTable(), "schema"),
        (wrapped(psycopg.errors.UndefinedColumn()), "schema"),
        (from_django(psycopg.errors.UndefinedTable()), "schema"),
        (FromPsycopg2(), "schema"),
        (wrapped(sqlite3.OperationalError("no such table: reports")), "schema"),
        (outbox.SchemaTooOld("x"), "schema"),
        (ExceptionGroup("all", [TypeError(), PermissionError()]), "programming"),
        (ExceptionGroup("some", [TypeError(), TimeoutError()]), None),
        (outbox.RetryAfter(HOUR), None),
        (outbox.RetryTransaction("x"), None),
        (TimeoutError(), None),
        (ConnectionResetError(), None),
        (ValueError("half a document"), None),
        (KeyError("x"), None),
        (MemoryError(), None),
        (sqlite3.OperationalError("database is locked"), None),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), None),
        (psycopg.errors.SerializationFailure(), None),
        (psycopg.errors.UniqueViolation(), None),
        (psycopg.OperationalError("connection refused"), None),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else str(each),
)
def test_what_no_repetition_mends_is_permanent(error: Exception, why: str | None) -> None:
    """The table, and what drivers, SQLAlchemy, Django and groups make of the same errors."""
    assert failure_of(error, (NoSuchCustomer,)).why == why


def attempt(error: Exception, **given: Any) -> Any:
    """How an attempt ends with ``error``; the first of ten unless told otherwise."""
    known = {"declared": (), "counted": 1, "most": 10, "backoff": Backoff(), "at": NOW}
    return failed_attempt(error, **{**known, **given})


def test_what_may_go_away_is_tried_again() -> None:
    """At once, after the job's own wait, or after the wait that the error asks for."""
    assert attempt(TimeoutError()).retry_at == NOW
    slow = Backoff(timedelta(minutes=1), timedelta(minutes=10))
    waits = [attempt(TimeoutError(), counted=n, backoff=slow).retry_at - NOW for n in (1, 2, 4, 9)]
    assert [wait // timedelta(minutes=1) for wait in waits] == [1, 2, 8, 10]
    assert attempt(outbox.RetryAfter(HOUR), backoff=slow).retry_at == NOW + HOUR
    assert attempt(outbox.RetryAfter(-HOUR)).retry_at == NOW
    assert slow.after(10**6) == slow.most


def test_what_ends_a_run_says_why() -> None:
    """A permanent error, or the last attempt; then there is no next one."""
    for error, given, reason in (
        (TypeError(), {}, "permanent"),
        (TimeoutError(), {"counted": 10}, "exhausted"),
        (outbox.RetryAfter(HOUR), {"counted": 10}, "exhausted"),
        (TypeError(), {"counted": 10}, "permanent"),
    ):
        end = attempt(error, **given)
        assert (end.reason, end.retry_at) == (reason, None)
    assert attempt(TimeoutError(), counted=10**6, most=None).retry_at == NOW


def test_an_error_is_told_in_one_line_and_in_full() -> None:
    """Class and message without line breaks; where it was raised; nothing that cannot be stored."""

    def fail() -> None:
        raise ValueError("two\nlines\0\ud800")

    with pytest.raises(ValueError, match="two") as raised:
        fail()
    end = attempt(raised.value)
    assert end.error.startswith("ValueError: two lines")
    assert end.error_type == "builtins.ValueError"
    assert 'raise ValueError("two' in end.traceback
    for stored in (end.error, end.traceback):
        assert "\0" not in stored
        stored.encode()
    assert attempt(ValueError()).error == "ValueError"


def test_a_long_traceback_keeps_both_ends() -> None:
    """What was raised stands last, who called first."""
    end = attempt(ValueError("x" * 3 * TRACEBACK_CHARACTERS + " the end"))
    assert len(end.traceback) <= TRACEBACK_CHARACTERS + 3
    assert end.traceback.rstrip().endswith("the end")
    assert len(end.error) == 500
