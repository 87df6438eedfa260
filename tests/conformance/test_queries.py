"""Reading for people, on both databases: lists, stories and the overview are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, Engine

from outbox import schema
from outbox.database import open_engine, reading
from outbox.keys import key_hash
from outbox.migrations import HEAD
from outbox.reports import Filter, PendingGroup
from outbox.states import (
    AttemptOutcome,
    EvidenceKind,
    PauseReason,
    Phase,
    RecipientResult,
    State,
    Verdict,
    WhenUnsure,
)
from outbox.store import overview, queries, stories
from tests.rows import (
    add_account,
    add_attempt,
    add_delivery,
    add_dispatcher,
    add_evidence,
    instant,
)

T = TypeVar("T")
PUBLIC = "5f0c7c1e-2b3d-5e4f-8a9b-0c1d2e3f4a5b"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = open_engine(database_url)
    yield made
    made.dispose()


def write(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)


def read(engine: Engine, work: Callable[[Connection], T]) -> T:
    with reading(engine) as connection:
        return work(connection)


def found(engine: Engine, **wanted: Any) -> list[str]:
    rows = read(engine, lambda c: queries.deliveries(c, Filter(**wanted), limit=50))
    return [row.key for row in rows]


# -- lists --------------------------------------------------------------------- #


def test_pages_go_by_id_and_meet_without_a_gap(engine: Engine) -> None:
    """Newest first; each page begins below the last id of the one before, whatever changed."""
    ids = write(engine, lambda c: [add_delivery(c, f"k{i}") for i in range(5)])
    pages: list[list[int]] = []
    for before in (None, ids[3], ids[1]):
        page = read(engine, partial(queries.deliveries, wanted=Filter(), limit=2, before=before))
        pages.append([row.id for row in page])
        write(engine, partial(add_delivery, key=f"new after {len(pages)} pages"))
    assert pages == [ids[:2:-1], ids[2:0:-1], ids[:1]]


def test_each_filter_finds_its_rows(engine: Engine) -> None:
    """State, account, key, address, reason, tag, tenant, run and time, alone and together."""

    def rows(connection: Connection) -> None:
        add_delivery(connection, "plain")
        add_delivery(connection, "held", state=State.HELD, account="bulk")
        add_delivery(
            connection,
            "invoice:7_%:owner",
            tags='["month end", "ä"]',
            tenant="acme",
            run_key="audit:1",
            to=[("to", "ana@example.org"), ("bcc", "Ben@EXAMPLE.net")],
        )
        add_delivery(connection, "unnamed", account="", updated_at=instant(-7200))

    write(engine, rows)
    assert found(engine) == ["unnamed", "invoice:7_%:owner", "held", "plain"]
    assert found(engine, states=(State.HELD, State.SENDING)) == ["held"]
    assert found(engine, accounts=("main",)) == ["invoice:7_%:owner", "plain"]
    assert found(engine, accounts=("main", "")) == ["unnamed", "invoice:7_%:owner", "plain"]
    assert found(engine, to="Ben@example.NET") == ["invoice:7_%:owner"]
    assert found(engine, to="nobody@example.net") == []
    assert found(engine, reason="no_evidence") == ["held"]
    assert found(engine, tag="month end") == ["invoice:7_%:owner"]
    assert found(engine, tag="ä") == ["invoice:7_%:owner"]
    assert found(engine, tag="month") == []
    assert found(engine, tenant="acme") == ["invoice:7_%:owner"]
    assert found(engine, run_key="audit:1") == ["invoice:7_%:owner"]
    assert found(engine, changed_since=instant(-3600), accounts=("main", "")) == [
        "invoice:7_%:owner",
        "plain",
    ]
    assert found(engine, tenant="acme", states=(State.HELD,)) == []


@pytest.mark.parametrize(
    ("prefix", "keys"),
    [("a", ["ab", "a_"]), ("A", ["AB"]), ("a_", ["a_"]), ("%", []), ("ab", ["ab"])],
)
def test_a_key_prefix_is_taken_literally(engine: Engine, prefix: str, keys: list[str]) -> None:
    """Case counts, and what LIKE would take for wildcards are characters of a key."""
    write(engine, lambda c: [add_delivery(c, key) for key in ("a_", "AB", "ab")])
    assert found(engine, key_prefix=prefix) == keys


def test_groups_count_by_account_state_and_reason(engine: Engine) -> None:
    """4,000 rows, two causes: one line for each, the most first, with the oldest."""
    old = instant(-600)

    def rows(connection: Connection) -> None:
        for i in range(3):
            add_delivery(connection, f"h{i}", state=State.HELD)
        add_delivery(connection, "h3", state=State.HELD, reason="operator", updated_at=old)
        add_delivery(connection, "p")

    write(engine, rows)
    [first, second] = read(engine, lambda c: queries.groups(c, Filter(states=(State.HELD,))))
    assert (first.account, first.state, first.reason, first.rows) == (
        "main",
        State.HELD,
        "no_evidence",
        3,
    )
    assert (second.reason, second.rows, second.oldest) == ("operator", 1, old)


# -- one delivery --------------------------------------------------------------- #


def test_a_delivery_is_found_by_each_of_its_names(engine: Engine) -> None:
    """Key, id, public id, Message-ID, and the provider's id from wherever it is known."""

    def rows(connection: Connection) -> list[int]:
        first = add_delivery(
            connection,
            "invoice:7",
            state=State.ACCEPTED,
            public_id=PUBLIC,
            results=[{"provider_message_id": "<4Zk1@relay>"}],
        )
        second = add_delivery(connection, "invoice:8")
        add_attempt(connection, second, 1, outcome="accepted", provider_message_id="batch-1")
        third = add_delivery(connection, str(first))
        add_evidence(connection, third, provider_message_id="batch-1")
        return [first, second, third]

    first, second, third = write(engine, rows)

    def ids(reference: str) -> list[int]:
        return read(engine, lambda c: queries.matching(c, reference))

    assert ids("invoice:7") == [first]
    assert ids(str(second)) == [second]
    assert ids(str(first)) == [third], "a key wins over an id"
    assert ids(PUBLIC) == ids(PUBLIC.upper()) == [first]
    assert ids(f"<{PUBLIC}@example.com>") == [first]
    assert ids("4Zk1@relay") == ids("<4Zk1@relay>") == [first]
    assert ids("batch-1") == [third, second]
    assert ids("nothing") == ids("9" * 30) == []


