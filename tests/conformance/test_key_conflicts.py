"""One key, one message: what is returned, what is refused, and what stays in the transaction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

import outbox
from outbox.keys import key_hash
from outbox.states import State
from tests.conformance.ledger import (
    Counts,
    change,
    counts,
    engine_at,
    mail,
    one_mail,
    rows,
    with_invoices,
)

KEY = "invoice:7:owner"


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """A connection to a database that knows one delivery, ``KEY``, with a file attached."""
    one_mail(with_invoices(database_url), KEY, message=mail(files=[b"first"]))
    with engine_at(database_url) as engine, engine.connect() as connection:
        yield connection


def test_the_fields_that_differ_are_named(connection: Connection) -> None:
    """The error names key, time and fields, says what to do, and the first message stays."""
    other = outbox.Email(
        to="ana@example.org",
        subject="Your report",
        text="Another",
        attachments=[outbox.Attachment("1.bin", b"second")],
        tags=["late"],
    )
    with pytest.raises(outbox.KeyConflict) as refused:
        outbox.enqueue(connection, other, key=KEY)
    assert refused.value.key == KEY
    assert refused.value.fields == ("text", "attachments[0]", "tags")
    said = str(refused.value)
    assert said.startswith(f"{KEY} was enqueued at 20")
    assert "with another text and attachments[0] and tags;\n  the first stays." in said
    assert 'if_exists="keep"' in said
    found = outbox.find(connection, KEY)
    assert found is not None
    assert found.message is not None
    assert found.message.canonical() == mail(files=[b"first"]).canonical()
    assert f"{found.created_at:%Y-%m-%dT%H:%M:%S}" in said


def test_keep_accepts_the_first(connection: Connection, database_url: str) -> None:
    """``if_exists="keep"`` returns the first row whatever it says, and stores nothing more."""
    before = counts(database_url)
    done = outbox.enqueue(connection, mail("Another", files=[b"second"]), key=KEY, if_exists="keep")
    connection.commit()
    assert (done.created, done.state) == (False, State.PENDING)
    assert counts(database_url) == before


def test_schedule_and_policy_are_no_part_of_the_message(connection: Connection) -> None:
    """The same message at another time, by another account, is the same delivery."""
    done = outbox.enqueue(
        connection,
        mail(files=[b"first"]),
        key=KEY,
        account="other",
        send_after=datetime(2030, 1, 1, tzinfo=UTC),
        priority=5,
        tenant="t2",
    )
    assert done.created is False


def test_a_repeated_run_does_not_fail_for_a_time_that_has_passed(connection: Connection) -> None:
    """A known key is returned also when ``send_before`` has passed by now; a new one is refused."""
    passed = datetime.now(UTC) - timedelta(days=1)
    again = outbox.enqueue(connection, mail(files=[b"first"]), key=KEY, send_before=passed)
    assert again.created is False
    with pytest.raises(outbox.InvalidMessage, match=r"send_before.*passed"):
        outbox.enqueue(connection, mail(), key="new", send_before=passed)
    with pytest.raises(outbox.InvalidMessage, match=r"send_before.*passed"):
        outbox.enqueue_many(connection, [(mail(), "a"), (mail(), "b")], send_before=passed)


def test_many_are_all_or_nothing(connection: Connection, database_url: str) -> None:
    """One conflict takes back the whole call, and the caller's other rows still commit."""
    connection.execute(text("INSERT INTO invoices (id) VALUES (7)"))
    pairs = [(mail(files=[b"new"]), "a"), (mail("Another"), KEY), (mail(), "z")]
    with pytest.raises(outbox.KeyConflict):
        outbox.enqueue_many(connection, pairs)
    outbox.enqueue(connection, mail(), key="afterwards")
    connection.commit()
    assert counts(database_url) == Counts(2, 2, 1, 1, 1)
    assert [
        r[0] for r in rows(database_url, "SELECT delivery_key FROM outbox_deliveries ORDER BY id")
    ] == [
        KEY,
        "afterwards",
    ]


@pytest.mark.parametrize("foreign_keys", ["off", "on"])
def test_a_late_conflict_takes_back_the_first_thousand(sqlite_url: str, foreign_keys: str) -> None:
    """A conflict beyond the first statement leaves no row and no part of one, also where SQLite
    does not check foreign keys and so would not clean up behind a DELETE."""
    one_mail(with_invoices(sqlite_url), "zzz")
    before = counts(sqlite_url)
    pairs = [(mail(files=[b"shared"]), f"k{n:04}") for n in range(1001)]
    with engine_at(sqlite_url) as engine, engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA foreign_keys = {foreign_keys}")
        with pytest.raises(outbox.KeyConflict):
            outbox.enqueue_many(connection, [*pairs, (mail("Another"), "zzz")])
        connection.commit()
    assert counts(sqlite_url) == before


def test_the_same_key_twice_in_one_call(connection: Connection, database_url: str) -> None:
    """Equal messages are one delivery, created once; different ones are refused before anything."""
    done = outbox.enqueue_many(connection, [(mail(), "a"), (mail(), "b"), (mail(), "a")])
    assert [(each.key, each.created) for each in done] == [("a", True), ("b", True), ("a", False)]
    assert done[0].id == done[2].id
    with pytest.raises(outbox.KeyConflict, match="earlier in the same call with another text"):
        outbox.enqueue_many(connection, [(mail(), "c"), (mail("Another"), "c")])
    kept = outbox.enqueue_many(
        connection, [(mail(), "d"), (mail("Another"), "d")], if_exists="keep"
    )
    assert [each.created for each in kept] == [True, False]
    connection.commit()
    assert counts(database_url).deliveries == 4


