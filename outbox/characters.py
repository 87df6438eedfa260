"""What text may hold before it becomes part of a message.

Three things go wrong with text. A line break (CR, LF, and what some readers take
for one: U+0085, U+2028, U+2029) in a header starts a header of somebody else's
choosing. NUL cannot be stored by PostgreSQL and cuts a message short at some
servers. Half of a surrogate pair has no UTF-8 form, so that the row could neither
be stored nor sent, at every attempt anew. All are refused here, before there is
a row.

A tab is allowed in a line: it is white space of RFC 5322, and harmless.
"""

from __future__ import annotations

import re
from typing import Final

from outbox.errors import InvalidMessage
from outbox.shapes import kind

_NOT_IN_A_LINE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_NOT_IN_TEXT: Final = re.compile(r"[\x00\ud800-\udfff]")
_NAMES: Final = {
    "\x00": "NUL",
    "\n": "a line break",
    "\r": "a carriage return",
    "\x85": "a line break",
    "\u2028": "a line break",
    "\u2029": "a line break",
}


def check_line(field: str, value: object, maximum: int) -> str:
    """``value`` as one line of text of at most ``maximum`` characters.

    Raises InvalidMessage for ``field`` if it is no text, too long, or holds a
    control character (a tab is allowed), a line break or a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidMessage(field, f"is {kind(value)}, not text")
    if len(value) > maximum:
        raise InvalidMessage(field, f"has {len(value):,} characters; at most {maximum:,}")
    if not value.isprintable() and (found := _NOT_IN_A_LINE.search(value)):
        raise InvalidMessage(field, f"contains {_described(found)}; one line of text is allowed")
    return value if type(value) is str else str.__str__(value)


def check_text(field: str, value: object, maximum: int) -> str:
    """``value`` as text of any number of lines, at most ``maximum`` octets in UTF-8.

    Raises InvalidMessage for ``field`` if it is no text, too long, or holds NUL
    or a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidMessage(field, f"is {kind(value)}, not text")
    if value.isascii():
        size, clean = len(value), "\0" not in value
    elif clean := _NOT_IN_TEXT.search(value) is None:
        size = len(value.encode())
    if not clean and (found := _NOT_IN_TEXT.search(value)):
        raise InvalidMessage(field, f"contains {_described(found)}; no mail can carry it")
    if size > maximum:
        raise InvalidMessage(field, f"has {size:,} bytes; at most {maximum:,}")
    return value if type(value) is str else str.__str__(value)


def _described(found: re.Match[str]) -> str:
    character = found[0]
    name = "half of a surrogate pair" if "\ud800" <= character <= "\udfff" else ""
    name = name or _NAMES.get(character, "a control character")
    return f"{name} (U+{ord(character):04X}) at character {found.start() + 1}"