def test_a_story_holds_everything(engine: Engine) -> None:
    """Recipients, attempts in order with the process that made them, and evidence."""

    def rows(connection: Connection) -> int:
        add_dispatcher(connection)
        id_ = add_delivery(
            connection,
            "invoice:7",
            state=State.HELD,
            public_id=PUBLIC,
            when_unsure="hold",
            default_from="r@example.com",
            last_error="lost",
            attempts=1,
            to=[("to", "ana@example.org"), ("bcc", "ben@example.org")],
            results=[{"code": "550", "reason": "no"}, {"delivery_status": "bounced"}],
        )
        add_attempt(
            connection,
            id_,
            1,
            outcome="unavailable",
            outcome_reason="refused",
            retry_at=instant(5),
            owner="mail-1:4711:ab12",
        )
        add_attempt(
            connection, id_, 2, transmitting_at=instant(), recipients="[0, 1]", owner="gone"
        )
        add_evidence(connection, id_, attempt=2, recipient=1, detail="late", seen_at=instant())
        return id_

    id_ = write(engine, rows)
    story = read(engine, lambda c: stories.story(c, id_))
    assert story is not None
    assert (story.summary.key, story.summary.claims, story.summary.counted_attempts) == (
        "invoice:7",
        2,
        1,
    )
    assert (story.held_from, story.when_unsure) == (State.IN_DOUBT, WhenUnsure.HOLD)
    assert story.public_id == PUBLIC
    assert [r.address for r in story.recipients] == ["ana@example.org", "ben@example.org"]
    assert (story.recipients[0].code, story.recipients[0].reason) == ("550", "no")
    first, second = story.attempts
    assert (first.outcome, first.reason) == (AttemptOutcome.UNAVAILABLE, "refused")
    assert (first.by, second.by) == ("mail-1:4711", "gone")
    assert (second.phase, second.outcome) == (Phase.TRANSMITTING, None)
    assert second.recipients == (0, 1)
    [fact] = story.evidence
    assert (fact.kind, fact.verdict, fact.attempt, fact.detail) == (
        EvidenceKind.ANSWER,
        Verdict.TAKEN,
        2,
        "late",
    )
    assert read(engine, lambda c: stories.story(c, id_ + 1)) is None


def test_a_cleaned_up_delivery_leaves_its_end(engine: Engine) -> None:
    """A key whose row is gone still says how it ended and when."""
    ended = instant(-86400)
    row = {"key_hash": key_hash("old"), "delivery_id": 3, "state": "accepted", "finished_at": ended}
    write(engine, lambda c: c.execute(schema.tombstones.insert().values(row)))
    left = read(engine, lambda c: stories.buried(c, "old"))
    assert left is not None
    assert (left.id, left.state, left.finished_at) == (3, State.ACCEPTED, ended)
    assert read(engine, lambda c: stories.buried(c, "other")) is None