def test_a_tombstoned_key_is_known(connection: Connection, database_url: str) -> None:
    """After cleaning up, a key returns the first id and final state, and nothing is sent again."""
    change(
        database_url,
        "INSERT INTO outbox_tombstones (key_hash, delivery_id, state, finished_at) VALUES "
        f"('{key_hash('old')}', 4711, 'accepted', '2026-01-01T00:00:00.000Z')",
    )
    done = outbox.enqueue_many(connection, [(mail("Anything"), "old"), (mail(), "new")])
    assert done[0] == outbox.Enqueued(4711, "old", created=False, state=State.ACCEPTED)
    assert done[1].created
    connection.commit()
    assert counts(database_url).deliveries == 2


def test_a_purged_message_is_not_compared(connection: Connection, database_url: str) -> None:
    """Once the body is gone its key still counts as known, with any message."""
    change(
        database_url,
        "UPDATE outbox_deliveries SET state = 'accepted', message = NULL, "
        "finished_at = '2026-01-01T00:00:00.000Z'",
    )
    done = outbox.enqueue(connection, mail("Another"), key=KEY)
    assert (done.created, done.state) == (False, State.ACCEPTED)
    found = outbox.find(connection, KEY)
    assert found is not None
    assert found.message is None


SQL_FORM = (
    '{"text": "Hello", "to": "ana@example.org", "cc": null,'
    ' "subject": "Your \\u0072eport", "headers": {}}'
)


def test_a_row_without_fingerprint_is_compared_by_its_message(
    connection: Connection, database_url: str
) -> None:
    """A row that came by SQL, spelled otherwise, equals the same message from Python."""
    change(
        database_url,
        f"INSERT INTO outbox_deliveries (delivery_key, message) VALUES ('sql', '{SQL_FORM}')",
    )
    assert outbox.enqueue(connection, mail(), key="sql").created is False
    with pytest.raises(outbox.KeyConflict) as refused:
        outbox.enqueue(connection, mail("Another"), key="sql")
    assert refused.value.fields == ("text",)


def test_a_fingerprint_of_another_version_is_recomputed(
    connection: Connection, database_url: str
) -> None:
    """A fingerprint made by another release is no reason to refuse an equal message."""
    change(database_url, "UPDATE outbox_deliveries SET fingerprint = '0:of an older release'")
    assert outbox.enqueue(connection, mail(files=[b"first"]), key=KEY).created is False
    with pytest.raises(outbox.KeyConflict):
        outbox.enqueue(connection, mail("Another"), key=KEY)


def test_a_row_that_is_no_message_conflicts(connection: Connection, database_url: str) -> None:
    """A known key whose message cannot be read is refused, not taken for equal."""
    change(
        database_url,
        "INSERT INTO outbox_deliveries (delivery_key, message) VALUES ('bad', 'no JSON')",
    )
    with pytest.raises(outbox.KeyConflict) as refused:
        outbox.enqueue(connection, mail(), key="bad")
    assert refused.value.fields == ("message",)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"account": ""}, "account"),
        ({"account": "a" * 65}, "account"),
        ({"account": "a\0b"}, "account"),
        ({"tenant": "half \ud800"}, "tenant"),
        ({"tenant": ""}, "tenant"),
        ({"priority": 101}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"when_unsure": "never"}, "when_unsure"),
        ({"send_after": datetime(2026, 1, 1)}, "send_after"),  # noqa: DTZ001
        ({"send_before": "2026-01-01"}, "send_before"),
        ({"send_before": datetime.max.replace(tzinfo=UTC)}, "send_before"),
        (
            {
                "send_after": datetime(2030, 1, 2, tzinfo=UTC),
                "send_before": datetime(2030, 1, 2, tzinfo=UTC),
            },
            "send_before",
        ),
    ],
)
def test_unusable_options_are_named(options: dict[str, Any], named: str) -> None:
    """An option that no row could hold is refused by name, before the connection is looked at."""
    with pytest.raises(outbox.InvalidMessage) as refused:
        outbox.enqueue(None, mail(), key="new", **options)
    assert refused.value.field == named


def test_an_unknown_if_exists_is_refused() -> None:
    """``if_exists`` is one of two words."""
    with pytest.raises(ValueError, match='"raise" or "keep"'):
        outbox.enqueue(None, mail(), key="new", if_exists="replace")  # type: ignore[arg-type]


def test_the_columns_of_a_new_row(connection: Connection, database_url: str) -> None:
    """What the producer says stands in its columns; due when it may be sent; tags are copied."""
    after, before = datetime(2031, 5, 1, 8, tzinfo=UTC), datetime(2031, 5, 2, 8, tzinfo=UTC)
    message = outbox.Email(to="ana@example.org", text="Hi", tags=["weekly", "grün"])
    outbox.enqueue(
        connection, message, key="full", account="main", send_after=after, send_before=before,
        when_unsure="send_again", priority=-3, tenant="t1",
    )  # fmt: skip
    found = outbox.find(connection, "full")
    assert found is not None
    assert (found.send_after, found.due_at, found.send_before) == (after, after, before)
    assert (found.account, found.priority, found.tenant) == ("main", -3, "t1")
    connection.commit()
    sql = "SELECT tags, when_unsure, fingerprint FROM outbox_deliveries WHERE delivery_key = 'full'"
    assert rows(database_url, sql) == [
        ('["weekly","grün"]', "send_again", outbox.message.fingerprint(message))
    ]
