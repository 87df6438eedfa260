"""The body of a request to Resend: everything in its place, the same bytes each time."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, replace

import pytest

from providers.contract import (
    Address,
    Attachment,
    Message,
    Rejected,
    Unsubscribe,
)
from providers.resend import Settings, open_account
from providers.resend_request import render
from providers.testing import RecordingPermit, sample_message
from tests.servers.http import HttpServer


def body_of(message: Message) -> dict[str, object]:
    body = json.loads(render(message))
    assert isinstance(body, dict)
    return body


def test_the_whole_message_is_mapped() -> None:
    """Every field of a message has its place in the body."""
    message = sample_message(
        reply_to=(Address("help@example.com"),),
        headers=(("X-Entity-Ref-ID", "42"), ("In-Reply-To", "<a@example.com>")),
        unsubscribe=Unsubscribe(("https://example.com/u?a=1", "mailto:u@example.com"), True),
        attachments=(
            Attachment("a.csv", b"1,2\n", "text/csv"),
            Attachment("../../logo.png", b"\x89PNG", "image/png", content_id="logo"),
            Attachment("", b"x", "application/pdf"),
        ),
        options={"topic_id": "t-1"},
    )
    assert body_of(message) == {
        "from": "Reports <reports@example.com>",
        "to": ['"Ana, Northern Branch" <ana@example.org>'],
        "cc": ["ben@example.org"],
        "bcc": ["aud@example.net", "aud2@example.net"],
        "reply_to": ["help@example.com"],
        "subject": "Your audit for März",
        "text": message.text,
        "html": message.html,
        "headers": {
            "Auto-Submitted": "auto-generated",
            "List-Unsubscribe": "<https://example.com/u?a=1>, <mailto:u@example.com>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            "X-Entity-Ref-ID": "42",
            "In-Reply-To": "<a@example.com>",
        },
        "attachments": [
            {
                "filename": "a.csv",
                "content": base64.b64encode(b"1,2\n").decode(),
                "content_type": "text/csv",
            },
            {
                "filename": "logo.png",
                "content": base64.b64encode(b"\x89PNG").decode(),
                "content_type": "image/png",
                "content_id": "logo",
            },
            {
                "filename": "attachment-3.pdf",
                "content": base64.b64encode(b"x").decode(),
                "content_type": "application/pdf",
            },
        ],
        "tags": [
            {"name": "postroom_id", "value": message.correlation},
            {"name": "audit", "value": "true"},
            {"name": "period", "value": "2026-W13"},
            {"name": "site", "value": "42"},
        ],
        "topic_id": "t-1",
    }


def test_no_field_of_the_message_is_forgotten() -> None:
    """A field that is added to Message has to be looked at here."""
    outside = {"correlation", "idempotency_key", "message_id", "date", "recipients", "kept"}
    mapped = {
        "sender", "to", "cc", "bcc", "reply_to", "subject", "text", "html", "headers",
        "attachments", "tags", "metadata", "unsubscribe", "auto_submitted", "options",
    }  # fmt: skip
    assert {item.name for item in fields(Message)} == outside | mapped


def test_absent_fields_are_absent() -> None:
    """A small message makes a small body; without text and HTML an empty text is sent."""
    message = sample_message(
        cc=(), bcc=(), recipients=("ana@example.org",), text=None, html=None, attachments=(),
        tags=(), metadata={}, auto_submitted=None,
    )  # fmt: skip
    assert set(body_of(message)) == {"from", "to", "subject", "tags", "text"}
    assert body_of(message)["text"] == ""


@pytest.mark.parametrize(
    "text",
    ["A" * 3000 + "\nend\n", "start\n.\n..\n.hidden\nend\n", "Grüße\r\n\u2028\x00\t", "\U0001f600"],
)
def test_texts_are_equal_to_the_input(text: str) -> None:
    """The value in the JSON is the producer's text, whatever it holds (B01, B02)."""
    body = body_of(sample_message(text=text, html=f"<p>{text}</p>"))
    assert (body["text"], body["html"]) == (text, f"<p>{text}</p>")


@pytest.mark.parametrize(
    ("mailbox", "written"),
    [
        (Address("zoe@example.org", "Zoë of the Department, Northern Branch"),
         '"Zoë of the Department, Northern Branch" <zoe@example.org>'),
        (Address("asa@example.net", "Åsa"), "Åsa <asa@example.net>"),
        (Address("a@example.org", 'say "hi" \\'), '"say \\"hi\\" \\\\" <a@example.org>'),
        (Address("a@example.org", "=?utf-8?q?a=0ABcc?="), '"=?utf-8?q?a=0ABcc?=" <a@example.org>'),
        (Address("jörg@example.com"), "jörg@example.com"),
        (Address("post@bücher.example"), "post@xn--bcher-kva.example"),
    ],
)  # fmt: skip
def test_mailboxes_are_written_so_that_they_stay_one(mailbox: Address, written: str) -> None:
    """Commas, quotes and encoded words in a name never make a second mailbox (B04, B10)."""
    body = body_of(sample_message(to=(mailbox,), cc=(), bcc=(), recipients=(mailbox.address,)))
    assert body["to"] == [written]


