"""The contract for other languages on PostgreSQL: three functions and a view, nothing to forge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from outbox.keys import key_hash
from tests.conformance.ledger import change, mail, one_mail, rows

KEY = "invoice:7:owner"
MESSAGE = '{"to": ["ana@example.org"], "subject": "Your report", "text": "Hello"}'
OTHER_ORDER = '{"text":"Hello","subject":"Your report","to":["ana@example.org"]}'
ANOTHER = '{"to": ["ana@example.org"], "text": "Another"}'
AT = "2026-01-01T00:00:00.000Z"

ENQUEUE = "SELECT id, created, state, conflict FROM outbox_enqueue(%s, %s)"


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """A producer's role: EXECUTE on the three functions and SELECT on the view, no more."""
    name = f"producer_{token_hex(4)}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
        admin.execute(
            sql.SQL(
                "GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_put_blob, outbox_cancel TO {0};"
                "GRANT SELECT ON outbox_delivery_status TO {0}"
            ).format(sql.Identifier(name))
        )
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


Producer = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def producer(postgres_url: str, role: str) -> Iterator[Producer]:
    """A connection that acts as that role, each statement by itself."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        yield connection


def test_the_function_inserts_compares_and_returns(producer: Producer, postgres_url: str) -> None:
    """It says what was created; the same JSON in another order is the same message."""
    first = producer.execute(ENQUEUE, [KEY, MESSAGE]).fetchone()
    assert first is not None
    assert first[1:] == (True, "pending", False)
    assert producer.execute(ENQUEUE, [KEY, OTHER_ORDER]).fetchone() == (
        first[0],
        False,
        "pending",
        False,
    )
    assert not one_mail(postgres_url, KEY).created


def test_every_option_of_the_function(producer: Producer, postgres_url: str) -> None:
    """Account, times, policy, tenant and tags reach their columns; due when it may be sent."""
    producer.execute(
        """SELECT outbox_enqueue(%s, %s, account => 'main', send_after => '2031-05-01 08:00+02',
               send_before => '2031-05-02 08:00+02', when_unsure => 'send_again', priority => 7,
               tenant => 't1', run_key => 'run:1')""",
        [KEY, '{"to": "ana@example.org", "text": "Hi", "tags": ["weekly"]}'],
    )
    [row] = rows(
        postgres_url,
        "SELECT account, send_after = '2031-05-01 06:00Z', due_at = send_after, send_before = "
        "'2031-05-02 06:00Z', when_unsure, priority, tenant, run_key, tags FROM outbox_deliveries",
    )
    assert row == ("main", True, True, True, "send_again", 7, "t1", "run:1", '["weekly"]')


def test_the_function_raises_on_another_message(producer: Producer) -> None:
    """It names key and time, with an error that a program can recognize."""
    producer.execute(ENQUEUE, [KEY, MESSAGE])
    with pytest.raises(errors.UniqueViolation, match="invoice:7:owner was enqueued at") as refused:
        producer.execute(ENQUEUE, [KEY, ANOTHER])
    assert refused.value.diag.constraint_name == "outbox_key_conflict"


@pytest.mark.parametrize("how", ["keep", "return"])
def test_the_function_returns_the_conflict_when_asked(producer: Producer, how: str) -> None:
    """Without raising the caller's transaction stays usable, and the first message stays."""
    producer.execute(ENQUEUE, [KEY, MESSAGE])
    with producer.transaction():
        answer = producer.execute(
            "SELECT created, conflict FROM outbox_enqueue(%s, %s, if_exists => %s)",
            [KEY, ANOTHER, how],
        ).fetchone()
        assert answer == (False, True)
        producer.execute(ENQUEUE, ["another:key", MESSAGE])
    answer = producer.execute("SELECT count(*) FROM outbox_delivery_status").fetchone()
    assert answer == (2,)


def test_the_function_knows_purged_and_tombstoned_keys(
    producer: Producer, postgres_url: str
) -> None:
    """Neither is compared, both count as known, and the first id and state come back."""
    producer.execute(ENQUEUE, [KEY, MESSAGE])
    change(
        postgres_url,
        f"UPDATE outbox_deliveries SET state = 'accepted', message = NULL, finished_at = '{AT}'",
        "INSERT INTO outbox_tombstones (key_hash, delivery_id, state, finished_at) "
        f"VALUES ('{key_hash('alt:grün')}', 4711, 'failed', '{AT}')",
    )
    purged = producer.execute(ENQUEUE, [KEY, ANOTHER]).fetchone()
    assert purged is not None
    assert purged[1:] == (False, "accepted", False)
    buried = producer.execute(ENQUEUE, ["alt:grün", ANOTHER]).fetchone()
    assert buried == (4711, False, "failed", False)


def test_a_known_key_is_returned_after_its_time_has_passed(producer: Producer) -> None:
    """A repeated call does not fail for a ``send_before`` that is over by now; a new key does."""
    call = "SELECT created FROM outbox_enqueue(%s, %s, send_before => outbox_now() - interval '1s')"
    producer.execute(ENQUEUE, [KEY, MESSAGE])
    assert producer.execute(call, [KEY, MESSAGE]).fetchone() == (False,)
    with pytest.raises(errors.CheckViolation, match="send_before"):
        producer.execute(call, ["new:key", MESSAGE])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["", MESSAGE], errors.CheckViolation),
        (["k" * 256, MESSAGE], errors.StringDataRightTruncation),
        (["invoice:7~2", MESSAGE], errors.CheckViolation),
        (["a\tb", MESSAGE], errors.CheckViolation),
        ([None, MESSAGE], errors.NotNullViolation),
        ([KEY, "no JSON"], errors.InvalidTextRepresentation),
        ([KEY, "[]"], errors.InvalidParameterValue),
        ([KEY, None], errors.InvalidParameterValue),
    ],
)
def test_the_function_refuses_nonsense(
    producer: Producer, arguments: list[Any], error: type[Exception]
) -> None:
    """A key outside the grammar, or what is no JSON object, never becomes a row."""
    with pytest.raises(error):
        producer.execute(ENQUEUE, arguments)


