"""Whole messages as octets."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from providers.contract import Address, Attachment, Unsubscribe
from providers.headers import InvalidField, NeedsSmtpUtf8
from providers.mime import message_needs_smtputf8, render
from tests import wire
from tests.messages import message
from tests.unit.providers.test_headers import HIDDEN, INJECTIONS

RICH = message(
    sender=Address("berichte@bücher.example", "Bücher, Berichte"),
    to=(Address("ana@example.org", "Ana"), Address("asa@example.net", "Åsa")),
    cc=(Address("ben@example.org"),),
    bcc=(Address("aud@example.net", "Auditor"), Address("aud2@example.net")),
    recipients=("ana@example.org", "asa@example.net", "ben@example.org", "aud@example.net"),
    reply_to=(Address("help@example.com", "Help (desk)"),),
    subject="Grüße – your report 🎉",
    text="Grüße\nfrom us",
    html='<p>Grüße</p><img src="cid:logo">' + "é" * 300,
    headers=(("References", "<a@example.org> <b@example.org>"), ("X-Note", "für dich")),
    attachments=(
        Attachment("logo.png", b"\x89PNG", "image/png", content_id="logo"),
        Attachment("Prüfbericht Q1 – 10%.pdf", bytes(range(256)) * 3, "application/pdf"),
        Attachment("findings.csv", "naïve;1\n".encode(), "text/csv"),
        Attachment("old.eml", b"From: a@example.org\n\nhi\n", "message/rfc822"),
    ),
    tags=("b", "a"),
    metadata={"z": "1", "a": "2"},
    unsubscribe=Unsubscribe(("https://example.com/u?t=1", "mailto:u@example.com"), one_click=True),
    auto_submitted="auto-generated",
)
RICH_DIGEST = "9d2357cebaa54e39f4dc2d2be6768a31dd4a2c44332499ab7397dcf4e0a87a73"


def rendered(*, eight_bit: bool = False, **fields: Any) -> bytes:
    raw = render(message(**fields), eight_bit=eight_bit, smtputf8=False)
    assert wire.problems(raw) == []
    return raw


def shape(raw: bytes) -> list[tuple[str, str]]:
    return [("/".join(part.path), part.content_type) for part in wire.body_parts(raw)]


def test_a_plain_message() -> None:
    """A short text is written with every field in its fixed place."""
    assert rendered() == (
        b"Date: Sun, 29 Mar 2026 01:30:00 +0000\r\n"
        b"From: Reports <reports@example.com>\r\n"
        b"To: ana@example.org\r\n"
        b"Subject: Your report\r\n"
        b"Message-ID: <5f0c7c1e-2b3d-5e4f-8a9b-0c1d2e3f4a5b@mail.example.com>\r\n"
        b"MIME-Version: 1.0\r\n"
        b"Content-Type: text/plain; charset=us-ascii\r\n"
        b"Content-Transfer-Encoding: 7bit\r\n"
        b"\r\n"
        b"Hello\r\n"
    )


def test_a_rich_message_is_free_of_problems() -> None:
    """Every feature at once makes a conforming message, with fields in a fixed order."""
    raw = render(RICH, eight_bit=False, smtputf8=False)
    assert wire.problems(raw) == []
    assert [name for name, _ in wire.fields(raw)] == [
        "Date",
        "From",
        "Reply-To",
        "To",
        "Cc",
        "Subject",
        "Message-ID",
        "Auto-Submitted",
        "List-Unsubscribe",
        "List-Unsubscribe-Post",
        "References",
        "X-Note",
        "MIME-Version",
        "Content-Type",
    ]
    assert shape(raw) == [
        ("mixed/alternative", "text/plain"),
        ("mixed/alternative/related", "text/html"),
        ("mixed/alternative/related", "image/png"),
        ("mixed", "application/pdf"),
        ("mixed", "text/csv"),
        ("mixed", "message/rfc822"),
    ]
    assert wire.mailboxes(wire.get(raw, "From") or "") == [
        ("Bücher, Berichte", "berichte@xn--bcher-kva.example")
    ]


# Equal octets (B20)


def test_the_octets_are_pinned() -> None:
    """B20: a message has the same octets in every process and on every Python.

    A change of this digest changes what a provider sees on a second attempt of
    messages that are under way.
    """
    raw = render(RICH, eight_bit=False, smtputf8=False)
    assert hashlib.sha256(raw).hexdigest() == RICH_DIGEST


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_the_octets_do_not_depend_on_the_hash_seed(seed: str) -> None:
    """B20: another process with another hash seed renders the same octets."""
    code = (
        "import hashlib; from tests.unit.providers.test_mime import RICH, render;"
        "print(hashlib.sha256(render(RICH, eight_bit=False, smtputf8=False)).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == RICH_DIGEST


def test_identity_is_the_messages_own() -> None:
    """B20: Message-ID and Date come from the message, whatever recipients are still open."""
    raw = rendered()
    again = rendered(recipients=("ben@example.org",), idempotency_key="other")
    assert raw == again
    later = rendered(message_id="other@mail.example.com")
    assert wire.get(later, "Message-ID") == "<other@mail.example.com>"
    berlin = datetime(2026, 3, 29, 3, 30, tzinfo=timezone(timedelta(hours=2)))
    assert rendered(date=berlin) == raw
    assert rendered(date=datetime(2026, 4, 1, tzinfo=UTC)) != raw


# Recipients and fields


def test_blind_recipients_appear_nowhere() -> None:
    """B12: no header and no octet of the message names a blind recipient."""
    raw = render(RICH, eight_bit=False, smtputf8=False)
    assert b"aud" not in raw.lower()
    assert not any(name.lower().endswith("bcc") for name, _ in wire.fields(raw))


def test_a_message_to_blind_recipients_only_has_no_to() -> None:
    """B12: with nobody to show, there is no To field."""
    raw = rendered(to=(), bcc=(Address("aud@example.net"),), recipients=("aud@example.net",))
    assert wire.get(raw, "To") is None


@pytest.mark.parametrize("name", ["Bcc", "X-Copies-Bcc", "subject", "Content-Type", "X-A\r\nBcc"])
def test_headers_of_ones_own_cannot_replace_ours(name: str) -> None:
    """B09, B12: a custom header with one of our names, or no name, is refused."""
    with pytest.raises(InvalidField, match="headers"):
        rendered(headers=((name, "x@example.net"),))


@pytest.mark.parametrize("name", ["Auto-Submitted", "list-unsubscribe", "List-Unsubscribe-Post"])
def test_a_field_set_twice_is_refused(name: str) -> None:
    """A custom header may not repeat a field of the message that is set."""
    with pytest.raises(InvalidField, match="is there already"):
        render(
            message(
                headers=((name, "no"),),
                auto_submitted=RICH.auto_submitted,
                unsubscribe=RICH.unsubscribe,
            ),
            eight_bit=False,
            smtputf8=False,
        )
    rendered(headers=(("Auto-Submitted", "auto-replied"),))


@pytest.mark.parametrize("text", INJECTIONS)
def test_line_breaks_reach_no_header(text: str) -> None:
    """B09: each place that text can come from refuses what could end a line."""
    places: dict[str, dict[str, Any]] = {
        "subject": {"subject": text},
        "from[0].name": {"sender": Address("a@example.org", text)},
        "cc[0].name": {"cc": (Address("a@example.org", text),)},
        "reply_to[0].address": {"reply_to": (Address(f"{text}@example.org"),)},
        "headers[X-Note]": {"headers": (("X-Note", text),)},
        "attachments[0].filename": {"attachments": (Attachment(text, b""),)},
        "auto_submitted": {"auto_submitted": text},
        "message_id": {"message_id": f"{text}@example.org"},
    }
    for field, fields in places.items():
        with pytest.raises(InvalidField, match=rf"^{re.escape(field)}: "):
            rendered(**fields)


def test_a_hidden_line_break_stays_text() -> None:
    """B09: an encoded-word in the input is text in every place."""
    raw = rendered(
        subject=HIDDEN,
        to=(Address("ana@example.org", HIDDEN),),
        headers=(("X-Note", HIDDEN),),
        attachments=(Attachment(HIDDEN, b""),),
    )
    assert wire.decode_words(wire.get(raw, "Subject") or "") == HIDDEN
    assert wire.mailboxes(wire.get(raw, "To") or "") == [(HIDDEN, "ana@example.org")]
    assert wire.decode_words(wire.get(raw, "X-Note") or "") == HIDDEN
    assert wire.body_parts(raw)[1].filename == HIDDEN
    assert HIDDEN.encode() not in raw


def test_utf8_addresses_only_with_the_extension() -> None:
    """B10: a mailbox name in UTF-8 is raw with SMTPUTF8 and refused without."""
    mail = message(to=(Address("jörg@example.com", "Jörg"),))
    with pytest.raises(NeedsSmtpUtf8):
        render(mail, eight_bit=True, smtputf8=False)
    raw = render(mail, eight_bit=True, smtputf8=True)
    assert wire.problems(raw, smtputf8=True) == []
    assert wire.problems(raw) != []
    assert "<jörg@example.com>".encode() in raw


def test_who_needs_the_extension() -> None:
    """B10: shown addresses and open recipients decide; blind ones count only while open."""
    assert not message_needs_smtputf8(RICH)
    assert message_needs_smtputf8(message(cc=(Address("jörg@example.com"),)))
    assert message_needs_smtputf8(message(recipients=("jörg@example.com",)))
    assert not message_needs_smtputf8(message(bcc=(Address("jörg@example.com"),)))


def test_unsubscribe_fields() -> None:
    """Targets stand in angle brackets; one click needs an https URL and has its own field."""
    raw = rendered(unsubscribe=Unsubscribe(("mailto:u@example.com", "https://example.com/u")))
    assert wire.get(raw, "List-Unsubscribe") == "<mailto:u@example.com>, <https://example.com/u>"
    assert wire.get(raw, "List-Unsubscribe-Post") is None
    raw = rendered(unsubscribe=Unsubscribe(("https://example.com/u",), one_click=True))
    assert wire.get(raw, "List-Unsubscribe-Post") == "List-Unsubscribe=One-Click"
    with pytest.raises(InvalidField, match=r"^unsubscribe\.one_click: "):
        rendered(unsubscribe=Unsubscribe(("mailto:u@example.com",), one_click=True))
    for url in ("javascript:x", "https://ex ample.com", "https://example.com/ü", "https://a>,<b"):
        with pytest.raises(InvalidField, match=r"^unsubscribe\.urls\[0\]: "):
            rendered(unsubscribe=Unsubscribe((url,)))
    with pytest.raises(InvalidField, match=r"^unsubscribe\.urls: is empty"):
        rendered(unsubscribe=Unsubscribe(()))


def test_auto_submitted() -> None:
    """The keyword of RFC 3834 becomes its field; anything else is refused."""
    assert wire.get(rendered(auto_submitted="auto-replied"), "Auto-Submitted") == "auto-replied"
    with pytest.raises(InvalidField, match="auto_submitted: "):
        rendered(auto_submitted="yes please")


# Bodies


@pytest.mark.parametrize(
    "text",
    [
        "A" * 3000 + "\nend\n",
        "start\n.\n..\n.hidden\nend\n",
        "Grüße aus Köln\n",
        "no line end",
        "",
        "mixed\r\nline\rends\n",
        "trailing \n-- \nAna",
        "--=_x\n",
    ],
)
def test_bodies_come_back(text: str) -> None:
    """B01, B02, B16: alone or beside others, the decoded text equals the text."""
    wanted = re.sub(r"\r\n|\r|\n", "\r\n", text)
    html = "<p>" + "é" * 3000 + "</p>"
    file = (Attachment("a.bin", b"\0\r\n\n"),)
    for eight_bit in (False, True):
        for fields in (
            {"text": text},
            {"text": None, "html": text},
            {"text": text, "html": html},
            {"text": text, "attachments": file},
        ):
            raw = rendered(eight_bit=eight_bit, **fields)
            part, *rest = wire.body_parts(raw)
            assert part.text == wanted
            assert not rest or rest[0].content in {html.encode(), b"\0\r\n\n"}
            assert eight_bit or raw.isascii()


def test_dots_are_left_to_smtp() -> None:
    """B02: rendering doubles no dot."""
    raw = rendered(text="start\n.\n..\n.hidden\nend\n")
    assert raw.endswith(b"\r\n\r\nstart\r\n.\r\n..\r\n.hidden\r\nend\r\n")


def test_raw_utf8_is_declared_on_every_level() -> None:
    """B16: with 8BITMIME, a multipart around raw UTF-8 says 8bit as well."""
    raw = rendered(eight_bit=True, text="Grüße\n", html="<p>Grüße</p>\n")
    assert wire.get(raw, "Content-Transfer-Encoding") == "8bit"
    assert {part.encoding for part in wire.body_parts(raw)} == {"8bit"}


@pytest.mark.parametrize(
    "fields", [{"text": "", "html": ""}, {"attachments": (Attachment("a", b""),)}]
)
def test_a_boundary_never_occurs_in_a_part(fields: dict[str, Any]) -> None:
    """A text that holds the boundary this message would get makes it take another."""
    boundary = wire.parameters(wire.get(rendered(**fields), "Content-Type") or "")[1]["boundary"]
    text = f"--{boundary}\n\n--{boundary}--\n"
    raw = rendered(**{**fields, "text": text})
    assert wire.body_parts(raw)[0].text == text.replace("\n", "\r\n")
    assert wire.parameters(wire.get(raw, "Content-Type") or "")[1]["boundary"] != boundary


def test_a_boundary_depends_on_its_place_only() -> None:
    """The boundary around attachments is the same whatever stands beside them."""
    file = (Attachment("a", b""),)
    plain, both = rendered(attachments=file), rendered(attachments=file, html="x")
    assert wire.get(plain, "Content-Type") == wire.get(both, "Content-Type")


def test_boundaries_differ_between_messages() -> None:
    """A boundary is derived from the correlation value, so a quoted message keeps its own."""
    first, second = (
        wire.get(rendered(correlation=value, html="x"), "Content-Type") for value in "ab"
    )
    assert first != second


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({}, [("", "text/plain")]),
        ({"text": None, "html": "x"}, [("", "text/html")]),
        ({"text": None}, [("", "text/plain")]),
        ({"html": "x"}, [("alternative", "text/plain"), ("alternative", "text/html")]),
        (
            {"text": None, "html": "x", "attachments": RICH.attachments[:1]},
            [("related", "text/html"), ("related", "image/png")],
        ),
        (
            {"attachments": RICH.attachments[:1]},
            [("mixed", "text/plain"), ("mixed", "image/png")],
        ),
        (
            {"text": None, "attachments": RICH.attachments[1:2]},
            [("mixed", "text/plain"), ("mixed", "application/pdf")],
        ),
    ],
)
def test_the_tree_fits_the_content(fields: dict[str, Any], parts: list[tuple[str, str]]) -> None:
    """Each combination of text, html, inline and attached files has its structure."""
    assert shape(rendered(**fields)) == parts
