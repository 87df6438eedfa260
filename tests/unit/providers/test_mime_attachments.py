"""Files inside a message: names, types, encodings, inline files."""

from __future__ import annotations

import pytest

from providers.contract import Attachment
from providers.headers import InvalidField
from providers.mime import render
from tests import wire
from tests.unit.providers.test_mime import RICH, rendered


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("Prüfbericht Q1 – 10%.pdf", "Prüfbericht Q1 – 10%.pdf"),
        ('a"b\\c; d=e.pdf', 'a"b\\c; d=e.pdf'),
        ("재" * 70 + ".pdf", "재" * 70 + ".pdf"),
        ("../../etc/passwd", "passwd"),
        ("", "attachment-1.pdf"),
    ],
)
def test_attachment_names_arrive(given: str, sent: str) -> None:
    """B14: the name that arrives is the base name, whatever characters it has."""
    raw = rendered(attachments=(Attachment(given, b"%PDF", "application/pdf"),))
    _, part = wire.body_parts(raw)
    assert (part.disposition, part.filename, part.content) == ("attachment", sent, b"%PDF")


def test_the_first_name_is_written_as_stated() -> None:
    """B14: the extended form is exact."""
    raw = rendered(attachments=(Attachment("Prüfbericht Q1 – 10%.pdf", b""),))
    assert wire.body_parts(raw)[1].headers["content-disposition"] == (
        "attachment; filename*=utf-8''Pr%C3%BCfbericht%20Q1%20%E2%80%93%2010%25.pdf"
    )


def test_inline_files_are_found_by_their_id() -> None:
    """An inline file has its Content-ID in brackets and says inline."""
    part = wire.body_parts(render(RICH, eight_bit=False, smtputf8=False))[2]
    assert (part.headers["content-id"], part.disposition) == ("<logo>", "inline")


def test_a_message_travels_unencoded_or_as_a_file() -> None:
    """An attached message is never encoded; if it cannot go raw, it goes as a plain file."""
    good = b"From: a@example.org\r\n\r\nhi\r\n"
    for content, kind, encoding in (
        (good, "message/rfc822", "7bit"),
        (good + "Grüße".encode(), "application/octet-stream", "base64"),
        (b"x" * 999, "application/octet-stream", "base64"),
    ):
        raw = rendered(attachments=(Attachment("old.eml", content, "message/rfc822"),))
        part = wire.body_parts(raw)[1]
        assert (part.content_type, part.encoding, part.content) == (kind, encoding, content)
        assert part.filename == "old.eml"
    eight = rendered(
        eight_bit=True,
        attachments=(Attachment("old.eml", good + "Grüße".encode(), "message/rfc822"),),
    )
    assert wire.body_parts(eight)[1].encoding == "8bit"


@pytest.mark.parametrize(
    ("kind", "content", "written", "parameters"),
    [
        ("text/csv", "naïve".encode(), "text/csv", {"charset": "utf-8"}),
        ("text/csv", b"naive", "text/csv", {}),
        ("text/csv", "naïve".encode("latin-1"), "text/csv", {}),
        ("text/csv; charset=utf-8", "naïve".encode(), "text/csv", {"charset": "utf-8"}),
        (
            'text/csv;charset="latin-1"',
            "naïve".encode("latin-1"),
            "text/csv",
            {"charset": "latin-1"},
        ),
        ("multipart/mixed", b"--x", "application/octet-stream", {}),
        ("message/global", "ü".encode(), "message/global", {}),
    ],
)
def test_the_type_says_what_is_known(
    kind: str, content: bytes, written: str, parameters: dict[str, str]
) -> None:
    """A charset is stated where it was given or the octets show it; content always arrives."""
    part = wire.body_parts(rendered(attachments=(Attachment("a", content, kind),)))[1]
    assert (part.content_type, part.parameters, part.content) == (written, parameters, content)


@pytest.mark.parametrize(
    "kind", ["", "pdf", "text/", "text/csv; header=present", "text/csv\r\nX: y"]
)
def test_a_type_outside_the_grammar_is_refused(kind: str) -> None:
    """A content type is type/subtype, with no parameter but charset."""
    with pytest.raises(InvalidField, match=r"^attachments\[0\]\.content_type: "):
        rendered(attachments=(Attachment("a", b"", kind),))


@pytest.mark.parametrize("content_id", ["", "a b", "<a>", "ü", "a\r\nX: y"])
def test_an_id_outside_the_grammar_is_refused(content_id: str) -> None:
    """A content id is printable ASCII without spaces and brackets."""
    with pytest.raises(InvalidField, match=r"^attachments\[0\]\.content_id: "):
        rendered(attachments=(Attachment("a", b"", content_id=content_id),))