# -- the overview ----------------------------------------------------------------- #


def test_an_empty_outbox_has_an_overview(engine: Engine) -> None:
    """Nothing there is no error, and the server and schema are named."""
    seen = read(engine, overview.overview)
    assert (seen.revision, seen.pending, seen.open, seen.latencies) == (HEAD, (), (), ())
    assert seen.server.split()[0] in {"sqlite", "postgresql"}
    assert abs(seen.at - instant()) < timedelta(minutes=5)


def test_pending_rows_are_counted_by_what_they_wait_for(engine: Engine) -> None:
    """Account, due or not, claimed before or not: the facts that waiting_for is made of."""
    later, before = instant(600), instant(-600)

    def rows(connection: Connection) -> None:
        add_delivery(connection, "due", send_after=before, due_at=before)
        add_delivery(connection, "due too", send_after=before, due_at=instant(-60))
        add_delivery(connection, "scheduled", send_after=later, due_at=later)
        retried = add_delivery(connection, "retried", due_at=later)
        add_attempt(connection, retried, 1, outcome="unavailable")
        add_delivery(connection, "unnamed", account="", send_after=before, due_at=before)
        add_delivery(connection, "accepted", state=State.ACCEPTED)

    write(engine, rows)
    seen = read(engine, overview.overview)
    assert set(seen.pending) == {
        PendingGroup("main", due=True, attempted=False, rows=2, oldest=before),
        PendingGroup("main", due=False, attempted=False, rows=1, oldest=later),
        PendingGroup("main", due=False, attempted=True, rows=1, oldest=later),
        PendingGroup("", due=True, attempted=False, rows=1, oldest=before),
    }


def test_open_rows_accounts_and_dispatchers_are_seen(engine: Engine) -> None:
    """What is being sent, in doubt and held; who is paused and why; who is alive."""

    def rows(connection: Connection) -> None:
        add_delivery(connection, "s", state=State.SENDING)
        add_delivery(connection, "d", state=State.IN_DOUBT)
        add_delivery(connection, "h1", state=State.HELD)
        add_delivery(connection, "h2", state=State.HELD)
        add_account(connection, pause_reason="quota", pause_detail="daily limit")
        add_account(connection, "calm")
        add_dispatcher(connection)

    write(engine, rows)
    seen = read(engine, overview.overview)
    assert [(group.state, group.reason, group.rows) for group in seen.open] == [
        (State.HELD, "no_evidence", 2),
        (State.IN_DOUBT, None, 1),
        (State.SENDING, None, 1),
    ]
    calm, paused = seen.accounts
    assert (calm.account, calm.pause_reason) == ("calm", None)
    assert (paused.pause_reason, paused.pause_detail) == (PauseReason.QUOTA, "daily limit")
    [alive] = seen.dispatchers
    assert (alive.host, alive.pid, alive.slots, alive.slots_used) == ("mail-1", 4711, 100, 4)


def test_the_last_hour_is_counted_with_its_latencies(engine: Engine) -> None:
    """From due to accepted: a scheduled delivery's wait begins with its time, an hour ago is over."""

    def rows(connection: Connection) -> None:
        ended = instant(-60)
        for key, waited in (("quick", 1), ("slow", 10)):
            add_delivery(
                connection,
                key,
                state=State.ACCEPTED,
                created_at=instant(-5000),
                send_after=ended - timedelta(seconds=waited),
                finished_at=ended,
            )
        add_delivery(connection, "old", state=State.ACCEPTED, finished_at=instant(-4000))
        add_delivery(connection, "failed", state=State.FAILED)

    write(engine, rows)
    seen = read(engine, overview.overview)
    assert seen.finished == {State.ACCEPTED: 2, State.FAILED: 1}
    assert sorted(seen.latencies) == [1.0, 10.0]


def test_reading_waits_for_no_writer(sqlite_url: str) -> None:
    """Status answers while somebody holds SQLite's write lock."""
    engine = open_engine(sqlite_url)
    with engine.begin() as writer:
        add_delivery(writer, "uncommitted")
        assert read(engine, overview.overview).pending == ()
    assert read(engine, overview.overview).pending[0].rows == 1
    engine.dispose()


def test_recipients_keep_their_results(engine: Engine) -> None:
    """A list shows each address's own result."""
    people = [("to", "ana@example.org"), ("cc", "ben@example.org")]
    results = [{"result": "accepted"}, {"result": "failed"}]
    write(engine, lambda c: add_delivery(c, "k", to=people, results=results))
    [row] = read(engine, lambda c: queries.deliveries(c, Filter(), limit=1))
    assert [r.result for r in row.recipients] == [RecipientResult.ACCEPTED, RecipientResult.FAILED]
