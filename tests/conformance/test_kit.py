"""The testing kit: an outbox for one test, its clock, and what it says of what was enqueued."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import outbox
from outbox import Attachment
from outbox.jobs.errors import InvalidJob
from outbox.settings import database_settings
from outbox.testing import Postroom, assert_enqueued
from tests.conformance.kit_rig import mail, opened
from tests.conformance.ledger import raw

THEN = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)
NOW = "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"


@pytest.fixture
def postroom(tmp_path: Path) -> Iterator[Postroom]:
    """The kit."""
    with opened(tmp_path) as kit:
        yield kit


def enqueue(kit: Postroom, key: str, **fields: Any) -> None:
    """One delivery, committed."""
    with outbox.transaction(kit.connection()) as connection:
        outbox.enqueue(connection, mail(**fields), key=key)


# --------------------------------------------------------------------------- #
# The outbox
# --------------------------------------------------------------------------- #


def test_what_is_enqueued_by_any_connection_is_seen(postroom: Postroom) -> None:
    """Raw, by session and by engine, in the order of enqueuing, with message and attachments."""
    enqueue(postroom, "a", attachments=[Attachment("a.csv", "1,2\n", "text/csv")])
    with postroom.session() as session, session.begin():
        outbox.enqueue(session, mail(), key="b", priority=5, account="bulk")
    with postroom.engine.begin() as connection:
        outbox.enqueue(connection, mail(), key="c", tenant="t")
    first, second, third = postroom.enqueued()
    assert (first.key, second.key, third.key) == ("a", "b", "c")
    assert first.message is not None
    assert first.message.to == ("ana@example.org",)
    [file] = first.message.attachments
    assert isinstance(file, Attachment)
    assert (file.filename, file.content) == ("a.csv", b"1,2\n")
    assert (second.priority, second.account, third.tenant) == (5, "bulk", "t")
    assert first.send_after == postroom.clock.now


def test_what_is_rolled_back_was_not_enqueued(postroom: Postroom) -> None:
    """The kit sees what others would: what is committed."""
    connection = postroom.connection()
    connection.execute("BEGIN")
    outbox.enqueue(connection, mail(), key="a")
    assert postroom.nothing_enqueued()
    connection.rollback()
    assert postroom.enqueued() == []


@pytest.mark.parametrize("configured", [None, "sqlite:////srv/app.db"])
def test_each_kit_is_empty_and_is_the_configured_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: str | None
) -> None:
    """A job finds it where it looks for its database; afterwards all is as it was."""
    monkeypatch.delenv("POSTROOM_DATABASE__URL", raising=False)
    if configured is not None:
        monkeypatch.setenv("POSTROOM_DATABASE__URL", configured)
    before = configured, sqlite3.connect, sqlite3.dbapi2.connect
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        with opened(folder) as kit:
            assert database_settings().url == kit.url
            assert postroom_is_empty(kit)
            enqueue(kit, "a")
    after = os.environ.get("POSTROOM_DATABASE__URL"), sqlite3.connect, sqlite3.dbapi2.connect
    assert after == before


def postroom_is_empty(kit: Postroom) -> bool:
    """Whether nothing was ever done in it."""
    return kit.nothing_enqueued() and kit.runs() == []


def test_other_databases_are_left_alone(postroom: Postroom, tmp_path: Path) -> None:
    """A connection to another file is what it always is, and has the host's time."""
    postroom.clock.at("2001-01-01T00:00Z")
    for path in (tmp_path / "other.db", ":memory:"):
        with closing(sqlite3.connect(path)) as connection:
            assert type(connection) is sqlite3.Connection
            assert connection.execute(NOW).fetchone()[0] > "2026"


# --------------------------------------------------------------------------- #
# The clock
# --------------------------------------------------------------------------- #


async def test_the_clock_moves_every_connection_to_the_database(postroom: Postroom) -> None:
    """As they come, with a URL, of an engine, of an event loop, in statements and in defaults."""
    early = postroom.connection()
    postroom.clock.at(THEN)
    wanted = "2026-11-30T07:00:00.000Z"
    asynchronous = create_async_engine(postroom.url.replace("sqlite", "sqlite+aiosqlite"))
    engine = create_engine(postroom.url)
    try:
        assert early.execute(NOW).fetchone()[0] == wanted
        with closing(sqlite3.connect(f"file:{postroom.path}?mode=rw", uri=True)) as by_uri:
            assert by_uri.execute(NOW).fetchone()[0] == wanted
        with engine.connect() as connection:
            assert connection.execute(text(NOW)).scalar_one() == wanted
        async with asynchronous.connect() as other:
            assert (await other.execute(text(NOW))).scalar_one() == wanted
    finally:
        engine.dispose()
        await asynchronous.dispose()
    early.execute(
        "INSERT INTO outbox_deliveries (delivery_key, message) "
        """VALUES ('k', '{"to": ["a@example.org"], "subject": "s", "text": "t"}')"""
    )
    early.commit()
    [found] = postroom.enqueued()
    assert (found.send_after, found.due_at, found.created_at) == (THEN, THEN, THEN)


