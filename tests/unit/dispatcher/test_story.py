"""What people are told about a delivery and about the whole outbox: pure decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from dispatcher.blind import HIDDEN, without_blind
from dispatcher.mail_summary import mail_summary
from dispatcher.story import Around, told
from dispatcher.wording import CANCELLED, ENDED, FAILED, HELD, PAUSED
from outbox.records import RecipientRow
from outbox.reports import (
    AccountState,
    AttemptDetail,
    RecipientDetail,
    Story,
    Summary,
)
from outbox.states import (
    REASONS,
    AttemptKind,
    AttemptOutcome,
    CancelledReason,
    FailedReason,
    HeldReason,
    PauseReason,
    Phase,
    RecipientKind,
    RecipientResult,
    State,
    StopRequest,
)

NOW = datetime(2026, 11, 29, 3, 7, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

# -- wording -------------------------------------------------------------------- #


def test_every_word_of_a_closed_list_has_a_sentence() -> None:
    """A reason or outcome that is added cannot be shown before somebody has worded it."""
    for words, wording in (
        (HeldReason, HELD),
        (FailedReason, FAILED),
        (CancelledReason, CANCELLED),
        (PauseReason, PAUSED),
        (AttemptOutcome, ENDED),
    ):
        assert set(words) == set(wording)


# -- the story -------------------------------------------------------------------- #


def make_story(
    state: State = State.PENDING, *, attempts: tuple[AttemptDetail, ...] = (), **fields: Any
) -> Story:
    defaults = {State.HELD: "no_evidence", State.FAILED: "rejected", State.CANCELLED: "producer"}
    summary: dict[str, Any] = {
        "id": 7,
        "key": "invoice:7:owner",
        "state": state,
        "reason": defaults.get(state),
        "account": "main",
        "tenant": None,
        "run_key": None,
        "priority": 0,
        "counted_attempts": 0,
        "claims": len(attempts),
        "copies": 0,
        "send_after": NOW - MINUTE,
        "due_at": NOW - MINUTE,
        "send_before": None,
        "created_at": NOW - MINUTE,
        "updated_at": NOW,
        "finished_at": NOW,
        "last_error": None,
        "recipients": (),
    }
    story: dict[str, Any] = {
        "public_id": None,
        "message": None,
        "default_from": None,
        "tags": "[]",
        "when_unsure": None,
        "held_from": State.IN_DOUBT if state is State.HELD else None,
        "stop_requested": None,
        "lease_expires_at": NOW + MINUTE,
        "first_transmitted_at": None,
        "recipients": (recipient("ana@example.org"),),
        "attempts": attempts,
        "evidence": (),
    }
    for name, value in fields.items():
        (story if name in story else summary)[name] = value
    return Story(summary=Summary(**summary), **story)


def recipient(address: str, **fields: Any) -> RecipientDetail:
    known: dict[str, Any] = {
        "position": 0,
        "kind": RecipientKind.TO,
        "result": RecipientResult.PENDING,
        "code": None,
        "reason": None,
        "delivery_status": None,
        "provider_message_id": None,
    }
    return RecipientDetail(address=address, **known | fields)


def attempt(outcome: AttemptOutcome | None = None, **fields: Any) -> AttemptDetail:
    known: dict[str, Any] = {
        "number": 1,
        "kind": AttemptKind.SEND,
        "account": "main",
        "account_identity": None,
        "phase": Phase.SETTLED if outcome else Phase.CLAIMED,
        "owner": "mail-1:4711:0123456789abcdef",
        "token": 1,
        "recipients": (0,),
        "idempotency_key": None,
        "started_at": NOW - MINUTE,
        "transmitting_at": None,
        "finished_at": None,
        "status_code": None,
        "reason": None,
        "detail": None,
        "provider_message_id": None,
        "retry_at": None,
    }
    return AttemptDetail(outcome=outcome, **known | fields)


AROUND = Around(NOW, "main", "smtp", configured=True, paused=None, dispatchers=1, max_attempts=50)
LATER = NOW + MINUTE
SENT: dict[str, Any] = {"transmitting_at": NOW - MINUTE}

TOLD: list[tuple[Story, str, str]] = [
    (make_story(), "It was never tried; nothing has left.", "next free slot"),
    (make_story(due_at=LATER), "never tried", "It is sent at 2026-11-29 03:08:12Z"),
    (
        make_story(
            attempts=(attempt(AttemptOutcome.UNAVAILABLE, reason="connection refused"),),
            due_at=LATER,
            counted_attempts=1,
        ),
        "Nothing was taken. The last attempt: not sent (connection refused).",
        "It is tried again at 2026-11-29 03:08:12Z; 1 of 50 tries are used.",
    ),
    (make_story(send_before=LATER), "nothing has left", "Not after 2026-11-29 03:08:12Z"),
    (
        make_story(State.SENDING, attempts=(attempt(),)),
        "mail-1:4711 has claimed it; no byte of it has left.",
        "If the lease lapses at 2026-11-29 03:08:12Z, it goes back to where it was.",
    ),
    (
        make_story(State.SENDING, attempts=(attempt(phase=Phase.TRANSMITTING, **SENT),)),
        "mail-1:4711 is transmitting it since 2026-11-29 03:06:12Z; no answer yet.",
        "it will be in doubt",
    ),
    (
        make_story(State.SENDING, attempts=(attempt(),), stop_requested=StopRequest.CANCEL),
        "mail-1:4711 has claimed it",
        "Cancelling was asked for",
    ),
    (
        make_story(State.IN_DOUBT, attempts=(attempt(AttemptOutcome.IN_DOUBT, **SENT),)),
        "It was being transmitted since 2026-11-29 03:06:12Z: no proof came back.",
        "it is not sent again while it is in doubt",
    ),
    (
        make_story(State.HELD, attempts=(attempt(AttemptOutcome.LOST, **SENT),)),
        "nothing will ever prove it. It was being transmitted since",
        "Nothing, until a person decides.",
    ),
    (
        make_story(State.HELD, held_from=State.PENDING, reason="unknown_account"),
        "it names an account that is not configured. Nothing was taken.",
        "until a person decides",
    ),
    (
        make_story(
            State.ACCEPTED, recipients=(recipient("a@example.org", provider_message_id="4Zk1"),)
        ),
        "The provider took it at 2026-11-29 03:07:12Z as 4Zk1.",
        "Nothing: it is done.",
    ),
    (make_story(State.ACCEPTED, copies=2), "It took 2 copies.", "done"),
    (
        make_story(
            State.ACCEPTED,
            recipients=(
                recipient("a@example.org", result=RecipientResult.ACCEPTED),
                recipient("b@example.org", result=RecipientResult.FAILED),
            ),
        ),
        "1 of 2 recipients have it.",
        "done",
    ),
    (
        make_story(State.FAILED, last_error="550 no such user"),
        "Nothing was taken; the provider refused it for good: 550 no such user.",
        "it is closed",
    ),
    (make_story(State.EXPIRED, send_before=NOW), "before 2026-11-29 03:07:12Z", "closed"),
    (make_story(State.CANCELLED), "its producer cancelled it", "closed"),
    (make_story(State.UNRESOLVED), "A person closed the doubt", "closed"),
]


@pytest.mark.parametrize(("story", "known", "next_"), TOLD, ids=[known for _, known, _ in TOLD])
def test_a_story_says_what_is_known_and_what_happens(story: Story, known: str, next_: str) -> None:
    """Each state is told in sentences that claim no more than the rows prove."""
    found = told(story, AROUND)
    assert known in found.known
    assert next_ in found.next


def test_every_state_and_reason_has_a_story() -> None:
    """No combination that the tables allow leaves the operator with an exception."""
    for state, tries in product(State, ((), (attempt(),), (attempt(AttemptOutcome.LOST),))):
        for reason in REASONS.get(state, (None,)):
            found = told(make_story(state, reason=reason, attempts=tries), AROUND)
            assert found.known
            assert found.next


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dispatchers": 0}, 'no dispatcher is alive: start "postroom dispatch"'),
        ({"configured": False}, "It will be held: no account named main is configured here."),
        (
            {
                "paused": AccountState(
                    "main", "", "smtp", NOW, LATER, PauseReason.CREDENTIALS, "535 no"
                )
            },
            "paused until 2026-11-29 03:08:12Z: the provider refuses its credentials (535 no)",
        ),
    ],
)
def test_what_keeps_a_due_delivery_is_named(changes: Mapping[str, Any], words: str) -> None:
    """A due row that is not sent says whom it waits for."""
    assert words in told(make_story(), replace(AROUND, **changes)).next


def test_a_second_copy_is_warned_of_only_where_it_is_possible() -> None:
    """Doubt, and doubt that a person closed: the recipients are named; a refused one is not."""
    people = (
        recipient("ana@example.org", result=RecipientResult.IN_DOUBT),
        recipient("ben@example.org", result=RecipientResult.FAILED),
    )
    for state in (State.IN_DOUBT, State.HELD, State.UNRESOLVED):
        text = told(make_story(state, recipients=people), AROUND).if_sent_again
        assert "ana@example.org" in text
        assert "ben@example.org" not in text
    for story in (
        make_story(State.ACCEPTED),
        make_story(State.HELD, held_from=State.PENDING),
        make_story(State.FAILED),
    ):
        assert told(story, AROUND).if_sent_again == ""


# -- blind recipients ----------------------------------------------------------- #


def test_blind_recipients_stay_blind() -> None:
    """B12: neither a row nor a quoted answer shows a blind address; the counts stay right."""
    blind = recipient("Aud@example.net", kind=RecipientKind.BCC, reason="<aud@EXAMPLE.net> unknown")
    row = RecipientRow(0, RecipientKind.BCC, "Aud@example.net", RecipientResult.PENDING)
    story = make_story(
        recipients=(recipient("ana@example.org"), blind),
        attempts=(attempt(AttemptOutcome.REJECTED, detail="550 <aud@example.net>: no"),),
        last_error="aud@example.net was refused",
        message=json.dumps(
            {
                "from": "r@example.com",
                "to": "ana@example.org",
                "bcc": "Aud@example.net",
                "text": "x",
            }
        ),
    )
    story = replace(story, summary=replace(story.summary, recipients=(row,)))
    hidden, mail, count = without_blind(story, mail_summary(story, None))
    assert "aud@" not in f"{hidden}{mail}".lower()
    assert (count, len(hidden.recipients)) == (1, 2)
    assert hidden.recipients[1].address == HIDDEN
    assert hidden.attempts[0].detail == f"550 <{HIDDEN}>: no"


def test_a_message_that_was_never_claimed_hides_its_blind_recipients() -> None:
    """B12: a row that came by SQL has no recipients yet, and a refused one quotes its field."""
    text = json.dumps({"to": "ana@example.org", "bcc": ["aud@example.net"], "text": "x"})
    story = make_story(recipients=(), message=text, last_error='bcc[0]: "aud@" has no domain')
    hidden, mail, count = without_blind(story, mail_summary(story, None))
    assert "aud@" not in f"{hidden}{mail}"
    assert count == 1
    assert hidden.summary.last_error == f"bcc[0]: {HIDDEN}"


def test_a_mail_is_summed_up() -> None:
    """Sender from the row or the configuration, size in bytes, Message-ID from the public id."""
    content = {"filename": "a.csv", "content": "YWJj", "content_type": "text/csv"}
    text = json.dumps({"to": "ana@example.org", "text": "äb", "attachments": [content]})
    story = make_story(message=text, public_id="5f0c7c1e-2b3d-5e4f-8a9b-0c1d2e3f4a5b")
    found = mail_summary(story, "Reports <reports@example.com>")
    assert found is not None
    assert found.sender == "Reports <reports@example.com>"
    assert found.size == 3 + 3
    assert found.message_id == "<5f0c7c1e-2b3d-5e4f-8a9b-0c1d2e3f4a5b@example.com>"
    assert mail_summary(make_story(message='{"to": 5}'), None) is None
    assert mail_summary(make_story(), None) is None
