"""Claims, marks, settles and the sweep on both databases: every write under its fence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

import outbox
from outbox import Email
from outbox.keys import key_hash, public_id
from outbox.records import Granted, Lane, Refused
from outbox.states import State
from outbox.store import accounts, claim, finish, gates, reads, sweep
from outbox.store import dispatchers as dispatchers_store
from providers.contract import Accepted, InDoubt, Rejected, Throttled, Unavailable
from tests.conformance.bench import LEASE, Bench, opened


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


# -- claim ------------------------------------------------------------------- #


def test_a_claim_takes_each_row_once(bench: Bench) -> None:
    """Two claims in turn never hold the same row."""
    ids = [bench.enqueue(f"k{i}") for i in range(5)]
    first, second = bench.claim("a", 3), bench.claim("b", 10)
    assert sorted([c.id for c in first] + [c.id for c in second]) == ids
    assert len(first) == 3


def test_claims_go_by_priority_then_age(bench: Bench) -> None:
    """Higher priority first; within one, whoever came first."""
    low, high, later = bench.enqueue("low"), bench.enqueue("high", priority=5), bench.enqueue("x")
    bench.sql("UPDATE outbox_deliveries SET due_at='2026-01-02T00:00:00.000Z' WHERE id=:i", i=low)
    bench.sql("UPDATE outbox_deliveries SET due_at='2026-01-01T00:00:00.000Z' WHERE id=:i", i=later)
    assert [c.id for c in bench.claim()] == [high, later, low]


def test_a_claim_fills_what_the_outside_sees(bench: Bench) -> None:
    """The public id is derived from the installation's namespace and the key."""
    id_ = bench.enqueue("invoice:7")
    [claimed] = bench.claim()
    namespace = bench.do(reads.namespace)
    assert claimed.public_id == public_id(namespace, "invoice:7") == bench.row(id_).public_id
    assert bench.row(id_).account == "main"


def test_the_sender_of_the_configuration_is_stored_at_the_first_claim(bench: Bench) -> None:
    """A later change of [defaults] changes no message that was claimed before."""
    bench.do(lambda c: outbox.enqueue(c, Email(to="a@example.org", text="x"), key="k"))
    lane = Lane("main", "memory", 1, takes_unnamed=True)

    def take(sender: str) -> str | None:
        [claimed] = bench.do(
            lambda c: claim.claim(
                c,
                [lane],
                owner="a",
                lease=LEASE,
                default_from=sender,
                namespace=reads.namespace(c),
            )
        )
        bench.settle(claimed, Unavailable("refused"))
        bench.due_now()
        return claimed.default_from

    assert take("first@example.com") == "first@example.com"
    assert take("second@example.com") == "first@example.com"


@pytest.mark.parametrize(
    "change",
    [
        "due_at = '2999-01-01T00:00:00.000Z'",
        "send_after = '2026-01-01T00:00:00.000Z', send_before = '2026-01-02T00:00:00.000Z'",
        "account = 'other'",
    ],
)
def test_a_claim_leaves_rows_that_are_not_its_own(bench: Bench, change: str) -> None:
    """Not due, past its ``send_before``, or another account's: not taken."""
    bench.enqueue()
    bench.sql(f"UPDATE outbox_deliveries SET {change}")
    assert bench.claim() == []


def test_the_first_claim_looks_into_the_tombstones(bench: Bench) -> None:
    """A11: a plain insert under a cleaned-up key ends ``cancelled``, never sent."""
    bench.sql(
        "INSERT INTO outbox_tombstones (key_hash, delivery_id, state, finished_at) "
        "VALUES (:hash, 1, 'accepted', '2026-01-01T00:00:00.000Z')",
        hash=key_hash("k"),
    )
    bench.sql(
        "INSERT INTO outbox_deliveries (delivery_key, message) VALUES ('k', :m)",
        m='{"from":"a@example.com","to":["b@example.org"],"text":"x"}',
    )
    assert bench.claim() == []
    [row] = bench.sql("SELECT state, reason FROM outbox_deliveries")
    assert (row.state, row.reason) == ("cancelled", "already_settled")


