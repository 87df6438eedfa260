"""Bodies in a transfer encoding: what the reader decodes is what the producer wrote.

A body passes servers that cut long lines, strip white space at their ends,
write ``>`` before ``From``, and count dots. None of that may change a
character, or a signature made before it (RFC 2045, 6; RFC 2049, 3). So text
goes raw only if nothing on the way has a reason to touch it:

* every line has at most 78 octets. Mail allows 998, but 78 is what RFC 5322,
  2.1.1 asks for, and longer lines are wrapped again by servers that mean well;
* no white space at a line's end, no line that begins with ``From``, no
  control character but tab;
* the text ends with a line end, or a boundary follows that brings one.

Everything else is quoted-printable or base64, whichever is shorter. Lines that
begin with a dot stay raw: doubling it is the duty of SMTP (RFC 5321, 4.5.2).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from providers.encoding import LINE_LIMIT, InvalidField

_WIDTH = 78
_CODED_WIDTH = 76

_LINE_END = re.compile(r"\r\n|\r|\n")
_LINE_END_OCTETS = re.compile(rb"\r\n|\r|\n")
_RAW_7BIT = re.compile(rb"(?!From )(?:[\t -~]*[!-~])?")
_RAW_8BIT = re.compile(rb"(?!From )(?:[\t -~\x80-\xff]*[!-~\x80-\xff])?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_QP_UNSAFE = re.compile(rb"[^\t -<>-~]|[\t ]\Z")


@dataclass(frozen=True, slots=True)
class Body:
    """An encoded body. ``content`` lacks the line end that a boundary brings."""

    encoding: str
    content: bytes = field(repr=False)
    charset: str = ""


def normalised(text: str) -> str:
    """``text`` with every line end (CRLF, lone CR, lone LF) as CRLF."""
    return _LINE_END.sub("\r\n", text)


def encode_text(text: str, *, eight_bit: bool, closing: bool, path: str) -> Body:
    """A text body, its line ends normalised and nothing else changed.

    ``eight_bit`` allows raw UTF-8 (RFC 6152); ``closing`` says that the body
    ends the message, so that no boundary brings its last line end. ``path`` is
    named when the text holds half a surrogate pair (InvalidField).
    """
    found = _SURROGATE.search(text)
    if found:
        raise InvalidField(path, f"holds U+{ord(found[0]):04X}, half a character; remove it")
    data = normalised(text).encode()
    charset = "us-ascii" if data.isascii() else "utf-8"
    open_end = closing and bool(data) and not data.endswith(b"\r\n")
    lines = data.split(b"\r\n")
    raw = _RAW_8BIT if eight_bit else _RAW_7BIT
    if not open_end and all(len(line) <= _WIDTH and raw.fullmatch(line) for line in lines):
        return Body("7bit" if data.isascii() else "8bit", data, charset)
    # "=" before the line end takes the line end away again (RFC 2045, 6.7, rule 5).
    quoted = b"\r\n".join(_quoted_printable(lines, open_end=open_end))
    in_base64 = encode_base64(data, closing=closing)
    if len(in_base64.content) < len(quoted):
        return Body("base64", in_base64.content, charset)
    return Body("quoted-printable", quoted, charset)


def encode_base64(content: bytes, *, closing: bool = False) -> Body:
    """Any octets, in lines of 76 (RFC 2045, 6.8)."""
    code = base64.b64encode(content)
    lines = [code[start : start + _CODED_WIDTH] for start in range(0, len(code), _CODED_WIDTH)]
    end = b"\r\n" if closing and lines else b""
    return Body("base64", b"\r\n".join(lines) + end)


def encode_message(content: bytes, *, eight_bit: bool) -> Body | None:
    """A message inside a message, which may not be encoded (RFC 2046, 5.2.1).

    Its line ends become CRLF. None when it cannot travel as it is: a line too
    long, a NUL, or an octet above 127 without ``eight_bit``.
    """
    data = _LINE_END_OCTETS.sub(b"\r\n", content)
    if b"\0" in data or any(len(line) > LINE_LIMIT for line in data.split(b"\r\n")):
        return None
    if data.isascii():
        return Body("7bit", data)
    return Body("8bit", data) if eight_bit else None


def _quoted_printable(lines: list[bytes], *, open_end: bool) -> Iterator[bytes]:
    for position, line in enumerate(lines):
        is_open = open_end and position == len(lines) - 1
        yield from _soft_lines(_QP_UNSAFE.sub(_escape, line), is_open=is_open)
    if open_end:
        yield b""


def _escape(match: re.Match[bytes]) -> bytes:
    return b"=%02X" % match[0][0]


def _soft_lines(line: bytes, *, is_open: bool) -> Iterator[bytes]:
    """One encoded line in pieces of at most 76 octets, none cutting ``=XX`` in two."""
    limit = _CODED_WIDTH - 1 if is_open else _CODED_WIDTH
    while True:
        # A piece is a line on the wire: some servers touch these two (RFC 2049, 3).
        if line.startswith((b".", b"From ")):
            line = b"=%02X" % line[0] + line[1:]
        if len(line) <= limit:
            yield line + (b"=" if is_open else b"")
            return
        cut = _CODED_WIDTH - 1
        cut -= next((back for back in (1, 2) if line[cut - back : cut - back + 1] == b"="), 0)
        yield line[:cut] + b"="
        line = line[cut:]
