"""Stopping a delivery: certain, requested, or too late; from Python and by SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text

import outbox
from outbox.keys import key_hash
from outbox.states import State
from tests.conformance.ledger import change, engine_at, one_mail, rows

KEY = "invoice:7:owner"
AT = "'2026-01-01T00:00:00.000Z'"

Cancel = Callable[[Connection, str], Any]


def _by_python(connection: Connection, key: str) -> Any:
    match outbox.cancel(connection, key):
        case outbox.Cancelled():
            return "cancelled"
        case outbox.Requested():
            return "requested"
        case outbox.TooLate(state=state):
            return state if state is None else state.value


def _by_sql(connection: Connection, key: str) -> Any:
    return connection.execute(text("SELECT outbox_cancel(:key)"), {"key": key}).scalar_one()


@pytest.fixture(
    params=[
        pytest.param(("sqlite_url", _by_python), id="sqlite-python"),
        pytest.param(("postgres_url", _by_python), id="python", marks=pytest.mark.postgres),
        pytest.param(("postgres_url", _by_sql), id="sql", marks=pytest.mark.postgres),
    ]
)
def way(request: pytest.FixtureRequest) -> tuple[str, Cancel]:
    """A database with one pending delivery to two addresses, and a way to cancel."""
    name, cancel = request.param
    url = request.getfixturevalue(name)
    two = outbox.Email(to=["ana@example.org", "bo@example.org"], text="Hello")
    one_mail(url, KEY, message=two, account="main")
    return url, cancel


@pytest.fixture
def cancelled(way: tuple[str, Cancel]) -> Iterator[Callable[..., Any]]:
    """Run SQL that makes the row what the test needs, then cancel it and commit."""
    url, cancel = way
    with engine_at(url) as engine:

        def act(*before: str, key: str = KEY) -> Any:
            change(url, *before)
            with engine.begin() as connection:
                return cancel(connection, key)

        yield act


def _row(url: str) -> Any:
    [row] = rows(url, "SELECT state, reason, stop_requested, held_from FROM outbox_deliveries")
    people = rows(url, "SELECT result FROM outbox_recipients ORDER BY position")
    tallies = rows(url, "SELECT labels, value FROM outbox_tallies ORDER BY labels")
    return *row, [p[0] for p in people], dict(tallies)


SENDING = (
    "UPDATE outbox_deliveries SET state = 'sending', claimed_from = 'pending', "
    f"lease_owner = 'me', lease_expires_at = {AT}"
)


def test_a_pending_one_is_stopped_for_certain(
    way: tuple[str, Cancel], cancelled: Callable[..., Any]
) -> None:
    """Row, recipients and tally change together; a second cancel says the same."""
    assert cancelled() == "cancelled"
    expected = (
        "cancelled",
        "producer",
        None,
        None,
        ["cancelled", "cancelled"],
        {"main cancelled": 1},
    )
    assert _row(way[0]) == expected
    assert cancelled() == "cancelled"
    assert _row(way[0]) == expected


def test_one_in_flight_is_asked_to_stop(
    way: tuple[str, Cancel], cancelled: Callable[..., Any]
) -> None:
    """A row that is being sent keeps its state and carries the request, over an earlier hold."""
    assert cancelled(SENDING, "UPDATE outbox_deliveries SET stop_requested = 'hold'") == "requested"
    assert _row(way[0]) == ("sending", None, "cancel", None, ["pending", "pending"], {})


def test_a_held_one_without_doubt_is_stopped(
    way: tuple[str, Cancel], cancelled: Callable[..., Any]
) -> None:
    """Held from ``pending`` nothing has left, so it ends cancelled."""
    held = "UPDATE outbox_deliveries SET state = 'held', held_from = 'pending', reason = 'operator'"
    assert cancelled(held, "UPDATE outbox_recipients SET result = 'held'") == "cancelled"
    assert _row(way[0])[:2] == ("cancelled", "producer")


LATE = {
    "state = 'in_doubt'": "in_doubt",
    "state = 'held', held_from = 'in_doubt', reason = 'no_evidence'": "held",
    f"state = 'accepted', held_from = NULL, reason = NULL, finished_at = {AT}": "accepted",
    f"state = 'failed', reason = 'rejected', finished_at = {AT}": "failed",
    f"state = 'expired', reason = NULL, finished_at = {AT}": "expired",
    f"state = 'unresolved', finished_at = {AT}": "unresolved",
}


def test_too_late_changes_nothing(way: tuple[str, Cancel], cancelled: Callable[..., Any]) -> None:
    """In doubt or at its end a delivery is left as it is, down to the time of its last change."""
    for statement, answer in LATE.items():
        change(way[0], f"UPDATE outbox_deliveries SET {statement}")
        before = rows(way[0], "SELECT * FROM outbox_deliveries")
        assert cancelled() == answer
        assert rows(way[0], "SELECT * FROM outbox_deliveries") == before
    assert rows(way[0], "SELECT labels FROM outbox_tallies") == []


@pytest.mark.parametrize(
    ("first", "answer", "reason"),
    [("accepted", "accepted", None), ("failed", "failed", "rejected")],
)
def test_what_is_settled_for_an_address_counts(
    way: tuple[str, Cancel], cancelled: Callable[..., Any], first: str, answer: str, reason: str
) -> None:
    """With one address settled before, the rest is cancelled and the state folds over both."""
    settled = f"UPDATE outbox_recipients SET result = '{first}' WHERE position = 0"
    assert cancelled(settled) == answer
    state = answer, reason, None, None
    assert _row(way[0]) == (*state, [first, "cancelled"], {f"main {answer}": 1})


def test_a_tombstoned_key_says_how_it_ended(cancelled: Callable[..., Any]) -> None:
    """A key that was cleaned up is too late, with its final state; an unknown one is unknown."""
    tombstone = (
        "INSERT INTO outbox_tombstones (key_hash, delivery_id, state, finished_at) "
        f"VALUES ('{key_hash('old')}', 1, 'accepted', {AT})"
    )
    assert cancelled(tombstone, key="old") == "accepted"
    assert cancelled(key="unknown") is None


def test_a_row_without_recipients_can_be_stopped(
    way: tuple[str, Cancel], cancelled: Callable[..., Any]
) -> None:
    """A row that came by SQL and was never claimed has none yet."""
    assert cancelled("DELETE FROM outbox_recipients") == "cancelled"
    assert _row(way[0])[:2] == ("cancelled", "producer")


def test_a_cancelled_key_stays_known(
    way: tuple[str, Cancel], cancelled: Callable[..., Any]
) -> None:
    """The same message under the key of a cancelled delivery is not sent after all."""
    cancelled()
    two = outbox.Email(to=["ana@example.org", "bo@example.org"], text="Hello")
    again = one_mail(way[0], KEY, message=two)
    assert (again.created, again.state) == (False, State.CANCELLED)
