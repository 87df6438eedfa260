"""A strict reader of MIME bodies, written from RFC 2045 and RFC 2046."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.wire_header import Malformed, fields, parameters, split

_BOUNDARY = re.compile(r"[A-Za-z0-9'()+_,\-./:=? ]{0,69}[A-Za-z0-9'()+_,\-./:=?]")
_QP_LINE = re.compile(rb"(?:[\t -<>-~]|=[0-9A-F]{2})*=?")
_ENCODINGS = frozenset({"7bit", "8bit", "quoted-printable", "base64"})
_CODED_LINE = 76


@dataclass(frozen=True, slots=True)
class Part:
    """One leaf of the tree; ``path`` names the multiparts above it, outermost first."""

    path: tuple[str, ...]
    content_type: str
    parameters: dict[str, str]
    headers: dict[str, str]
    encoding: str
    raw: bytes = field(repr=False)
    content: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The decoded text in the declared charset."""
        return self.content.decode(self.parameters.get("charset", "us-ascii"))

    @property
    def disposition(self) -> str:
        """``attachment``, ``inline`` or empty."""
        return parameters(self.headers.get("content-disposition", ""))[0]

    @property
    def filename(self) -> str | None:
        """The decoded file name."""
        return parameters(self.headers.get("content-disposition", ""))[1].get("filename")


def body_parts(raw: bytes) -> list[Part]:
    """All leaves in order; raises Malformed for anything a careful sender would not write."""
    return list(_entity(raw, ()))


def decode(content: bytes, encoding: str) -> bytes:
    """``content`` without its transfer encoding; Malformed where it breaks the rules."""
    lines = content.split(b"\r\n")
    if encoding in {"quoted-printable", "base64"} and any(len(ln) > _CODED_LINE for ln in lines):
        raise Malformed(f"a line of {encoding} is longer than {_CODED_LINE}")
    if encoding == "base64":
        try:
            return base64.b64decode(b"".join(lines), validate=True)
        except binascii.Error as error:
            raise Malformed(f"not base64: {error}") from error
    if encoding == "quoted-printable":
        return _unquoted(lines)
    if encoding == "7bit" and not content.isascii():
        raise Malformed("octets above 127 in 7bit")
    if b"\0" in content:
        raise Malformed(f"NUL in {encoding}")
    return content


def _unquoted(lines: list[bytes]) -> bytes:
    result = b""
    for position, line in enumerate(lines):
        if not _QP_LINE.fullmatch(line) or line.endswith((b" ", b"\t")):
            raise Malformed(f"not quoted-printable: {line!r}")
        soft = line.endswith(b"=")
        if soft and position == len(lines) - 1:
            raise Malformed("the body ends inside a soft line break")
        text = line.removesuffix(b"=") if soft else line
        result += re.sub(rb"=([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), text)
        if not soft and position < len(lines) - 1:
            result += b"\r\n"
    return result


def _entity(octets: bytes, path: tuple[str, ...]) -> Iterator[Part]:
    headers = {name.lower(): value for name, value in fields(octets)}
    kind, settings = parameters(headers.get("content-type", "text/plain; charset=us-ascii"))
    encoding = headers.get("content-transfer-encoding", "7bit").lower()
    if encoding not in _ENCODINGS:
        raise Malformed(f"unknown encoding {encoding!r}")
    body = split(octets)[1]
    main, _, subtype = kind.lower().partition("/")
    if main == "multipart":
        if encoding not in {"7bit", "8bit"}:
            raise Malformed(f"{kind} is encoded as {encoding}")
        if encoding == "7bit" and not body.isascii():
            raise Malformed(f"{kind} says 7bit and holds octets above 127")
        children = _children(body, settings.get("boundary", ""))
        if subtype == "related" and "type" not in settings:
            raise Malformed("multipart/related without type (RFC 2387)")
        for child in children:
            yield from _entity(child, (*path, subtype))
        return
    if kind.lower() == "message/rfc822" and encoding not in {"7bit", "8bit"}:
        raise Malformed(f"{kind} is encoded as {encoding} (RFC 2046, 5.2.1)")
    part = Part(path, kind, settings, headers, encoding, body, decode(body, encoding))
    if main == "text":
        _check_text(part)
    yield part


def _check_text(part: Part) -> None:
    if "charset" not in part.parameters and part.disposition:
        return
    try:
        text = part.text
    except (UnicodeDecodeError, LookupError) as error:
        raise Malformed(f"{part.content_type}: text is not in its charset: {error}") from error
    if not part.disposition and re.search(r"(?<!\r)\n|\r(?!\n)", text):
        raise Malformed(f"{part.content_type}: a line end that is not CRLF (RFC 2046, 4.1.1)")


def _children(body: bytes, boundary: str) -> list[bytes]:
    if not _BOUNDARY.fullmatch(boundary):
        raise Malformed(f"not a boundary: {boundary!r}")
    mark = b"--" + boundary.encode("ascii")
    pieces = re.split(rb"(?:\A|\r\n)" + re.escape(mark) + rb"(--)?[ \t]*(?=\r\n|\Z)", body)
    if body.count(mark) != len(pieces) // 2:
        raise Malformed("the boundary occurs inside a part")
    if len(pieces) < 5 or pieces[-2] != b"--" or any(pieces[1:-2:2]):
        raise Malformed("no part, or no closing boundary, or more than one")
    if pieces[0] or pieces[-1].strip(b"\r\n"):
        raise Malformed("text before the first or after the last boundary")
    return [piece.removeprefix(b"\r\n") for piece in pieces[2:-2:2]]