def test_rows_that_came_by_sql_get_their_recipients_at_the_first_claim(bench: Bench) -> None:
    """The plain contract needs nothing but key and message."""
    bench.sql(
        "INSERT INTO outbox_deliveries (delivery_key, message) VALUES ('k', :m)",
        m='{"from": "a@example.com", "to": ["B <b@example.org>"], "bcc": ["c@example.org"],'
        ' "text": "x"}',
    )
    [claimed] = bench.claim()
    assert [(r.kind, r.address) for r in claimed.recipients] == [
        ("to", "b@example.org"),
        ("bcc", "c@example.org"),
    ]
    assert bench.row(claimed.id).fingerprint.startswith("1:")


@pytest.mark.parametrize("message", ["{", '{"to": []}', '{"to": ["x@example.org"], "no": 1}', "7"])
def test_a_broken_row_fails_alone(bench: Bench, message: str) -> None:
    """Invariant 6: a row that breaks the schema ends with a reason; the others go on."""
    bench.sql("INSERT INTO outbox_deliveries (delivery_key, message) VALUES ('bad', :m)", m=message)
    good = bench.enqueue("good")
    assert [c.id for c in bench.claim()] == [good]
    [bad] = bench.sql("SELECT * FROM outbox_deliveries WHERE delivery_key = 'bad'")
    assert (bad.state, bad.reason) == ("failed", "invalid_message")
    assert bad.last_error


def test_statements_do_not_depend_on_the_number_of_rows(bench: Bench) -> None:
    """A claim of forty rows takes as many statements as a claim of two."""
    counts = []
    for number in (2, 40):
        for i in range(number):
            bench.enqueue(f"{number}:{i}")
        seen: list[str] = []
        event.listen(bench.engine, "before_cursor_execute", lambda *a, seen=seen: seen.append(a[2]))
        claimed = bench.claim(limit=number)
        counts.append(len(seen))
        assert len(claimed) == number
    assert counts[0] >= counts[1] - 0
    assert counts[1] <= 12


# -- the mark ---------------------------------------------------------------- #


def test_a_mark_lets_bytes_leave_and_extends_the_lease(bench: Bench) -> None:
    """The attempt is ``transmitting`` and the first transmission is remembered."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.sql("UPDATE outbox_deliveries SET lease_expires_at = '2099-01-01T00:00:00.000Z'")
    assert isinstance(bench.mark(claimed), Granted)
    row = bench.row(claimed.id)
    assert row.first_transmitted_at is not None
    assert str(row.lease_expires_at)[:4] != "2099"
    assert bench.attempts(claimed.id) == [("transmitting", None)]


def test_a_mark_needs_a_living_lease(bench: Bench) -> None:
    """A3: the token still matches after a lease has lapsed; the mark is refused all the same."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.lapse()
    assert bench.mark(claimed) == Refused("lease")
    assert bench.attempts(claimed.id) == [("claimed", None)]