def test_the_clock_stands_still_until_it_is_moved(postroom: Postroom) -> None:
    """It begins at the host's instant; ``outbox.clock.now`` is its time, and only meanwhile."""
    start = postroom.clock.now
    assert abs(start - datetime.now(UTC)) < timedelta(minutes=5)
    assert outbox.now() == start == postroom.clock.now
    assert postroom.clock.at("2026-11-30T08:00+01:00") == THEN == outbox.now()
    assert postroom.clock.advance("3h") == THEN + timedelta(hours=3)
    assert postroom.clock.advance(timedelta(seconds=1)) == outbox.now()
    assert postroom.clock.reach(THEN) == outbox.now() > THEN


def test_the_host_has_its_time_back_afterwards(tmp_path: Path) -> None:
    """Nothing of the kit's clock is left."""
    with opened(tmp_path) as kit:
        kit.clock.at("2001-01-01T00:00Z")
        assert outbox.now().year == 2001
    assert outbox.now().year > 2001


@pytest.mark.parametrize("instant", ["tomorrow", "2026-11-30T08:00", 7, datetime(2026, 11, 30)])  # noqa: DTZ001
def test_an_instant_that_is_none_is_refused(postroom: Postroom, instant: Any) -> None:
    """Text that is no instant, and what has no time zone: which instant it means is a guess."""
    with pytest.raises(ValueError, match=r"clock\.at|time zone"):
        postroom.clock.at(instant)


def test_a_span_that_is_none_is_refused(postroom: Postroom) -> None:
    """Time does not run backwards by accident."""
    for by in ("3 hours", timedelta(seconds=-1)):
        with pytest.raises(InvalidJob, match=r"clock\.advance: .* is no span of time"):
            postroom.clock.advance(by)


def test_an_application_may_ask_for_other_times(postroom: Postroom) -> None:
    """``strftime`` answers everything else as SQLite does, also in a CHECK and in an index."""
    connection = postroom.connection()
    postroom.clock.at(THEN)
    for asked, wanted in (
        ("strftime('%Y', '2020-02-03')", "2020"),
        ("strftime('%Y-%m-%d %H:%M', 'now', '+1 day')", "2026-12-01 07:00"),
        ("strftime('%s', 'NOW')", str(int(THEN.timestamp()))),
        ("strftime('%Y', NULL)", None),
        ("strftime('%Y', 'nonsense')", None),
    ):
        assert connection.execute(f"SELECT {asked}").fetchone()[0] == wanted
    connection.execute("CREATE TABLE t (day TEXT CHECK (strftime('%w', day) = '1'))")
    connection.execute("CREATE INDEX by_month ON t (strftime('%m', day))")
    connection.execute("INSERT INTO t VALUES ('2026-11-30')")
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO t VALUES ('2026-11-29')")


# --------------------------------------------------------------------------- #
# Connections as they come
# --------------------------------------------------------------------------- #


def test_a_connection_behaves_as_sqlite3_s(postroom: Postroom) -> None:
    """Blocks, scripts, cursors, factories of the application: as without the kit."""

    class Own(sqlite3.Connection):
        """A class of the application."""

    with closing(sqlite3.connect(postroom.path, 5.0, 0, "DEFERRED", True, Own)) as connection:
        assert isinstance(connection, Own)
        connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
        with connection:
            connection.executemany("INSERT INTO t VALUES (?)", [(2,), (3,)])
        with suppress(ZeroDivisionError), connection:
            connection.execute("DELETE FROM t")
            raise ZeroDivisionError
        connection.row_factory = sqlite3.Row
        rows = connection.cursor().execute("SELECT a FROM t ORDER BY a").fetchall()
        assert [row["a"] for row in rows] == [1, 2, 3]
    with pytest.raises(TypeError, match="factory has to be a subclass of Connection"):
        sqlite3.connect(postroom.path, factory=lambda *_: None)  # type: ignore[call-overload]


# --------------------------------------------------------------------------- #
# Assertions
# --------------------------------------------------------------------------- #


def test_a_delivery_is_found_by_any_of_its_fields(postroom: Postroom) -> None:
    """By value, by pattern, by function; addresses in any order, with a name only if it is given."""
    enqueue(
        postroom,
        "invoice:7:owner",
        subject="Invoice 7",
        text="Total: 120\n",
        to=["Ana <ana@example.org>", "bob@EXAMPLE.org"],
        tags=["invoice"],
        attachments=[Attachment("7.pdf", b"%PDF")],
    )
    enqueue(postroom, "invoice:8:owner", subject="Invoice 8", from_="shop@example.com")
    found = postroom.assert_enqueued(
        key="invoice:7:owner",
        to=["bob@example.org", "ana@example.org"],
        subject=re.compile(r"^Invoice \d$"),
        text=lambda body: "120" in body,
        html=None,
        tags=("invoice",),
        attachments={"7.pdf": b"%PDF"},
        state="pending",
        send_after=postroom.clock.now,
        cc=(),
    )
    assert found.key == "invoice:7:owner"
    postroom.assert_enqueued(to=["Ana <ana@example.org>", "bob@EXAMPLE.org"], attachments="7.pdf")
    postroom.assert_enqueued(from_="shop@example.com", times=1)
    postroom.assert_enqueued(subject=re.compile("Invoice"), times=2)


