"""Rows that no program can read, written by plain SQL: each is refused alone (invariant 6)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outbox import Email, enqueue
from tests.command_line import CommandLine
from tests.conformance.ledger import change, engine_at, rows

UNREADABLE = ["", "null", "[]", "{", '"x"', "[" * 100_000, '{"to": ["ana@example.org"], "text": 7}']
MESSAGE = '{"from": "r@example.com", "to": ["ana@example.org"], "text": "Hello"}'


@pytest.fixture
def postroom(tmp_path: Path, database_url: str) -> CommandLine:
    """The command line with the default account, which writes files."""
    return CommandLine(tmp_path, {"POSTROOM_DATABASE__URL": database_url})


def _enqueue_good(url: str) -> None:
    with engine_at(url) as engine, engine.begin() as connection:
        for number in range(3):
            mail = Email(to="ana@example.org", from_="r@example.com", text="Hello")
            enqueue(connection, mail, key=f"good:{number}")


def _drained(postroom: CommandLine, database_url: str, bad: int) -> None:
    """Drain, and see that the good rows left, the bad ones ended, and every command reads both."""
    ended = postroom("dispatch", "--drain")
    assert ended.code in {0, 1}, ended.said
    counted = dict(
        rows(database_url, "SELECT state, count(*) FROM outbox_deliveries GROUP BY state")
    )
    assert counted.pop("accepted") == 3, (counted, ended.said)
    assert set(counted) <= {"failed", "held"}
    assert sum(counted.values()) == bad
    assert len(list((postroom.folder / "var" / "mail").rglob("*.eml"))) == 3
    assert postroom("status").code in {0, 1}
    assert postroom("deliveries", "list").code == 0
    for id_ in range(1, bad + 1):
        shown = postroom("deliveries", "show", str(id_), *(["--json"] if id_ % 2 else []))
        assert shown.code == 0, shown.said


def test_what_is_no_message_stops_nobody_else(postroom: CommandLine, database_url: str) -> None:
    """Neither a text that is no JSON nor one that is something else keeps the others waiting."""
    for number, text in enumerate(UNREADABLE):
        change(
            database_url,
            "INSERT INTO outbox_deliveries (delivery_key, message, priority) "
            f"VALUES ('bad:{number}', '{text}', 9)",
        )
    _enqueue_good(database_url)
    _drained(postroom, database_url, len(UNREADABLE))


def test_text_that_is_no_utf_8_stops_nobody_else(tmp_path: Path, sqlite_url: str) -> None:
    """SQLite keeps any bytes as text: a row with wrong ones, in any column, hurts only itself."""
    columns = ("message", "delivery_key", "account", "tags", "run_key", "tenant", "default_from")
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        for column in columns:
            given = {"delivery_key": f"bad:{column}", "message": MESSAGE}
            given[column] = f"{given.get(column, '')}x"
            names = ", ".join(given)
            values = ", ".join(
                f"CAST(CAST('{text}' AS BLOB) || x'ff' AS TEXT)" if name == column else f"'{text}'"
                for name, text in given.items()
            )
            connection.execute(
                f"INSERT INTO outbox_deliveries ({names}, priority) VALUES ({values}, 9)"
            )
        connection.commit()
    _enqueue_good(sqlite_url)
    postroom = CommandLine(tmp_path, {"POSTROOM_DATABASE__URL": sqlite_url})
    postroom("dispatch", "--drain")
    found = {
        row["key"]: (row["state"], row["reason"])
        for row in postroom("deliveries", "list", "--json").json["deliveries"]
    }
    assert found.pop("bad:message") == ("failed", "invalid_message")
    assert found.pop("bad:account") == ("held", "unknown_account")
    assert set(found) == {
        r"bad:delivery_keyx\xff", *(f"bad:{column}" for column in columns[3:]),
        *(f"good:{number}" for number in range(3)),
    }  # fmt: skip
    assert set(found.values()) == {("accepted", None)}
    assert r"x\xff: it names an account that is not configured" in postroom("status").out
    assert postroom("deliveries", "show", "2").code == 0
