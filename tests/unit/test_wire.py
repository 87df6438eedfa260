"""The wire checker finds what it is there to find."""

from __future__ import annotations

import pytest

from tests import wire

_HEAD = (
    b"Date: Sun, 29 Mar 2026 01:30:00 +0000\r\nFrom: a@example.org\r\nMessage-ID: <a@b>\r\n"
    b"MIME-Version: 1.0\r\n"
)
_GOOD = _HEAD + b"Subject: Hi\r\n\r\nHi\r\n"
_MULTIPART = _HEAD + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (_GOOD.replace(b"Hi\r\n\r\n", b"Hi\nBcc: x\r\n\r\n"), "bare LF"),
        (_GOOD.replace(b"Hi\r\n\r\n", b"Hi\rx\r\n\r\n"), "bare CR"),
        (_GOOD + b"\0\r\n", "NUL"),
        (_GOOD + b"no end", "the last line has no end"),
        (_GOOD + b"x" * 999 + b"\r\n", "has 999 octets"),
        (_GOOD.replace(b": Hi", ": ü".encode()), "above 127 in the header"),
        (_GOOD.replace(b"Subject:", b"Sub ject:"), "no field name"),
        (_GOOD.replace(b"Subject: Hi", b"Subject: Hi\r\n \t"), "white space only"),
        (_GOOD.replace(b"Subject", b"Date"), "date stands 2 times"),
        (_GOOD.replace(b"Subject", b"X-My-Bcc"), "shows blind recipients"),
        (_GOOD.replace(b"From", b"Also"), "from is missing"),
        (_GOOD.replace(b"29 Mar", b"29 March"), "Date: breaks its grammar"),
        (_GOOD.replace(b"<a@b>", b"=?utf-8?q?=3Ca=40b=3E?="), "Message-ID: breaks its grammar"),
        (_GOOD.replace(b"Hi\r\n\r\n", b"=?utf-8?q?=C3?=\r\n\r\n"), "does not decode alone"),
        (_GOOD.replace(b": Hi", b": =?utf-8?q?" + b"a" * 70 + b"?="), "encoded-word of 82"),
        (_GOOD.replace(b": Hi", b": x=?utf-8?q?a?="), "without a space beside it"),
        (_GOOD.replace(b"a@example.org", b"=?utf-8?q?a=2C?=b@example.org"), "inside an address"),
        (_GOOD.replace(b"a@example.org", b"A, B <a@example.org>"), "not an address"),
        (_GOOD.replace(b"a@example.org", b'"=?utf-8?q?a?=" <a@b>'), "looks like an encoded-word"),
        (_GOOD.replace(b"\r\nHi", "\r\nü".encode()), "above 127 in 7bit"),
        (_MULTIPART + b"--b\r\n\r\nx\r\n", "no closing boundary"),
        (_MULTIPART + b"--b\r\n\r\na--b\r\n--b--\r\n", "occurs inside a part"),
        (_MULTIPART.replace(b"=b", b"=b=?"), "not a parameter"),
    ],
)
def test_each_fault_is_found(raw: bytes, problem: str) -> None:
    """A message with one fault is reported with that fault."""
    assert wire.problems(_GOOD) == []
    assert any(problem in found for found in wire.problems(raw)), wire.problems(raw)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (b"quoted-printable", b"a=c3\r\n"),
        (b"quoted-printable", b"a \r\n"),
        (b"quoted-printable", b"a" * 77 + b"\r\n"),
        (b"base64", b"YQ\r\n"),
        (b"base64", b"Y!Q=\r\n"),
        (b"uuencode", b"x\r\n"),
    ],
)
def test_broken_encodings_are_found(encoding: bytes, body: bytes) -> None:
    """A body that breaks its transfer encoding is reported."""
    raw = _HEAD + b"Content-Transfer-Encoding: " + encoding + b"\r\n\r\n" + body
    assert any(found.startswith("body: ") for found in wire.problems(raw))


def test_readers() -> None:
    """Names, words and parameters are decoded as the RFCs say."""
    assert wire.mailboxes(
        '"A, \\"B" <a@b>, =?utf-8?q?=C3=85?= =?utf-8?q?sa?= x <"c d"@[192.0.2.1]>'
    ) == [
        ('A, "B', "a@b"),
        ("Åsa x", '"c d"@[192.0.2.1]'),
    ]
    assert wire.decode_words("a  =?utf-8?q?b_?= =?UTF-8?B?w6k=?= c") == "a  b é c"
    assert wire.parameters('x; a*0*=utf-8\'\'%C3%A9; a*1*=b; c="d;\\"e"') == (
        "x",
        {"a": "éb", "c": 'd;"e'},
    )
