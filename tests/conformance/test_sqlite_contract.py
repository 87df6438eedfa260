"""The contract for other languages on SQLite: a plain INSERT, and what it is refused for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import outbox
from tests.conformance.ledger import one_mail, rows

KEY = "invoice:7:owner"
MESSAGE = '{"to": ["ana@example.org"], "subject": "Your report", "text": "Hello"}'
OTHER_ORDER = '{"text":"Hello","subject":"Your report","to":["ana@example.org"]}'
ANOTHER = '{"to": ["ana@example.org"], "text": "Another"}'
AT = "2026-01-01T00:00:00.000Z"
PLAIN = (
    "INSERT INTO outbox_deliveries (delivery_key, message) VALUES (?, ?) "
    "ON CONFLICT (delivery_key) DO NOTHING"
)


@pytest.fixture
def lite(sqlite_url: str) -> Iterator[sqlite3.Connection]:
    """A producer that knows nothing but SQL."""
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def _insert(connection: sqlite3.Connection, **columns: Any) -> int:
    given = {"delivery_key": KEY, "message": MESSAGE, **columns}
    names, marks = ", ".join(given), ", ".join("?" * len(given))
    done = connection.execute(
        f"INSERT INTO outbox_deliveries ({names}) VALUES ({marks})", list(given.values())
    )
    return done.lastrowid or 0


def test_a_key_and_a_message_are_enough(lite: sqlite3.Connection, sqlite_url: str) -> None:
    """Every other column has a default; Python finds the row and counts it as known."""
    lite.execute(PLAIN, [KEY, MESSAGE])
    assert outbox.find(lite, KEY) is not None
    [row] = rows(
        sqlite_url, "SELECT state, account, priority, tags, attempts, due_at = send_after FROM "
        "outbox_deliveries"
    )  # fmt: skip
    assert row == ("pending", "", 0, "[]", 0, 1)
    assert not one_mail(sqlite_url, KEY).created


def test_the_same_bytes_change_nothing(lite: sqlite3.Connection) -> None:
    """The contract statement is repeatable: no second row, no error."""
    lite.execute(PLAIN, [KEY, MESSAGE])
    lite.execute(PLAIN, [KEY, MESSAGE])
    assert lite.execute("SELECT count(*) FROM outbox_deliveries").fetchone() == (1,)


@pytest.mark.parametrize("text", [ANOTHER, OTHER_ORDER])
def test_another_text_under_a_known_key_is_refused(lite: sqlite3.Connection, text: str) -> None:
    """The trigger compares text, exactly; it undoes the statement and not the transaction."""
    lite.execute(PLAIN, [KEY, MESSAGE])
    lite.execute("BEGIN")
    lite.execute(PLAIN, ["another:key", MESSAGE])
    with pytest.raises(sqlite3.IntegrityError, match="outbox: this delivery_key was enqueued"):
        lite.execute(PLAIN, [KEY, text])
    lite.execute("COMMIT")
    assert lite.execute("SELECT count(*) FROM outbox_deliveries").fetchone() == (2,)


def test_a_purged_key_is_known_to_the_trigger(lite: sqlite3.Connection) -> None:
    """Without the first body nothing is compared, and nothing is inserted."""
    _insert(lite, state="accepted", message=None, finished_at=AT)
    lite.execute(PLAIN, [KEY, ANOTHER])
    assert lite.execute("SELECT count(*), max(message) FROM outbox_deliveries").fetchone() == (
        1,
        None,
    )


def test_a_plain_row_is_due_when_it_may_be_sent(lite: sqlite3.Connection) -> None:
    """``due_at`` follows a later ``send_after``, and never runs ahead of it."""
    later, past = "2099-01-01T00:00:00.000Z", "2001-01-01T00:00:00.000Z"
    due = "SELECT due_at FROM outbox_deliveries WHERE delivery_key = ?"
    _insert(lite, delivery_key="later", send_after=later)
    assert lite.execute(due, ["later"]).fetchone() == (later,)
    _insert(lite, delivery_key="past", send_after=past)
    assert lite.execute(due, ["past"]).fetchone()[0] > past


REFUSED_BY_SQLITE: list[tuple[str, dict[str, Any]]] = [
    ("send_after_form", {"send_after": "2026-11-29 11:00:00"}),
    ("send_after_form", {"send_after": "2026-11-29T10:00:00Z"}),
    ("send_after_form", {"send_after": "2026-11-29T10:00:00.000+05:00"}),
    ("send_after_form", {"send_after": "2026-02-30T10:00:00.000Z"}),
    ("send_after_form", {"send_after": "2026-01-01T24:00:00.000Z"}),
    ("send_after_form", {"send_after": "2026-19-01T10:00:00.000Z"}),
    ("send_after_form", {"send_after": "2026-01-01T10:00:69.000Z"}),
    ("send_after_form", {"send_after": "0000-01-01T10:00:00.000Z"}),
    ("due_at_form", {"due_at": 1769000000}),
    ("send_before_form", {"send_before": "tomorrow"}),
    ("created_at_form", {"created_at": "2026-11-29T10:00:00"}),
    ("send_before", {"send_before": AT, "send_after": AT}),
    ("send_before", {"send_before": AT, "send_after": "2026-01-01T00:00:00.001Z"}),
    ("key_length", {"delivery_key": ""}),
    ("key_length", {"delivery_key": "k" * 256}),
    ("key_tilde", {"delivery_key": "invoice:7~2"}),
    ("key_printable", {"delivery_key": "a\tb"}),
    ("key_printable", {"delivery_key": "a\nb"}),
    ("key_printable", {"delivery_key": "a\x7fb"}),
    ("key_printable", {"delivery_key": "a\x1fb"}),
    ("key_printable", {"delivery_key": "a\0b"}),
    ("text", {"delivery_key": b"invoice"}),
    ("text", {"message": MESSAGE.encode()}),
    ("text", {"account": b"main"}),
    ("message", {"message": None}),
    ("state", {"state": "sent"}),
    ("priority", {"priority": 101}),
    ("priority", {"priority": "high"}),
    ("when_unsure", {"when_unsure": "never"}),
    ("finished", {"state": "accepted"}),
    ("lease", {"state": "sending"}),
    ("held", {"state": "held", "reason": "operator"}),
    ("reason", {"state": "held", "held_from": "pending"}),
    ("reason", {"state": "failed", "finished_at": AT}),
    ("reason", {"state": "cancelled", "finished_at": AT, "reason": "rejected"}),
    ("reason", {"reason": "operator"}),
]


@pytest.mark.parametrize(("check", "columns"), REFUSED_BY_SQLITE)
def test_sqlite_refuses_nonsense(
    lite: sqlite3.Connection, check: str, columns: dict[str, Any]
) -> None:
    """A value that would be sent at the wrong time, or stop the others, never becomes a row."""
    with pytest.raises(sqlite3.IntegrityError, match=rf"ck_outbox_deliveries_{check}$"):
        _insert(lite, **columns)


@pytest.mark.parametrize(
    "instant", ["2026-11-29T10:00:00.123Z", "2028-02-29T23:59:59.999Z", "9999-12-30T00:00:00.000Z"]
)
def test_sqlite_takes_every_real_instant(lite: sqlite3.Connection, instant: str) -> None:
    """What has the form and stands in the calendar is taken, leap days included."""
    assert _insert(lite, send_after="2026-01-01T00:00:00.000Z", send_before=instant)