@pytest.mark.parametrize(
    "option",
    [
        "send_before => 'infinity'",
        "send_after => '-infinity'",
        "send_after => '10000-01-01'",
        "priority => 101",
        "when_unsure => 'never'",
        "if_exists => 'replace'",
        "if_exists => NULL",
    ],
)
def test_the_function_refuses_unusable_options(producer: Producer, option: str) -> None:
    """Instants that no Python datetime can hold would stop every reader of the row."""
    with pytest.raises((errors.CheckViolation, errors.InvalidParameterValue)):
        producer.execute(
            sql.SQL("SELECT outbox_enqueue(%s, %s, {})").format(sql.SQL(option)),
            [KEY, MESSAGE],
        )


def test_attachments_by_sql(producer: Producer, postgres_url: str) -> None:
    """``outbox_put_blob`` stores a content once and returns the digest that the message names."""
    content = b"a,b\n1,2\n"
    digest = (hashlib.sha256(content).hexdigest(),)
    for _ in range(2):
        assert producer.execute("SELECT outbox_put_blob(%s)", [content]).fetchone() == digest
    message = json.loads(mail(files=[content, content]).to_json())
    producer.execute(ENQUEUE, [KEY, json.dumps(message)])
    assert rows(postgres_url, "SELECT sha256, size, content FROM outbox_blobs") == [
        (digest[0], len(content), content)
    ]
    assert rows(postgres_url, "SELECT sha256 FROM outbox_delivery_blobs") == [digest]
    unknown = MESSAGE.replace("}", ', "attachments": [{"sha256": "' + "0" * 64 + '"}]}')
    with pytest.raises(errors.ForeignKeyViolation):
        producer.execute(ENQUEUE, ["missing:blob", unknown])


def test_cancel_by_sql(producer: Producer) -> None:
    """A producer's role may stop what it has enqueued, and ask for the state."""
    producer.execute(ENQUEUE, [KEY, MESSAGE])
    assert producer.execute("SELECT outbox_cancel(%s)", [KEY]).fetchone() == ("cancelled",)
    status = producer.execute("SELECT delivery_key, state, reason FROM outbox_delivery_status")
    assert status.fetchall() == [(KEY, "cancelled", "producer")]


FORGERIES = [
    "INSERT INTO outbox_deliveries (delivery_key, message, state) VALUES ('x', '{}', 'accepted')",
    "INSERT INTO outbox_deliveries (delivery_key, message) VALUES ('x', '{}')",
    "UPDATE outbox_deliveries SET state = 'accepted', finished_at = now()",
    "UPDATE outbox_deliveries SET lease_token = 99",
    "UPDATE outbox_delivery_status SET state = 'accepted'",
    "DELETE FROM outbox_deliveries",
    "SELECT message FROM outbox_deliveries",
    "SELECT content FROM outbox_blobs",
    "SELECT address FROM outbox_recipients",
    "INSERT INTO outbox_evidence (delivery_id, kind, verdict) VALUES (1, 'answer', 'taken')",
    "INSERT INTO outbox_tombstones VALUES ('x', 1, 'accepted', NULL, now())",
    "UPDATE outbox_recipients SET result = 'accepted'",
    "UPDATE outbox_instance SET epoch = 0",
    "CREATE OR REPLACE FUNCTION outbox_now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
]


def test_a_producers_role_cannot_forge(producer: Producer, postgres_url: str) -> None:
    """State, tokens, evidence and other producers' mail are out of its reach."""
    producer.execute(ENQUEUE, [KEY, MESSAGE])
    before = rows(postgres_url, "SELECT * FROM outbox_deliveries")
    for forgery in FORGERIES:
        with pytest.raises((errors.InsufficientPrivilege, errors.ObjectNotInPrerequisiteState)):
            producer.execute(forgery.encode())
    assert rows(postgres_url, "SELECT * FROM outbox_deliveries") == before
    assert rows(postgres_url, "SELECT count(*) FROM outbox_evidence") == [(0,)]


def test_a_role_cannot_slip_its_own_tables_under_the_functions(
    producer: Producer, postgres_url: str
) -> None:
    """The functions run with their own search path, temporary tables last."""
    producer.execute("CREATE TEMP TABLE outbox_tombstones (key_hash text, delivery_id bigint)")
    producer.execute("CREATE TEMP TABLE outbox_deliveries (delivery_key text, message text)")
    producer.execute("SET search_path = pg_temp, public")
    assert producer.execute(
        "SELECT created FROM public.outbox_enqueue(%s, %s)", [KEY, MESSAGE]
    ).fetchone() == (True,)
    assert rows(postgres_url, "SELECT delivery_key FROM public.outbox_deliveries") == [(KEY,)]


@pytest.mark.parametrize(
    "call", ["outbox_enqueue('k', '{}')", "outbox_put_blob('')", "outbox_cancel('k')"]
)
def test_other_roles_may_not_call_the_functions(
    producer: Producer, role: str, postgres_url: str, call: str
) -> None:
    """Nobody may use the definer's rights without a grant."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        function = call.partition("(")[0]
        admin.execute(
            sql.SQL("REVOKE EXECUTE ON FUNCTION {} FROM {}").format(
                sql.Identifier(function), sql.Identifier(role)
            )
        )
    with pytest.raises(errors.InsufficientPrivilege):
        producer.execute(f"SELECT {call}".encode())