def test_a_mark_needs_the_owner_and_the_token(bench: Bench) -> None:
    """Another owner, or an older token, marks nothing."""
    bench.enqueue()
    [first] = bench.claim("a")
    assert bench.mark(first, owner="b") == Refused("lease")
    bench.lapse()
    bench.sweep()
    [second] = bench.claim("a")
    assert second.token > first.token
    assert bench.mark(first, owner="a") == Refused("lease")
    assert isinstance(bench.mark(second, owner="a"), Granted)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("stop_requested = 'cancel'", "stopped"),
        ("stop_requested = 'hold'", "stopped"),
        (
            "send_after = '2026-01-01T00:00:00.000Z', send_before = '2026-01-02T00:00:00.000Z'",
            "too_late",
        ),
    ],
)
def test_a_mark_rechecks_what_may_have_changed(bench: Bench, change: str, reason: str) -> None:
    """A7, invariant 5: a stop that was asked for, or ``send_before``, refuses the mark."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.sql(f"UPDATE outbox_deliveries SET {change}")
    assert bench.mark(claimed) == Refused(reason)


def test_a_mark_done_twice_reads_its_own_result_back(bench: Bench) -> None:
    """B39: after a lost COMMIT the mark is found, with its first instant."""
    bench.enqueue()
    [claimed] = bench.claim()
    first = bench.mark(claimed)
    assert isinstance(first, Granted)
    assert bench.mark(claimed) == first


def test_renewal_needs_a_living_lease_of_ours(bench: Bench) -> None:
    """A lapsed or foreign lease is not renewed."""
    bench.enqueue()
    [claimed] = bench.claim()
    assert bench.renew(claimed)
    assert not bench.renew(claimed, owner="b")
    bench.lapse()
    assert not bench.renew(claimed)


# -- settle ------------------------------------------------------------------ #


def test_an_acceptance_is_written_with_its_id_and_tally(bench: Bench) -> None:
    """State, recipients, journal and counter change together."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.mark(claimed)
    assert bench.settle(claimed, Accepted("provider-1"))
    row = bench.row(claimed.id)
    assert (row.state, row.copies, row.lease_owner, row.claimed_from) == ("accepted", 1, None, None)
    assert row.finished_at is not None
    assert bench.attempts(claimed.id) == [("settled", "accepted")]
    [recipient] = bench.sql("SELECT * FROM outbox_recipients")
    assert (recipient.result, recipient.provider_message_id) == ("accepted", "provider-1")
    [tally] = bench.sql("SELECT * FROM outbox_tallies")
    assert (tally.labels, tally.value) == ("main accepted", 1)


def test_a_stale_worker_changes_no_state_and_its_answer_is_kept(bench: Bench) -> None:
    """Invariant 4: after its lease went to another, a result is evidence and nothing else."""
    bench.enqueue()
    [first] = bench.claim("a")
    bench.lapse()
    bench.sweep()
    [second] = bench.claim("b")
    assert not bench.settle(first, Unavailable("late"))
    row = bench.row(first.id)
    assert (row.state, row.lease_owner, row.lease_token) == ("sending", "b", second.token)
    assert bench.evidence(first.id) == [("answer", "not_taken")]


def test_late_proof_of_acceptance_stops_everything_else(bench: Bench) -> None:
    """Acceptance is monotone: the row is taken from whoever is working on it."""
    bench.enqueue()
    [first] = bench.claim("a")
    bench.mark(first, "a")
    bench.sql(
        "UPDATE outbox_deliveries SET state='pending', claimed_from=NULL, lease_owner=NULL, "
        "lease_expires_at=NULL"
    )
    [second] = bench.claim("b")
    assert not bench.settle(first, Accepted("late"))
    row = bench.row(first.id)
    assert (row.state, row.copies, row.lease_owner) == ("accepted", 1, None)
    assert bench.mark(second, "b") == Refused("lease")
    assert bench.evidence(first.id) == [("answer", "taken")]
    tallies = {r.labels: r.value for r in bench.sql("SELECT * FROM outbox_tallies")}
    assert tallies == {"main accepted": 1}


def test_a_second_acceptance_is_said_loudly(bench: Bench) -> None:
    """Two acceptances of one recipient from different attempts are counted, never silent."""
    bench.enqueue()
    [first] = bench.claim("a")
    bench.mark(first, "a")
    bench.lapse()
    bench.sweep()
    bench.sql("UPDATE outbox_deliveries SET state='pending'")
    bench.sql("UPDATE outbox_recipients SET result='pending'")
    [second] = bench.claim("b")
    bench.mark(second, "b")
    assert bench.settle(second, Accepted("two"))
    assert not bench.settle(first, Accepted("one"))
    assert bench.row(first.id).copies == 2
    tallies = {r.name: r.value for r in bench.sql("SELECT * FROM outbox_tallies")}
    assert tallies == {"deliveries_finished": 1, "second_acceptances": 1}


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired", "held", "unresolved"])
def test_late_proof_wins_over_any_end(bench: Bench, state: str) -> None:
    """Whatever was decided meanwhile, proof that it was taken makes it accepted."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.mark(claimed)
    bench.lapse()
    bench.sweep()
    reasons = {"failed": "'rejected'", "cancelled": "'operator'", "held": "'no_evidence'"}
    held = state == "held"
    bench.sql(
        f"UPDATE outbox_deliveries SET state = :state, reason = {reasons.get(state, 'NULL')}, "
        f"held_from = {chr(39) + 'in_doubt' + chr(39) if held else 'NULL'}, "
        f"finished_at = {'NULL' if held else 'updated_at'}",
        state=state,
    )
    bench.settle(claimed, Accepted("it was there"))
    row = bench.row(claimed.id)
    assert (row.state, row.reason, row.held_from) == ("accepted", None, None)
    assert row.finished_at is not None


def test_a_late_answer_after_the_sweep_is_evidence(bench: Bench) -> None:
    """Recovery closed the attempt as ``lost``; what its owner then says is kept beside it."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.mark(claimed)
    bench.lapse()
    assert bench.sweep() == 1
    assert not bench.settle(claimed, Rejected("no such mailbox", "550"))
    assert bench.row(claimed.id).state == "in_doubt"
    assert bench.attempts(claimed.id) == [("settled", "lost")]
    assert bench.evidence(claimed.id) == [("answer", "not_taken")]


