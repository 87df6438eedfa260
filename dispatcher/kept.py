r"""A request as it is kept for a replay: every byte of it, large attachments by reference. Pure.

A replay must send what was sent. But an attachment is stored already, once, by its digest;
writing it again as base64 before every transmission would double the database. So a kept
request is a list of pieces: literal bytes, or "the content with this digest, encoded so".

    postroom-kept 1\n
    [[12, null], ["<sha256>", "base64"], [7, null]]\n
    <the literal bytes, one piece after the other>
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

WORTH_A_REFERENCE = 512
"""Bytes of content below which a reference would not be shorter than the content."""

_MAGIC = b"postroom-kept 1\n"


def _lines(content: bytes) -> bytes:
    """Base64 in lines of 76 characters (RFC 2045 6.8), as in MIME."""
    text = base64.b64encode(content)
    return b"\r\n".join(text[i : i + 76] for i in range(0, len(text), 76))


_ENCODINGS: dict[str, Callable[[bytes], bytes]] = {"base64": base64.b64encode, "lines": _lines}


def frozen(request: bytes, contents: Mapping[str, bytes]) -> bytes:
    """``request`` in kept form; ``contents`` are the attachments by SHA-256."""
    pieces: list[bytes | tuple[str, str]] = [request]
    for digest, content in sorted(contents.items()):
        if len(content) >= WORTH_A_REFERENCE:
            for name, encode in _ENCODINGS.items():
                pieces = _replaced(pieces, encode(content), (digest, name))
    plan = [[len(p), None] if isinstance(p, bytes) else list(p) for p in pieces]
    literal = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    return _MAGIC + json.dumps(plan, separators=(",", ":")).encode() + b"\n" + literal


def thawed(kept: bytes, contents: Mapping[str, bytes]) -> bytes:
    """The request that :func:`frozen` was given.

    Raises ValueError when it is not of that form, KeyError when a content is missing.
    """
    if not kept.startswith(_MAGIC):
        raise ValueError("a kept request of another version")
    header, _, literal = kept[len(_MAGIC) :].partition(b"\n")
    parts: list[bytes] = []
    at = 0
    for first, encoding in json.loads(header):
        if encoding is None:
            parts.append(literal[at : at + first])
            at += first
        else:
            parts.append(_ENCODINGS[encoding](contents[first]))
    return b"".join(parts)


def _replaced(
    pieces: list[bytes | tuple[str, str]], encoded: bytes, reference: tuple[str, str]
) -> list[bytes | tuple[str, str]]:
    found: list[bytes | tuple[str, str]] = []
    for piece in pieces:
        if not isinstance(piece, bytes) or encoded not in piece:
            found.append(piece)
            continue
        for index, part in enumerate(piece.split(encoded)):
            if index:
                found.append(reference)
            if part:
                found.append(part)
    return found
