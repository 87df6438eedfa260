"""Reads a message as it appeared on the wire and says what is wrong with it.

Strict on purpose: everything that RFC 5322, 2045, 2046, 2047, 2231, 2369, 8058
and 3834 ask of a sender. It decides by itself, without Python's ``email``
package, so that a fault there cannot hide itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.wire_body import Part, body_parts
from tests.wire_header import (
    Malformed,
    decode_word,
    decode_words,
    fields,
    get,
    mailboxes,
    parameters,
    split,
)

__all__ = [
    "Malformed",
    "Part",
    "body_parts",
    "decode_words",
    "fields",
    "get",
    "mailboxes",
    "parameters",
    "problems",
]

_LINE = 998
_WORD_LINE = 76
_WORD = 75
_ONCE = frozenset(
    {
        "auto-submitted",
        "cc",
        "content-disposition",
        "content-id",
        "content-transfer-encoding",
        "content-type",
        "date",
        "from",
        "in-reply-to",
        "list-unsubscribe",
        "list-unsubscribe-post",
        "message-id",
        "mime-version",
        "references",
        "reply-to",
        "sender",
        "subject",
        "to",
    }
)
_NEEDED = frozenset({"date", "from", "message-id"})
_LOOKS_ENCODED = re.compile(r"=\?[^?\s]*\?[bBqQ]\?[^?\s]*\?=")
_ID = r"<[!-;=?A-~]+@(?:[!-;=?A-Z^-~]+|\[[!-Z^-~]+\])>"
_CONTENT_ID = r"<[!-;=?-~]+>"
_URL = r"<(?:https://|mailto:)[!-;=?-~]+>"
_GRAMMARS = {
    "message-id": _ID,
    "in-reply-to": rf"{_ID}(?:[ \t]+{_ID})*",
    "references": rf"{_ID}(?:[ \t]+{_ID})*",
    "content-id": _CONTENT_ID,
    "mime-version": r"1\.0",
    "content-transfer-encoding": r"7bit|8bit|quoted-printable|base64",
    "list-unsubscribe": rf"{_URL}(?:,[ \t]*{_URL})*",
    "list-unsubscribe-post": r"List-Unsubscribe=One-Click",
    "auto-submitted": r"[a-z0-9\-]+(?:;[ \t]*[a-z0-9\-]+=[^;]+)*",
    "date": (
        r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-3][0-9] "
        r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} "
        r"[0-2][0-9]:[0-5][0-9]:[0-6][0-9] [+-][0-9]{4}"
    ),
}
_ADDRESSES = frozenset({"from", "to", "cc", "reply-to", "sender"})
_MIME = frozenset({"content-type", "content-disposition"})


def problems(raw: bytes, *, smtputf8: bool = False) -> list[str]:
    """What is wrong with the message; empty when nothing is."""
    return [
        *_octets(raw),
        *_header_block(raw, smtputf8=smtputf8),
        *_field_set(raw),
        *(problem for name, value in fields(raw) for problem in _field(name, value)),
        *_bodies(raw),
    ]


def _octets(raw: bytes) -> list[str]:
    found = []
    if re.search(rb"(?<!\r)\n", raw):
        found.append("bare LF")
    if re.search(rb"\r(?!\n)", raw):
        found.append("bare CR")
    if b"\0" in raw:
        found.append("NUL")
    if not raw.endswith(b"\r\n"):
        found.append("the last line has no end")
    found += [
        f"line {number} has {len(line)} octets"
        for number, line in enumerate(raw.split(b"\r\n"), 1)
        if len(line) > _LINE
    ]
    return found


def _header_block(raw: bytes, *, smtputf8: bool) -> list[str]:
    head = split(raw)[0]
    found = []
    if not head.isascii():
        if smtputf8:
            try:
                head.decode("utf-8")
            except UnicodeDecodeError:
                found.append("the header is not UTF-8")
        else:
            found.append("octet above 127 in the header")
    for line in head.split(b"\r\n")[:-1]:
        if not line.strip(b" \t"):
            found.append("a header line of white space only")
        if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", line):
            found.append(f"control character in {line!r}")
        if len(line) > _WORD_LINE and _LOOKS_ENCODED.search(line.decode("utf-8", "replace")):
            found.append(f"line of {len(line)} octets with an encoded-word")
    return found


def _field_set(raw: bytes) -> list[str]:
    names = [name.lower() for name, _ in fields(raw)]
    found = [f"{name} is missing" for name in sorted(_NEEDED - set(names))]
    found += [f"{name} stands {names.count(name)} times" for name in _ONCE if names.count(name) > 1]
    found += [f"{name} shows blind recipients" for name in names if name.endswith("bcc")]
    if "list-unsubscribe-post" in names and "https://" not in (get(raw, "List-Unsubscribe") or ""):
        found.append("one-click without an https URL")
    return found


def _field(name: str, value: str) -> list[str]:
    low = name.lower()
    if not re.fullmatch(r"[!-9;-~]+", name):
        return [f"{name!r} is no field name"]
    check: Callable[[str], object] | None = None
    if low in _ADDRESSES:
        check = mailboxes
    elif low in _MIME:
        check = parameters
    elif low in _GRAMMARS:
        if re.fullmatch(_GRAMMARS[low], value) is None:
            return [f"{name}: breaks its grammar: {value!r}"]
    else:
        check = decode_words
    found = []
    if check is not None:
        try:
            check(value)
        except (Malformed, UnicodeDecodeError) as error:
            found.append(f"{name}: {error}")
    return found + _words(name, value)


def _words(name: str, value: str) -> list[str]:
    found = []
    for match in _LOOKS_ENCODED.finditer(value):
        if len(match[0]) > _WORD:
            found.append(f"{name}: encoded-word of {len(match[0])} octets")
        try:
            decode_word(match[0])
        except Malformed as error:
            found.append(f"{name}: {error}")
        around = value[: match.start()][-1:] + value[match.end() :][:1]
        if around.strip(" \t"):
            found.append(f"{name}: encoded-word without a space beside it")
        if name.lower() in _GRAMMARS or name.lower() in _MIME:
            found.append(f"{name}: encoded-word in a structured field")
    return found


def _bodies(raw: bytes) -> list[str]:
    if get(raw, "MIME-Version") is None:
        return ["MIME-Version is missing"]
    try:
        parts = body_parts(raw)
    except Malformed as error:
        return [f"body: {error}"]
    return [
        problem
        for part in parts
        if part.path
        for name, value in part.headers.items()
        for problem in _field(name, value)
    ]