def test_the_fence_names_the_owner_as_well_as_the_token(bench: Bench) -> None:
    """C19: after a restore tokens repeat, owners do not."""
    bench.enqueue()
    [claimed] = bench.claim("a")
    bench.sql("UPDATE outbox_deliveries SET lease_owner = 'b'")
    assert not bench.settle(claimed, Unavailable("x"))
    assert bench.row(claimed.id).state == "sending"


def test_a_settle_done_twice_is_a_success(bench: Bench) -> None:
    """B39: a settle that finds its own result changes nothing and counts once."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.mark(claimed)
    assert bench.settle(claimed, Accepted("x"))
    assert bench.settle(claimed, Accepted("x"))
    assert bench.evidence(claimed.id) == []
    [tally] = bench.sql("SELECT * FROM outbox_tallies")
    assert tally.value == 1


def test_doubt_is_in_the_state_and_is_not_claimed_again(bench: Bench) -> None:
    """A row in doubt is never sent again by a claim."""
    bench.enqueue()
    [claimed] = bench.claim()
    bench.mark(claimed)
    bench.settle(claimed, InDoubt("no reply after DATA"))
    bench.due_now()
    assert bench.row(claimed.id).state == "in_doubt"
    assert bench.claim() == []


def test_the_database_refuses_a_half_right_update(bench: Bench) -> None:
    """The closed lists and the states are CHECKs too."""
    id_ = bench.enqueue()
    for change in (
        "state = 'sent'",
        "state = 'accepted'",
        "state = 'failed', reason = 'because', finished_at = created_at",
        "state = 'held'",
        "state = 'sending'",
        "reason = 'rejected'",
    ):
        with pytest.raises(IntegrityError):
            bench.sql(f"UPDATE outbox_deliveries SET {change} WHERE id = :id", id=id_)


# -- pauses ------------------------------------------------------------------ #


def test_a_throttled_account_is_paused_for_everybody(bench: Bench) -> None:
    """The pause is in the database with reason and instant; the longer one stays."""
    bench.enqueue("a")
    bench.enqueue("b")
    first, second = bench.claim()
    bench.settle(first, Throttled(600.0, "slow down"))
    bench.settle(second, Throttled(60.0, "slow down"))
    gate = bench.do(lambda c: gates.gates(c, ["main"], at=reads.database_now(c)))["main"]
    assert gate.most == 0
    [row] = bench.sql("SELECT * FROM outbox_accounts")
    assert (row.pause_reason, row.pause_detail, row.failures) == ("throttled", "slow down", 1)
    assert row.paused_until > bench.row(first.id).updated_at


def test_ended_pauses_add_up() -> None:
    """The window's stand-still is the sum of pauses, each only up to now."""
    start = datetime(2026, 11, 29, tzinfo=UTC)
    until = start + timedelta(seconds=90)
    assert accounts.paused_seconds(10.0, start, until, start + timedelta(seconds=30)) == 40.0
    assert accounts.paused_seconds(10.0, start, until, start + timedelta(days=1)) == 100.0
    assert accounts.paused_seconds(10.0, None, None, start) == 10.0


