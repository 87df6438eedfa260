"""Several attempts of one message, in several processes: the same bytes, to those still open."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import outbox
from outbox.database import open_engine
from tests import wire
from tests.acceptance.accounts import resend, smtp
from tests.acceptance.fleet import Fleet
from tests.acceptance.sinks import Stub
from tests.conformance.ledger import change, rows
from tests.servers.smtp import SmtpServer


def due_now(fleet: Fleet) -> None:
    """Every retry has come due and no account is paused any more."""
    change(
        fleet.url,
        "UPDATE outbox_deliveries SET due_at = send_after WHERE state = 'pending'",
        "UPDATE outbox_accounts SET paused_until = paused_since WHERE paused_until IS NOT NULL",
    )


def enqueue(fleet: Fleet, message: outbox.Email, key: str, priority: int = 0) -> None:
    engine = open_engine(fleet.url)
    with engine.begin() as connection:
        outbox.enqueue(connection, message, key=key, priority=priority)
    engine.dispose()


def test_one_message_has_one_identity_and_three_have_three(
    database_url: str, tmp_path: Path
) -> None:
    """B20: of three messages of one second the first is refused twice; its bytes never change."""
    with (
        SmtpServer(steps={"dot": ("451", "451", "250")}) as sink,
        Fleet(tmp_path, database_url, smtp(sink), concurrency=1) as fleet,
    ):
        first, *others = [
            outbox.Email(to="ana@example.org", subject=f"Report {number}", text="Hello\n")
            for number in range(3)
        ]
        enqueue(fleet, first, "first", priority=1)
        for number, message in enumerate(others):
            enqueue(fleet, message, f"other-{number}")
        change(fleet.url, "UPDATE outbox_deliveries SET send_after = '2026-11-01T08:00:00.000Z'")
        # Each attempt in a process of its own.
        for _ in range(2):
            due_now(fleet)
            assert fleet.start("--once").wait() == 0
        due_now(fleet)
        assert fleet.start("--drain").wait() == 0
        taken = [each.content for each in sink.taken]
        [content] = [each for each in taken if wire.get(each, "Subject") == "Report 0"]
        assert sink.refused == [content, content]
        ids = [wire.get(each, "Message-ID") for each in taken]
        assert len(set(ids)) == len(ids) == 3
        assert wire.get(content, "Date") == "Sun, 01 Nov 2026 08:00:00 +0000"
        shown = fleet.postroom("deliveries", "show", "first").out
        assert str(wire.get(content, "Message-ID")) in shown


def test_an_attachment_is_what_it_was_when_it_was_enqueued(
    database_url: str, tmp_path: Path
) -> None:
    """B22: the file is gone before the first attempt, another one before the second: same bytes."""
    report = tmp_path / "report.pdf"
    with (
        Stub("429:30", "ok") as stub,
        Fleet(tmp_path, database_url, resend(stub)) as fleet,
    ):
        report.write_bytes(b"%PDF the first")
        files = [outbox.Attachment(report.name, report.read_bytes(), "application/pdf")]
        enqueue(fleet, outbox.Email(to="ana@example.org", text="x", attachments=files), "k")
        report.unlink()
        assert fleet.start("--once").wait() == 0
        report.write_bytes(b"%PDF another one")
        due_now(fleet)
        assert fleet.start("--drain").wait() == 0
        first, second = stub.received
        assert (first.sha256, first.key) == (second.sha256, second.key)
        assert b"JVBERiB0aGUgZmlyc3Q=" in first.body
        digests = rows(fleet.url, "SELECT request_digest FROM outbox_attempts")
        assert {digest for (digest,) in digests} == {hashlib.sha256(first.body).hexdigest()}


def test_each_recipient_has_a_result_of_its_own(database_url: str, tmp_path: Path) -> None:
    """B35: one is taken once, one fails at once, one is tried alone until it is taken."""
    steps = {"rcpt:bad@example.org": ("550",), "rcpt:slow@example.org": ("451", "451", "250")}
    with SmtpServer(steps=steps) as sink, Fleet(tmp_path, database_url, smtp(sink)) as fleet:
        to = ["good@example.org", "bad@example.org", "slow@example.org"]
        enqueue(fleet, outbox.Email(to=to, subject="Report", text="x"), "k")
        dispatcher = fleet.start()
        fleet.until(lambda: fleet.states == {"accepted": 1})
        assert dispatcher.terminate() == 0
        assert [each.recipients for each in sink.taken] == [
            ("good@example.org",),
            ("slow@example.org",),
        ]
        asked = Counter(line.removeprefix("TO:") for line in sink.said("RCPT"))
        assert asked == {"<good@example.org>": 1, "<bad@example.org>": 1, "<slow@example.org>": 3}
        shown = fleet.postroom("deliveries", "show", "k", "--json").json
        assert {each["address"]: each["result"] for each in shown["recipients"]} == {
            "good@example.org": "accepted",
            "bad@example.org": "failed",
            "slow@example.org": "accepted",
        }


def test_with_every_recipient_refused_nothing_is_transmitted(
    database_url: str, tmp_path: Path
) -> None:
    """B35: three times 550: no DATA, and the delivery has failed after one attempt."""
    with (
        SmtpServer(steps={"rcpt": ("550",)}) as sink,
        Fleet(tmp_path, database_url, smtp(sink)) as fleet,
    ):
        to = ["a@example.org", "b@example.org", "c@example.org"]
        enqueue(fleet, outbox.Email(to=to, subject="Report", text="x"), "k")
        assert fleet.start("--drain").wait() == 0
        assert sink.count("DATA") == 0
        [row] = rows(fleet.url, "SELECT state, reason, last_attempt FROM outbox_deliveries")
        assert tuple(row) == ("failed", "rejected", 1)
