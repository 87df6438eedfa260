"""``send-again``: a second delivery of its own, and a first that stays closed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from dispatcher.verb_subjects import Act
from dispatcher.verbs import Why
from outbox import Attachment, Email, enqueue
from outbox.keys import key_hash
from outbox.reports import Filter
from outbox.states import State
from providers.contract import Accepted, Rejected, Result
from providers.memory import MemoryProvider
from tests.conformance.bench import Bench, opened
from tests.conformance.desk import Desk, done
from tests.conformance.runs import drain
from tests.conformance.test_operator_verbs import over

ACCEPTED = Filter(states=(State.ACCEPTED,))


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with opened(database_url) as made:
        yield made


@pytest.fixture
def desk(bench: Bench, database_url: str) -> Desk:
    return Desk(bench, database_url, "resend")


def test_a_held_first_is_closed_in_the_same_write(desk: Desk) -> None:
    """N2: K is unresolved, K~2 is pending, and they are linked both ways."""
    desk.doubt()
    desk.act(Act.HOLD, "k")
    over(desk)
    report = desk.act(Act.SEND_AGAIN, "k")
    assert [(made.key, made.of) for made in report.made] == [("k~2", 1)]
    assert report.risk == "ana@example.org may get a second copy."
    assert desk.states() == {"k": "unresolved", "k~2": "pending"}
    first, second = desk.bench.row(1), desk.bench.row(report.made[0].id)
    assert (first.superseded_by, second.resend_of) == (second.id, first.id)
    assert desk.bench.evidence(1) == [("operator", "unknown")]
    [entry] = [e for e in desk.audit() if e.action == "send-again"]
    assert (entry.subject, json.loads(entry.after)) == (
        "k",
        {"state": "unresolved", "sent_again_as": "k~2"},
    )


def test_the_second_is_a_message_of_its_own(desk: Desk) -> None:
    """A5: another key, another correlation and another Message-ID; the same content, attached files too."""
    files = [Attachment("a.bin", bytes(range(256)) * 20)]
    mail = Email(
        to="ana@example.org",
        cc="bo@example.org",
        from_="R <r@example.com>",
        text="x",
        attachments=files,
    )
    desk.bench.do(lambda c: enqueue(c, mail, key="k", account="main", tenant="t", priority=7))
    provider = MemoryProvider()
    drain(desk.url, {"main": provider})
    assert done(desk.act(Act.SEND_AGAIN, "k")) == 1
    second = desk.bench.row(2)
    assert (second.tenant, second.priority, second.account) == ("t", 7, "main")
    drain(desk.url, {"main": provider})
    one, two = provider.sent
    assert one.correlation != two.correlation
    assert one.idempotency_key != two.idempotency_key
    assert one.message_id != two.message_id
    assert two.date > one.date
    assert two.attachments == one.attachments
    links = desk.bench.sql("SELECT delivery_id, sha256 FROM outbox_delivery_blobs ORDER BY 1")
    assert [link.delivery_id for link in links] == [1, 2]
    assert (one.subject, one.text, one.to, one.recipients) == (
        two.subject, two.text, two.to, two.recipients,
    )  # fmt: skip
    assert desk.states() == {"k": "accepted", "k~2": "accepted"}


def test_a_second_time_is_refused_and_names_the_second(desk: Desk) -> None:
    """A double click sends one second copy; who wants a third says so of the second."""
    desk.bench.enqueue()
    drain(desk.url, {"main": MemoryProvider()})
    assert done(desk.act(Act.SEND_AGAIN, "k")) == 1
    [group] = desk.act(Act.SEND_AGAIN, "k").groups
    assert (group.why, group.instead) == (Why.SENT_AGAIN, ("send-again k~2",))
    drain(desk.url, {"main": MemoryProvider()})
    [made] = desk.act(Act.SEND_AGAIN, "k~2").made
    assert made.key == "k~3"


def test_a_first_that_is_right_after_all_stays_closed(desk: Desk) -> None:
    """N2: whoever says later, rightly, that the first was never taken does not send it, too."""
    desk.doubt()
    desk.act(Act.HOLD, "k")
    over(desk)
    desk.act(Act.SEND_AGAIN, "k")
    for act in (Act.SETTLE_NOT_ACCEPTED, Act.RETRY, Act.RELEASE):
        assert done(desk.act(act, "k")) == 0
        assert done(desk.act(act, Filter(states=(State.HELD, State.UNRESOLVED)))) == 0
    provider = MemoryProvider()
    drain(desk.url, {"main": provider})
    assert len(provider.sent) == 1


def test_four_at_once_make_one_second(desk: Desk) -> None:
    """Several operators at once: one second delivery, and one only."""
    desk.bench.enqueue()
    drain(desk.url, {"main": MemoryProvider()})
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: desk.act(Act.SEND_AGAIN, "k"), range(4)))
    assert sum(map(done, reports)) == 1
    assert sorted(desk.states()) == ["k", "k~2"]


def test_a_filter_does_not_meet_its_own_second_sendings(desk: Desk) -> None:
    """Second sendings of a whole group: each delivery once, however the group grows meanwhile."""
    for i in range(5):
        desk.bench.enqueue(f"k{i}")
    drain(desk.url, {"main": MemoryProvider()})
    report = desk.act(Act.SEND_AGAIN, ACCEPTED)
    assert (done(report), len(report.made)) == (5, 5)
    assert report.risk == "ana@example.org may get 5 second copies in all."
    assert done(desk.act(Act.SEND_AGAIN, ACCEPTED)) == 0


def test_only_who_does_not_have_it_gets_it(desk: Desk) -> None:
    """Two of three have it: the second sending goes to the third, and no second copy is possible."""
    desk.bench.enqueue(to=["a@example.org", "b@example.org", "c@example.org"])
    partly = Result(Accepted("1"), recipients={"b@example.org": Rejected("no", "550")})
    drain(desk.url, {"main": MemoryProvider(script=[partly])})
    report = desk.act(Act.SEND_AGAIN, "k")
    assert report.risk == ""
    provider = MemoryProvider()
    drain(desk.url, {"main": provider})
    assert provider.sent[0].recipients == ("b@example.org",)
    assert len(provider.sent[0].to) == 3


def test_numbers_that_are_taken_are_skipped(desk: Desk) -> None:
    """A second sending that was cleaned up left a tombstone: its number is never used again."""
    desk.bench.enqueue()
    drain(desk.url, {"main": MemoryProvider()})
    desk.bench.sql(
        "INSERT INTO outbox_tombstones (key_hash, delivery_id, state, finished_at) "
        "VALUES (:hash, 99, 'accepted', '2026-01-01T00:00:00.000Z')",
        hash=key_hash("k~2"),
    )
    [made] = desk.act(Act.SEND_AGAIN, "k").made
    assert made.key == "k~3"
    drain(desk.url, {"main": MemoryProvider()})
    assert desk.states()["k~3"] == "accepted"


def test_by_another_account_and_until_another_time(desk: Desk) -> None:
    """--by and --send-before belong to the second sending; the first keeps what it had."""
    desk.bench.enqueue(account="main")
    drain(desk.url, {"main": MemoryProvider()})
    end = datetime(2999, 1, 1, tzinfo=UTC)
    desk.act(Act.SEND_AGAIN, "k", account="backup", send_before=end)
    ends = desk.bench.sql("SELECT account, send_before FROM outbox_deliveries ORDER BY id")
    assert [row.account for row in ends] == ["main", "backup"]
    assert [row.send_before is None for row in ends] == [True, False]


def test_late_proof_of_the_first_says_nothing_of_the_second(desk: Desk) -> None:
    """A5: the first is accepted by its own late answer; the second is sent all the same."""
    desk.bench.enqueue()
    [claimed] = desk.bench.claim()
    desk.bench.mark(claimed)
    desk.bench.lapse()
    desk.bench.sweep()
    desk.act(Act.HOLD, "k")
    over(desk)
    assert done(desk.act(Act.SEND_AGAIN, "k")) == 1
    desk.bench.settle(claimed, Accepted("late"))
    assert desk.states() == {"k": "accepted", "k~2": "pending"}
    provider = MemoryProvider()
    drain(desk.url, {"main": provider})
    assert len(provider.sent) == 1
    assert desk.states()["k~2"] == "accepted"
