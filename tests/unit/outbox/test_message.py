"""The message: what is taken, what is refused with which path, how it is stored."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest

from outbox import limits
from outbox.errors import InvalidMessage
from outbox.message import (
    Address,
    Attachment,
    Email,
    StoredMessage,
)
from tests.unit.outbox.emails import FULL, json_refusal, refusal


def test_the_shortest_message() -> None:
    """A recipient, a subject and a text make a message; recipients compare as text."""
    email = Email(to="ana@example.org", subject="Audit", text="…")
    assert email.to == ("ana@example.org",)
    assert (email.from_, email.cc, email.headers, email.tags) == (None, (), (), ())
    assert email.to_json() == '{"subject":"Audit","text":"…","to":["ana@example.org"]}'


def test_fields_are_in_their_normal_form() -> None:
    """Whatever way a field was given, its attribute has one type."""
    assert FULL.to == ("Zoë <zoe@example.org>", "ana@example.org")
    assert FULL.from_ == Address("reports@example.com", "Reports")
    assert FULL.reply_to[0].name == "Help, please"
    assert FULL.headers == (("References", "<a@example.com>"), ("X-Site", "42"))
    assert FULL.tags == ("weekly", "audit")
    assert FULL.tags_json() == '["weekly","audit"]'
    assert FULL.provider_options == {"resend": {"a": {"b": 0.5}, "z": [1, 2, None, True, "x"]}}


def test_the_stored_form_is_canonical_json() -> None:
    """The stored form has sorted keys, one spelling, and nothing that was not given."""
    document = json.loads(FULL.to_json())
    canonical = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert FULL.to_json() == canonical
    assert document["to"] == [
        {"address": "zoe@example.org", "name": "Zoë"},
        "ana@example.org",
    ]
    assert document["attachments"][0] == {
        "filename": "a.csv",
        "content_type": "text/csv",
        "sha256": FULL.attachments[0].sha256,
        "size": 3,
    }
    assert document["attachments"][1]["content_id"] == "logo"
    assert document["headers"] == [["References", "<a@example.com>"], ["X-Site", "42"]]
    assert document["list_unsubscribe"] == {
        "urls": ["https://example.com/u", "mailto:u@example.com"],
        "one_click": True,
    }


def test_a_stored_message_reads_back_unchanged() -> None:
    """Reading the stored form gives the same fields and the same text."""
    stored = StoredMessage.parse(FULL.to_json())
    assert stored.canonical() == FULL.to_json()
    for name in ("to", "from_", "subject", "text", "html", "headers", "metadata", "tags"):
        assert getattr(stored, name) == getattr(FULL, name)
    assert stored.sha256s() == FULL.sha256s()
    assert stored.blobs() == {}


def test_an_empty_text_is_a_text() -> None:
    """A message whose body is empty keeps it, also through its row."""
    email = Email("ana@example.org", "see subject", text="")
    assert StoredMessage.parse(email.to_json()).text == ""


@pytest.mark.parametrize("field", ["to", "cc", "bcc"])
def test_one_kind_of_recipient_is_enough(field: str) -> None:
    """A message may have only cc or only bcc recipients."""
    arguments: dict[str, Any] = {"to": (), field: "ana@example.org"}
    assert Email(text="x", **arguments).recipients()[0][0] == field


def test_recipients_are_listed_once() -> None:
    """One mailbox gets one copy: to counts before cc before bcc, domains without case."""
    email = Email(
        ["Ana <ana@example.org>", "ana@EXAMPLE.org"],
        cc=["ben@bücher.example", "ana@example.org", "Ana@example.org"],
        bcc=["ben@xn--bcher-kva.example", "zoe@example.org"],
        text="x",
    )
    assert email.recipients() == (
        ("to", "Ana <ana@example.org>"),
        ("cc", "ben@bücher.example"),
        ("cc", "Ana@example.org"),
        ("bcc", "zoe@example.org"),
    )


def test_a_message_can_be_varied_copied_and_compared() -> None:
    """Messages are values: equal when their canonical form is, hashable, unchangeable."""
    other = dataclasses.replace(FULL, subject="Other")
    assert other.subject == "Other"
    assert other != FULL
    assert dataclasses.replace(other, subject=FULL.subject) == FULL
    assert len({FULL, copy.deepcopy(FULL), pickle.loads(pickle.dumps(FULL)), other}) == 2  # noqa: S301
    assert StoredMessage.parse(FULL.to_json()) != FULL
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.subject = "x"  # type: ignore[misc]
    with pytest.raises(InvalidMessage, match="subject"):
        dataclasses.replace(FULL, subject="a\nb")


def test_the_caller_cannot_change_a_message_afterwards() -> None:
    """Lists and mappings given to a message are copied."""
    options: dict[str, Any] = {"resend": {"a": [1]}}
    metadata = {"a": "b"}
    email = Email("ana@example.org", text="x", metadata=metadata, provider_options=options)
    options["resend"]["a"].append(2)
    metadata["c"] = "d"
    assert email.provider_options == {"resend": {"a": [1]}}
    assert email.metadata == {"a": "b"}


def test_bodies_are_not_in_the_repr() -> None:
    """What is printed of a message does not hold its bodies."""
    assert "Hello" not in repr(FULL)
    assert repr(FULL).startswith("Email(")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"to": ()}, "to: is empty, and so are cc and bcc"),
        ({"to": ["ana@example.org", "ana@"]}, 'to[1]: "ana@" has no domain'),
        ({"to": "ana@"}, 'to: "ana@" has no domain'),
        ({"to": "a@b.org, c@d.org"}, "to: "),
        ({"to": ["a@b.org"] * 1000, "cc": "c@d.org"}, "to: has, with cc and bcc, 1,001 addresses"),
        ({"cc": ["a@b.org", 5]}, "cc[1]: is a number, not an address"),
        ({"bcc": {"address": "a@b.org", "x": 1}}, "bcc.x: is unknown"),
        ({"reply_to": "x"}, 'reply_to: "x" has no domain'),
        ({"reply_to": ["a@b.org"] * 21}, "reply_to: has more than 20 addresses"),
        ({"from_": "x"}, 'from: "x" has no domain'),
        ({"from_": ["a@b.org"]}, "from: is a list, not an address"),
        ({"text": None}, "text: is missing, and so is html"),
        ({"text": b"x"}, "text: is bytes, not text"),
        ({"subject": None}, "subject: is null, not text"),
        ({"subject": "s" * 999}, "subject: has 999 characters; at most 998"),
        ({"tags": "abc"}, "tags: is text, not a list of texts"),
        ({"tags": {"a"}}, "tags: is of type set, not a list of texts"),
        ({"tags": ["a", ""]}, "tags[1]: is empty"),
        ({"tags": ["a", 5]}, "tags[1]: is a number, not text"),
        ({"tags": ["t" * 129]}, "tags[0]: has 129 characters; at most 128"),
        ({"tags": [str(n) for n in range(51)]}, "tags: has 51 tags; at most 50"),
        ({"metadata": {"a": 7}}, 'metadata["a"]: is a number, not text'),
        ({"metadata": {7: "a"}}, "metadata[a number]: is a number, not text"),
        ({"metadata": {"": "a"}}, 'metadata[""]: has an empty name'),
        ({"metadata": {"k" * 129: "a"}}, "metadata["),
        ({"metadata": {"a": "v" * 4097}}, 'metadata["a"]: has 4,097 bytes; at most 4,096'),
        ({"metadata": {str(n): "" for n in range(101)}}, "metadata: has 101 entries; at most 100"),
        ({"metadata": ["a"]}, "metadata: is a list, not an object"),
        ({"list_unsubscribe": "https://example.com"}, "list_unsubscribe: is text, not an object"),
        ({"auto_submitted": "yes"}, 'auto_submitted: is "yes", not one of auto-generated'),
        ({"auto_submitted": True}, "auto_submitted: is true or false, not one of"),
    ],
)
def test_a_bad_field_is_refused_with_its_path(changes: dict[str, Any], error: str) -> None:
    """Each rule names the field it refuses."""
    assert str(refusal(**changes)).startswith(error)


@pytest.mark.parametrize(
    "text",
    [
        *("Hi\r\nBcc: x@example.net", "Hi\nBcc: x@example.net", "Hi\rBcc: x@example.net"),
        *("Hi\u2028Bcc: x", "Hi\u2029Bcc: x", "Hi\x85Bcc: x", "Hi\x0cBcc: x", "Hi\x00there"),
        *("Hi\x1b[2J", "Hi\x7f", "Invoice \ud83d ready", "\udc00"),
    ],
)
def test_nothing_is_smuggled_through_a_line(text: str) -> None:
    """Line breaks, controls and lone surrogates are refused in every one-line field (B09, B17)."""
    assert refusal(subject=text).field == "subject"
    assert refusal(to={"address": "ana@example.org", "name": text}).field == "to.name"
    assert refusal(headers={"X-Foo": text}).field == 'headers["X-Foo"]'
    assert refusal(headers=[("X-Foo", text)]).field == 'headers["X-Foo"]'
    assert refusal(headers={text: "x"}).field.startswith('headers["')
    assert refusal(tags=["a", text]).field == "tags[1]"
    assert refusal(metadata={text: "x"}).field.startswith('metadata["')
    with pytest.raises(InvalidMessage, match=r"^filename: "):
        Attachment(text, b"")


@pytest.mark.parametrize("text", ["x \ud83d y", "x\x00y", "é\x00"])
def test_no_text_holds_nul_or_half_a_character(text: str) -> None:
    """NUL and lone surrogates are refused in bodies, metadata and options (B17)."""
    assert refusal(text=text).field == "text"
    assert refusal(html=text).field == "html"
    assert refusal(metadata={"a": text}).field == 'metadata["a"]'
    assert refusal(provider_options={"resend": {"a": [text]}}).field == (
        'provider_options["resend"]["a"][0]'
    )
    assert refusal(provider_options={"resend": {text: 1}}).field.startswith('provider_options["')
    assert json_refusal({"to": "a@b.org", "text": text}).field == "text"


def test_tabs_and_encoded_words_in_a_subject_stay_as_they_are() -> None:
    """A subject is literal: an encoded word is not decoded on its way (B09)."""
    subject = "Hi\t=?utf-8?q?a=0ABcc=3A_x=40example=2Enet?="
    email = Email("ana@example.org", subject, text="x")
    assert email.subject == subject
    assert StoredMessage.parse(email.to_json()).subject == subject


def test_bodies_may_hold_any_line_ends_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies keep their characters, and their size in UTF-8 is bounded."""
    monkeypatch.setattr(limits, "BODY_OCTETS", 10)
    assert Email("ana@example.org", text="a\r\nb\x0c\x85\u2028").text == "a\r\nb\x0c\x85\u2028"
    assert str(refusal(text="x" * 11)) == "text: has 11 bytes; at most 10"
    assert str(refusal(html="é" * 6)) == "html: has 12 bytes; at most 10"