def test_a_failed_assertion_shows_what_was_enqueued(postroom: Postroom) -> None:
    """The nearest delivery first, and of each only the fields that differ, side by side."""
    enqueue(postroom, "invoice:7:owner", subject="Invoice 7", text="one\ntwo\nthree\n")
    enqueue(postroom, "reminder:7", subject="Reminder", to="bob@example.org")
    with pytest.raises(AssertionError) as failed:
        postroom.assert_enqueued(
            key="invoice:7:owner", to="ana@example.org", text="one\n2\nthree\n"
        )
    assert str(failed.value) == (
        "no delivery was enqueued with key='invoice:7:owner', to='ana@example.org', "
        "text='one\\n2\\nthree\\n'; 2 were, nearest first:\n"
        '  invoice:7:owner to ana@example.org, "Invoice 7" (pending)\n'
        "    text:\n"
        "      --- found\n"
        "      +++ wanted\n"
        "      @@ -1,3 +1,3 @@\n"
        "       one\n"
        "      -two\n"
        "      +2\n"
        "       three\n"
        '  reminder:7 to bob@example.org, "Reminder" (pending)\n'
        "    key: 'reminder:7'\n"
        "         wanted 'invoice:7:owner'\n"
        "    to: bob@example.org\n"
        "        wanted ana@example.org\n"
        "    text:\n"
        "      --- found\n"
        "      +++ wanted\n"
        "      @@ -1 +1,3 @@\n"
        "      -Hello\n"
        "      +one\n"
        "      +2\n"
        "      +three"
    )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"subject": re.compile("^X")}, "subject: 'Website audit'\n             wanted /^X/"),
        ({"subject": str.isdigit}, "wanted what str.isdigit accepts"),
        ({"to": []}, "to: ana@example.org\n        wanted nobody"),
        ({"cc": "eve@example.org"}, "cc: nobody\n        wanted eve@example.org"),
        ({"to": "Ana <ana@example.org>"}, "wanted Ana <ana@example.org>"),
        ({"attachments": ["b.csv"]}, "attachments: ['a.csv']"),
        ({"attachments": {"b.csv": ""}}, "wanted ['b.csv']"),
        ({"attachments": {"a.csv": "1,3"}}, "attachments[\"a.csv\"]: '1,2'"),
        ({"priority": 5}, "priority: 0\n              wanted 5"),
        ({"state": "accepted"}, "state: 'pending'"),
        ({"send_before": THEN}, "wanted '2026-11-30T07:00:00+00:00'"),
    ],
    ids=str,
)
def test_a_difference_is_told_in_its_own_way(
    postroom: Postroom, wanted: dict[str, Any], said: str
) -> None:
    """Patterns, functions, addresses, files and instants each read like themselves."""
    enqueue(postroom, "a", attachments=[Attachment("a.csv", "1,2")])
    with pytest.raises(AssertionError) as failed:
        postroom.assert_enqueued(**wanted)
    assert said in str(failed.value)


def test_other_failures_say_what_there_is(postroom: Postroom) -> None:
    """Nothing at all, too many, a wrong number, a field that does not exist."""
    with pytest.raises(AssertionError, match=r"with anything:\nnothing was enqueued$"):
        postroom.assert_enqueued()
    assert postroom.nothing_enqueued()
    for number in range(12):
        enqueue(postroom, f"k{number}")
    with pytest.raises(AssertionError, match=r"12 deliveries were enqueued with .*, wanted 1:\n"):
        postroom.assert_enqueued(to="ana@example.org", times=1)
    with pytest.raises(AssertionError) as failed:
        postroom.nothing_enqueued()
    said = str(failed.value).splitlines()
    assert said[0] == "nothing was to be enqueued, but 12 were:"
    assert said[1] == '  k0 to ana@example.org, "Website audit" (pending)'
    assert said[11:] == ["  … and 2 more"]
    with pytest.raises(TypeError, match=r"no delivery has subjekt \(did you mean subject\?\)"):
        postroom.assert_enqueued(subjekt="x")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="for none, use nothing_enqueued"):
        postroom.assert_enqueued(times=0)


def test_an_assertion_looks_into_any_transaction_on_any_database(database_url: str) -> None:
    """Without the kit's database too: what the connection's own transaction has written counts."""
    with raw(database_url) as connection:
        connection.execute("BEGIN")
        content = bytes(range(256))
        file = Attachment("a.bin", content)
        outbox.enqueue(connection, mail(attachments=[file]), key="a")
        assert assert_enqueued(connection, attachments={"a.bin": content}).key == "a"
        with pytest.raises(AssertionError, match="'b'"):
            assert_enqueued(connection, key="b")
        connection.execute("ROLLBACK")