@pytest.mark.parametrize(
    ("recipients", "to", "cc", "bcc"),
    [
        (("ana@example.org",), ["ana"], None, None),
        (("ben@example.org", "aud@example.net"), ["ben"], None, ["aud"]),
        (("aud@example.net",), ["aud"], None, None),
        (("ana@EXAMPLE.org", "ben@example.org"), ["ana"], ["ben"], None),
    ],
)
def test_only_open_recipients_are_addressed(
    recipients: tuple[str, ...], to: list[str], cc: list[str] | None, bcc: list[str] | None
) -> None:
    """A later attempt names only its recipients, and blind ones never see each other (B12)."""
    body = body_of(sample_message(recipients=recipients))
    for name, wanted in (("to", to), ("cc", cc), ("bcc", bcc)):
        found = body.get(name)
        assert (found is None) == (wanted is None)
        if isinstance(found, list) and wanted is not None:
            assert len(found) == len(wanted)
            assert all(part in entry for part, entry in zip(wanted, found, strict=True))


@pytest.mark.parametrize(
    ("given", "tag"),
    [
        ("2026-W13", "2026-W13"),
        ("website-audit:site/42.x", "b64_d2Vic2l0ZS1hdWRpdDpzaXRlLzQyLng"),
        ("", "b64_"),
        ("b64_x", "b64_YjY0X3g"),
        ("Müller", "b64_TcO8bGxlcg"),
    ],
)
def test_metadata_outside_the_alphabet_of_tags_is_encoded(given: str, tag: str) -> None:
    """Resend's tags take letters, digits, _ and -; anything else comes through reversibly."""
    tags = body_of(sample_message(tags=(), metadata={"value": given}))["tags"]
    assert isinstance(tags, list)
    assert tags[1] == {"name": "value", "value": tag}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"recipients": ("aud@example.net", "aud2@example.net")}, "to"),
        ({"recipients": ("stranger@example.org",)}, "recipients"),
        ({"subject": "Hi\r\nBcc: x@example.net"}, "subject"),
        ({"sender": Address("a@example.com", "A\nBcc: x")}, "from.name"),
        ({"headers": (("Bcc", "x@example.net"),)}, "headers[Bcc]"),
        ({"headers": (("X-A", "1"), ("x-a", "2"))}, "headers[x-a]"),
        ({"headers": (("Auto-Submitted", "no"),)}, "headers[Auto-Submitted]"),
        ({"headers": (("X-A", "1\nX-B: 2"),)}, "headers[X-A]"),
        ({"options": {"template": "x"}}, "options.template"),
        ({"options": {"topic_id": 7}}, "options.topic_id"),
        ({"tags": ("a", "a")}, "metadata"),
        ({"tags": ("postroom_id",)}, "metadata"),
        ({"tags": tuple(f"t{number}" for number in range(75))}, "tags"),
        ({"metadata": {"a": "x" * 257}}, "metadata"),
        ({"text": "half \ud83d"}, "text"),
        ({"attachments": (Attachment("x.pdf\r\nX-Evil: 1", b""),)}, "attachments[0].filename"),
    ],
)
async def test_what_resend_cannot_express_is_refused_before_anything_leaves(
    changes: Mapping[str, object], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a message is Rejected with the field named, without a mark or a request (B09, B14)."""
    monkeypatch.setenv("RESEND_API_KEY", "re_example_KEY_123")
    permit = RecordingPermit()
    with HttpServer("ok") as server:
        settings = Settings.model_validate(
            {"api_key": "env:RESEND_API_KEY", "base_url": server.url}
        )
        provider = open_account("main", settings)
        result = await provider.send(sample_message(**changes), permit)
        await provider.aclose()
        assert server.connections == 0
    assert isinstance(result.outcome, Rejected)
    assert result.outcome.code == "invalid_message"
    assert result.outcome.reason.startswith(f"{field}: ")
    assert permit.events == []


async def test_a_message_is_the_same_under_another_hash_seed() -> None:
    """The order of sets and mappings in this process does not reach the bytes (B74)."""
    script = (
        "from providers.testing import sample_message; from providers.resend_request import render;"
        "import hashlib; print(hashlib.sha256(render(sample_message())).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script,
            env={"PYTHONHASHSEED": seed}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
        digests.add(output)
    assert len(digests) == 1
    assert b"" not in digests


def test_the_attempt_does_not_reach_the_bytes() -> None:
    """Key suffix and order of recipients belong to the attempt, not to the body."""
    message = sample_message()
    other = replace(
        message,
        idempotency_key=message.idempotency_key + ".2",
        recipients=tuple(reversed(message.recipients)),
    )
    assert render(message) == render(other)


def test_the_order_of_options_does_not_reach_the_bytes() -> None:
    """Options are a mapping like any other: equal ones make equal bytes (B74)."""
    options = {"topic_id": "t-1", "scheduled_at": "2026-03-30T06:00:00Z"}
    backwards = dict(reversed(options.items()))
    assert list(options) != list(backwards)
    assert render(sample_message(options=options)) == render(sample_message(options=backwards))