# -- the sweep --------------------------------------------------------------- #


def test_a_lapsed_claim_goes_back(bench: Bench) -> None:
    """B29: killed before the mark: taken again, with a higher token, nothing in doubt."""
    bench.enqueue()
    [first] = bench.claim("a")
    bench.lapse()
    assert bench.sweep() == 1
    row = bench.row(first.id)
    assert (row.state, row.crashes, row.attempts) == ("pending", 1, 0)
    [second] = bench.claim("b")
    assert (second.attempt, second.token) == (2, first.token + 1)
    assert bench.attempts(first.id) == [("settled", "not_started"), ("claimed", None)]


def test_a_living_lease_is_left_alone(bench: Bench) -> None:
    """The sweep takes nothing from an owner whose lease still runs."""
    bench.enqueue()
    bench.claim("a")
    assert bench.sweep() == 0


def test_overdue_rows_expire_without_a_claim(bench: Bench) -> None:
    """C4: past ``send_before`` a row expires, also when nobody could claim it."""
    id_ = bench.enqueue(account="paused")
    bench.sql(
        "UPDATE outbox_deliveries SET send_after = '2026-01-01T00:00:00.000Z', "
        "send_before = '2026-01-02T00:00:00.000Z'"
    )
    from dispatcher import endings

    assert bench.do(lambda c: sweep.anything(c, ["main", "paused"]))
    bench.do(
        lambda c: finish.finish(
            c, [endings.overdue(row) for row in sweep.overdue(c)], at=reads.database_now(c)
        )
    )
    assert bench.row(id_).state == "expired"
    assert not bench.do(lambda c: sweep.anything(c, ["main", "paused"]))


def test_an_account_nobody_knows_holds_its_rows(bench: Bench) -> None:
    """Rows of an account that another dispatcher has published are left to that one."""
    bench.enqueue("typo", account="tpyo")
    bench.enqueue("elsewhere", account="elsewhere")
    bench.do(lambda c: accounts.publish(c, [("elsewhere", "smtp", "smtp:x", {})]))
    found = bench.do(lambda c: sweep.unclaimable(c, ["main"]))
    assert [row.account for row in found] == ["tpyo"]


def test_the_backlog_is_read_from_the_tables(bench: Bench) -> None:
    """Due, sending and waiting rows are told apart; a paused account's rows wait."""
    for key in ("a", "b", "c"):
        bench.enqueue(key)
    bench.enqueue("later", send_after=datetime(2999, 1, 1, tzinfo=UTC))
    first, _second = bench.claim(limit=2)
    left = bench.do(lambda c: dispatchers_store.backlog(c, ["main"]))
    assert (left.due, left.sending, left.waiting) == (1, 2, 1)
    bench.settle(first, Throttled(600.0))
    left = bench.do(lambda c: dispatchers_store.backlog(c, ["main"]))
    assert left.sending == 1
    assert left.due + left.waiting == 3


def test_finishing_names_the_state(bench: Bench) -> None:
    """A row that was claimed meanwhile is not ended under its sender."""
    from outbox.records import Ending

    id_ = bench.enqueue()
    bench.claim()
    ending = Ending(id_, "main", State.EXPIRED, None)
    ended = bench.do(lambda c: finish.finish(c, [ending], at=reads.database_now(c)))
    assert ended == 0
    assert bench.row(id_).state == "sending"


def test_the_due_index_is_used(bench: Bench) -> None:
    """The claim's plan on PostgreSQL is a scan of the partial index, not of the table."""
    if bench.engine.dialect.name != "postgresql":
        return
    with bench.engine.connect() as connection:
        connection.execute(text("SET enable_seqscan = off"))
        plan = connection.execute(
            text(
                "EXPLAIN SELECT id FROM outbox_deliveries WHERE account = 'main' "
                "AND state = 'pending' AND due_at <= (SELECT outbox_now()) "
                "ORDER BY priority DESC, due_at, id LIMIT 10"
            )
        ).scalars()
        assert any("ix_outbox_deliveries_due" in line for line in plan)
