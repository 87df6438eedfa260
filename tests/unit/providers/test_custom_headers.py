"""Headers that a message brings of its own."""

from __future__ import annotations

import pytest

from providers.custom_headers import check_custom, custom_fields
from providers.encoding import InvalidField
from tests import wire
from tests.unit.providers.test_headers import HIDDEN, INJECTIONS


@pytest.mark.parametrize(
    "name",
    [
        "From",
        "to",
        "CC",
        "Bcc",
        "X-Report-Bcc",
        "Resent-Bcc",
        "Resent-To",
        "Reply-To",
        "Subject",
        "Date",
        "Message-ID",
        "MIME-Version",
        "Content-Type",
        "Content-Anything",
        "Return-Path",
        "Received",
        "DKIM-Signature",
        "ARC-Seal",
        "Authentication-Results",
    ],
)
def test_fields_that_are_not_the_producers_are_refused(name: str) -> None:
    """B12: what we or servers write, and what shows blind recipients, cannot be replaced."""
    with pytest.raises(InvalidField, match=rf"^headers\[{name}\]: cannot be a header of your own"):
        check_custom(name, "value")


@pytest.mark.parametrize(
    "name", ["", "X Y", "X:", "X-Größe", "X-A\r\nBcc", "X-A\n", "X\x00", "X" * 77, " X", HIDDEN]
)
def test_names_outside_the_grammar_are_refused(name: str) -> None:
    """B09: a header name is printable ASCII without a colon, and the error prints on one line."""
    with pytest.raises(InvalidField, match="is no header name") as caught:
        custom_fields([(name, "value")])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", INJECTIONS)
def test_values_that_no_header_may_carry_are_refused(value: str) -> None:
    """B09: a line break in a value cannot start a second header."""
    with pytest.raises(InvalidField, match=r"^headers\[X-Note\]: holds U\+"):
        custom_fields([("X-Note", value)])
    with pytest.raises(InvalidField, match=r"^headers\[X-Note\]: holds U\+"):
        check_custom("X-Note", value)


def test_a_hidden_line_break_stays_text() -> None:
    """B09: an encoded-word in a value is encoded once more."""
    (field,) = custom_fields([("X-Note", HIDDEN)])
    ((name, value),) = wire.fields(field + b"\r\n")
    assert (name, wire.decode_words(value)) == ("X-Note", HIDDEN)
    assert HIDDEN.encode() not in field


def test_each_kind_is_written_in_its_own_way() -> None:
    """Text is encoded, structured values and identifiers are not, order is kept."""
    assert custom_fields(
        [
            ("X-Größe"[:3] + "Note", "Grüße"),
            ("Precedence", "bulk"),
            ("In-Reply-To", "<a@example.org>"),
            ("X-Json", '{"a": 1}'),
        ]
    ) == [
        b"X-GNote: =?utf-8?b?R3LDvMOfZQ==?=\r\n",
        b"Precedence: bulk\r\n",
        b"In-Reply-To: <a@example.org>\r\n",
        b'X-Json: {"a": 1}\r\n',
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("References", "größe"), ("Sender", "Jörg <joerg@example.org>"), ("List-Id", "=?x?q?a?=")],
)
def test_structured_headers_refuse_text(name: str, value: str) -> None:
    """A field with a syntax of its own is refused rather than encoded."""
    with pytest.raises(InvalidField, match=rf"^headers\[{name}\]: "):
        custom_fields([(name, value)])


def test_single_fields_stand_once() -> None:
    """A second References is refused; a second note is not."""
    custom_fields([("X-Note", "a"), ("X-Note", "b")])
    with pytest.raises(InvalidField, match=r"headers\[references\]: is there already"):
        custom_fields([("References", "<a@b>"), ("references", "<c@d>")])
    with pytest.raises(InvalidField, match="is there already"):
        check_custom("List-Unsubscribe", "<x>", taken=frozenset({"list-unsubscribe"}))
