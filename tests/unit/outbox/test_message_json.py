"""Reading messages from JSON, and telling whether two of them are the same."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from outbox.errors import InvalidMessage
from outbox.message import (
    Attachment,
    Email,
    StoredMessage,
    differing_fields,
    fingerprint,
)
from tests.unit.outbox.emails import FULL, json_refusal


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ("", "message: is not JSON: Expecting value (line 1, column 1)"),
        ("[]", "message: is a list, not an object"),
        ("null", "message: is null, not an object"),
        ('{"to":"a@b.org","text":"x"', "message: is not JSON: "),
        ('{"to":"a@b.org","text":"x","text":"y"}', '"text": stands twice in one object'),
        ('{"to":{"address":"a@b.org","address":"c@d.org"},"text":"x"}', '"address": stands'),
        ('{"to":"a@b.org","text":"x","subject":NaN}', "message: is not JSON: NaN is no JSON"),
        ('{"to":"a@b.org","provider_options":{"x":{"a":1e999}},"text":""}', "provider_options"),
        ('{"to":"a@b.org","text":' + "9" * 5000 + "}", "message: has a number that is too long"),
        ("[" * 100_000, "message: is nested too deeply"),
        ('{"a":' * 100_000, "message: is nested too deeply"),
        (b"\xff", "message: is not UTF-8 text (byte 0)"),
        (
            {"to": "a@b.org", "text": "x", "subjct": 1},
            'subjct: is unknown; did you mean "subject"?',
        ),
        ({"to": "a@b.org", "text": "x", "from_": "a@b.org"}, "from_: is unknown"),
        ({"to": "a@b.org", "text": "x", "we\nird": 1}, r'"we\nird": is unknown; known: from, to'),
        ({"to": "a@b.org"}, "text: is missing"),
        ({"text": "x"}, "to: is empty"),
        ({"to": ["a@b.org"], "text": 5}, "text: is a number, not text"),
        ({"to": ["a@b.org"], "text": "Invoice \ud83d"}, "text: contains half of a surrogate pair"),
        (
            {"to": "a@b.org", "text": "x", "attachments": {}},
            "attachments: is an object, not a list",
        ),
        (
            {"to": "a@b.org", "text": "x", "list_unsubscribe": {}},
            "list_unsubscribe.urls: is missing",
        ),
        ({"to": "a@b.org", "text": "x", "list_unsubscribe": {"url": 1}}, "list_unsubscribe.url: "),
    ],
)
def test_json_is_read_strictly(document: Any, error: str) -> None:
    """What is no JSON, or no message, is refused in one line by command line and row alike."""
    assert str(json_refusal(document)).startswith(error)


def test_a_document_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON beyond the bound is refused before it is parsed."""
    monkeypatch.setattr("outbox.message_json.DOCUMENT_CHARACTERS", 10)
    assert "has 11 characters; at most 10" in str(json_refusal("[" * 11))


def test_a_row_without_text_is_no_message() -> None:
    """Something that is no text at all raises InvalidMessage like everything else."""
    with pytest.raises(InvalidMessage, match="message: is null, not JSON text"):
        StoredMessage.parse(None)  # type: ignore[arg-type]


def test_json_comes_as_text_bytes_or_mapping() -> None:
    """from_json takes text, UTF-8 bytes (a byte order mark is no harm) and a mapping."""
    document = {"to": "ana@example.org", "subject": "é", "text": "x", "html": None, "cc": None}
    text = json.dumps(document, ensure_ascii=False)
    expected = Email("ana@example.org", "é", text="x")
    for value in (text, text.encode(), b"\xef\xbb\xbf" + text.encode(), document):
        assert Email.from_json(value) == expected


def test_the_fingerprint_covers_the_message_however_it_is_spelled() -> None:
    """Python and SQL, other key orders, numbers and forms of one message agree (B7, N16)."""
    email = Email(
        "Ana <ana@example.org>",
        "S",
        text="é",
        headers={"X-B": "1", "X-A": "2"},
        metadata={"b": "1", "a": "2"},
        provider_options={"resend": {"n": 1}},
        attachments=[Attachment("a", b"abc")],
    )
    by_hand = """ {"text": "\\u00e9", "subject": "S", "cc": [], "html": null,
        "to": {"name": "Ana", "address": "ana@example.org"},
        "metadata": {"a": "2", "b": "1"}, "headers": {"X-A": "2", "X-B": "1"},
        "provider_options": {"resend": {"n": 1.0}},
        "attachments": [{"content": "YWJj", "filename": "a"}]} """
    assert fingerprint(by_hand) == fingerprint(email) == fingerprint(email.to_json())
    assert fingerprint(StoredMessage.parse(by_hand)) == fingerprint(email)
    assert differing_fields(by_hand, email.to_json()) == ()


def test_the_fingerprint_stays_what_it_was() -> None:
    """The fingerprint of a given message never changes while its version is 1."""
    assert fingerprint(Email("ana@example.org", "Audit", text="…")) == (
        "1:1fa3d2ff07e86f4f5ed916aa34a376bdb26d90e78ff58ee3e9cf04d4d3fae300"
    )
    assert fingerprint(FULL) == "1:d91c2c84084523e86d72f9dc94103ac0ad173b3b3a117e6082b19054aaa91139"


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"text": "other"}, ("text",)),
        ({"html": None, "from_": None}, ("from", "html")),
        ({"subject": ""}, ("subject",)),
        ({"to": "ana@example.org"}, ("to",)),
        ({"headers": ()}, ("headers",)),
        ({"attachments": FULL.attachments[:1]}, ("attachments[1]",)),
        ({"attachments": FULL.attachments[::-1]}, ("attachments[0]", "attachments[1]")),
        ({"provider_options": {"resend": {"a": True}}}, ("provider_options",)),
        (
            {"text": "t", "attachments": [Attachment("a.csv", b"a;c", "text/csv")]},
            ("text", "attachments[0]", "attachments[1]"),
        ),
        ({}, ()),
    ],
)
def test_what_differs_is_named(change: dict[str, Any], fields: tuple[str, ...]) -> None:
    """The fields that differ are named, attachments one by one, in the message's order."""
    other = dataclasses.replace(FULL, **change)
    assert differing_fields(FULL.to_json(), other.to_json()) == fields
    assert differing_fields(other.to_json(), FULL.to_json()) == fields
    assert (fingerprint(other) == fingerprint(FULL)) == (fields == ())


def test_true_and_one_differ() -> None:
    """Values that Python takes for equal but JSON does not are told apart."""
    one, true = (
        Email("ana@example.org", text="x", provider_options={"resend": {"a": value}})
        for value in (1, True)
    )
    assert one != true
    assert differing_fields(one.to_json(), true.to_json()) == ("provider_options",)


def test_against_a_row_that_is_no_message_only_message_is_named() -> None:
    """Comparing with a row that breaks the schema names the message as a whole."""
    assert differing_fields("{}", FULL.to_json()) == ("message",)
    assert differing_fields("{}", "{}") == ()
    with pytest.raises(InvalidMessage):
        fingerprint("{}")
