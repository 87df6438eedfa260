"""Transfer encodings: what is decoded is what was written."""

from __future__ import annotations

import pytest

from providers.bodies import Body, encode_base64, encode_message, encode_text, normalised
from providers.encoding import InvalidField
from tests.wire_body import decode


def text_body(text: str, *, eight_bit: bool = False, closing: bool = False) -> Body:
    return encode_text(text, eight_bit=eight_bit, closing=closing, path="text")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "hello\n",
        "start\n.\n..\n.hidden\nend\n",
        "a" * 78 + "\n",
        "tab\there\n",
        "\n\n\n",
        "=41 stays\n",
    ],
)
def test_plain_text_goes_raw(text: str) -> None:
    """B02: short ASCII lines go as they are, lines of dots included."""
    body = text_body(text)
    assert body == Body("7bit", text.replace("\n", "\r\n").encode(), "us-ascii")


@pytest.mark.parametrize(
    "text",
    [
        "a" * 79 + "\n",
        "-- \nsignature\n",
        "a\t\n",
        "From here on\n",
        "form\x0cfeed\n",
        "nul\x00\n",
        "escape\x1b\n",
        "delete\x7f\n",
        "Grüße\n",
    ],
)
def test_text_that_servers_change_is_encoded(text: str) -> None:
    """B01, B16: long lines, white space at ends, From, controls and UTF-8 are never sent raw."""
    body = text_body(text)
    assert body.encoding in {"quoted-printable", "base64"}
    assert body.content.isascii()
    assert not body.content.startswith(b"From ")
    assert decode(body.content, body.encoding).decode() == text.replace("\n", "\r\n")


def test_a_very_long_line_is_wrapped() -> None:
    """B01: a line of 3000 characters becomes short lines that decode to it."""
    body = text_body("A" * 3000 + "\nend\n")
    assert body.encoding == "quoted-printable"
    assert max(len(line) for line in body.content.split(b"\r\n")) <= 76
    assert decode(body.content, body.encoding) == b"A" * 3000 + b"\r\nend\r\n"


def test_the_shorter_encoding_is_taken() -> None:
    """Text with few characters outside ASCII is quoted, text full of them is base64."""
    assert text_body("A short text with one é\n").encoding == "quoted-printable"
    assert text_body("Счёт за март\n").encoding == "base64"


def test_a_piece_of_a_wrapped_line_does_not_begin_with_a_dot_or_from() -> None:
    """A soft line break brings no dot and no From to the front of a line."""
    text = "x" * 75 + "." + "y" * 74 + "From " + "z" * 60 + "é\n"
    body = text_body(text)
    assert body.encoding == "quoted-printable"
    assert not any(line.startswith((b".", b"From ")) for line in body.content.split(b"\r\n"))
    assert decode(body.content, body.encoding).decode() == text.replace("\n", "\r\n")


@pytest.mark.parametrize("lead", range(70, 80))
@pytest.mark.parametrize("closing", [False, True])
def test_no_escape_is_cut_in_two(lead: int, *, closing: bool) -> None:
    """Wherever the soft line break falls, each escape stays in one piece."""
    text = "a" * lead + "é" + "b" * 300
    body = text_body(text, closing=closing)
    assert body.encoding == "quoted-printable"
    assert decode(body.content, body.encoding).decode() == text


@pytest.mark.parametrize("text", ["hello", "Grüße", "Счёт", "a" * 75, "a" * 76, "a\nb ", "é" * 200])
def test_a_text_without_last_line_end_gets_none(text: str) -> None:
    """The line end that closes a message is not added to the text."""
    body = text_body(text, closing=True)
    assert body.content.endswith(b"\r\n")
    assert decode(body.content, body.encoding).decode() == text.replace("\n", "\r\n")


def test_raw_utf8_only_where_the_server_takes_it() -> None:
    """B16: UTF-8 goes raw with 8BITMIME, in short lines; without it no octet is above 127."""
    assert text_body("Grüße\n", eight_bit=True) == Body("8bit", "Grüße\r\n".encode(), "utf-8")
    assert text_body("é" * 40 + "\n", eight_bit=True).encoding == "base64"
    assert text_body("plain\n", eight_bit=True).encoding == "7bit"
    assert text_body("From Köln\n", eight_bit=True).encoding != "8bit"
    assert text_body("Köln \n", eight_bit=True).encoding != "8bit"
    assert text_body("Grüße aus Köln\n").content.isascii()


def test_line_ends_become_crlf() -> None:
    """CRLF, a lone CR and a lone LF are each one line end."""
    assert normalised("a\r\nb\rc\nd\r\r\n\n") == "a\r\nb\r\nc\r\nd\r\n\r\n\r\n"
    assert text_body("a\rb\n").content == b"a\r\nb\r\n"


def test_half_a_character_is_refused() -> None:
    """B17: a lone surrogate in a body is refused by name."""
    with pytest.raises(InvalidField, match=r"^text: holds U\+D83D"):
        text_body("x \ud83d y")


@pytest.mark.parametrize("content", [b"", b"a", b"x" * 57, b"x" * 58, bytes(range(256)) * 9])
def test_base64(content: bytes) -> None:
    """Any octets come back, in lines of at most 76."""
    assert decode(encode_base64(content).content, "base64") == content


def test_a_message_inside_a_message_is_not_encoded() -> None:
    """A message travels as it is or not at all."""
    assert encode_message(b"A: b\n\nhi\r.\r\n", eight_bit=False) == Body(
        "7bit", b"A: b\r\n\r\nhi\r\n.\r\n"
    )
    utf8 = "A: b\n\nGrüße".encode()
    assert encode_message(utf8, eight_bit=False) is None
    assert encode_message(utf8, eight_bit=True) == Body("8bit", utf8.replace(b"\n", b"\r\n"))
    assert encode_message(b"x" * 998, eight_bit=True) is not None
    assert encode_message(b"x" * 999, eight_bit=True) is None
    assert encode_message(b"a\0", eight_bit=True) is None
