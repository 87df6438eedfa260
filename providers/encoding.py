"""Text as a header field carries it: encoded-words, quoted strings, folded lines.

A header is ASCII in short lines, and whoever reads it puts the lines together
again before it looks at them. Three things go wrong in other encoders, and
each has one answer here:

* *A line is broken where the reader does not join it.* Here a field is made of
  words; lines break only before a word, and a break replaces nothing: the one
  space that stood there stays. The first word stays beside the field name,
  because some readers take a field whose first line is empty for an empty field.
* *An encoded-word swallows syntax, or splits a character.* Here only free text
  is ever encoded, never a comma, an address or an identifier, and each
  encoded-word holds whole characters and can be decoded alone (RFC 2047, 5).
* *Text that only looks encoded is decoded by the reader*, and what comes out may
  hold a line end. Here every text with ``=?`` in it is encoded once more, so
  that the reader gets back exactly what the producer wrote.

Nothing here asks Python for Unicode properties: they differ between versions,
and the bytes of a message must not.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

WIDTH = 76
"""Octets of a line that holds an encoded-word (RFC 2047, 2); used for every line."""

LINE_LIMIT = 998
"""Octets of any line, its line end not counted (RFC 5322, 2.1.1)."""

WORD_LIMIT = 75
"""Octets of one encoded-word (RFC 2047, 2)."""

ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
"""Inside of a character class: what an atom is made of (RFC 5322, 3.2.3)."""

_WRAPPER = len("=?utf-8?q??=")
_SMALLEST_ROOM = 36
_REFUSED = re.compile("[\x00-\x08\x0a-\x1f\x85\u2028\u2029\ud800-\udfff]")
_PRINTABLE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")
_SINGLE_SPACE = re.compile(r"(?<=[^ \t]) (?=[^ \t])")
_PHRASE = re.compile(rf"[{ATEXT}]+(?: [{ATEXT}]+)*")
_Q_LITERAL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/")
_SPACE = ord(" ")
_QUOTED_LIMIT = 62
_ATOM_LIMIT = 60


class WireError(ValueError):
    """This message cannot be put on the wire, now or later."""


class InvalidField(WireError):
    """A field of the message cannot be written. ``field`` is its path (``to[1].name``)."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NeedsSmtpUtf8(WireError):
    """The mailbox name of ``address`` is not ASCII, and the server takes only ASCII (RFC 6531)."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address}: the part before the @ is not ASCII and the server lacks SMTPUTF8; "
            "send to an ASCII address"
        )
        self.address = address


def refuse_controls(field: str, text: str) -> str:
    """``text`` itself, if a header may carry it.

    Raises InvalidField for a control character other than tab, for U+0085,
    U+2028 and U+2029, which some readers take for line ends, and for half of a
    surrogate pair.
    """
    found = _REFUSED.search(text)
    if found:
        half = "\ud800" <= found[0] <= "\udfff"
        kind = "half a character" if half else "a control character or line break"
        raise InvalidField(field, f"holds U+{ord(found[0]):04X}, {kind}; remove it")
    return text


class Field:
    """One header field while it is written: words go in, folded lines come out."""

    def __init__(self, name: str, *, path: str = "") -> None:
        self._path = path or name
        self._lines = [f"{name}:"]
        self._empty = True

    def room(self, width: int = WIDTH) -> int:
        """Octets that a word may still have on the current line, if lines have ``width``."""
        return width - len(self._lines[-1].encode()) - 1

    def add(self, word: str, *, beside_name: bool = True) -> None:
        """Append one word; ``beside_name`` keeps a first word on the line of the name."""
        stays = self._empty and beside_name
        self._empty = False
        if stays or len(word.encode()) <= self.room():
            self._lines[-1] += f" {word}"
        else:
            self._lines.append(f" {word}")

    def add_encoded(self, text: str) -> None:
        """Append ``text`` as encoded-words, filling the current line first."""
        first = self.room() if self.room() >= _SMALLEST_ROOM else WORD_LIMIT
        for word in encoded_words(text, first=first):
            self.add(word, beside_name=False)

    def render(self) -> bytes:
        """The field with its line end; raises InvalidField when a line is too long to be mail."""
        lines = [line.encode() for line in self._lines]
        longest = max(len(line) for line in lines)
        if longest > LINE_LIMIT:
            raise InvalidField(
                self._path,
                f"makes a line of {longest} octets and mail allows {LINE_LIMIT}; shorten it",
            )
        return b"\r\n".join(lines) + b"\r\n"


def encoded_words(text: str, *, first: int = WORD_LIMIT) -> list[str]:
    """``text`` as encoded-words of at most 75 octets, the first of at most ``first`` (24 to 75).

    The whole text is written in the shorter of the two encodings (RFC 2047, 4),
    Q if both are equal. No word splits a character.
    """
    data = text.encode()
    q_size = sum(1 if octet in _Q_LITERAL or octet == _SPACE else 3 for octet in data)
    if 4 * -(-len(data) // 3) < q_size:
        return [
            f"=?utf-8?b?{base64.b64encode(chunk.encode()).decode('ascii')}?="
            for chunk in _chunks(text, first=first, binary=True)
        ]
    return [f"=?utf-8?q?{_q(chunk)}?=" for chunk in _chunks(text, first=first, binary=False)]


def _chunks(text: str, *, first: int, binary: bool) -> Iterator[str]:
    start = used = 0
    room = min(first, WORD_LIMIT) - _WRAPPER
    for position, character in enumerate(text):
        # At most 12 octets, and the smallest word has room for them.
        size = len(character.encode()) if binary else len(_q(character))
        capacity = room // 4 * 3 if binary else room
        if used + size > capacity:
            yield text[start:position]
            start, used, room = position, 0, WORD_LIMIT - _WRAPPER
        used += size
    if text:
        yield text[start:]


def _q(text: str) -> str:
    return "".join(
        chr(octet) if octet in _Q_LITERAL else "_" if octet == _SPACE else f"={octet:02X}"
        for octet in text.encode()
    )


def add_text(field: Field, text: str, *, for_people: bool) -> None:
    """Append unstructured text (RFC 5322, 3.2.5) to a field that has only its name.

    Words of printable ASCII stay as they are. Everything from the first to the
    last other word becomes one run of encoded-words, the spaces in between
    included, since white space between two encoded-words is dropped by the
    reader. A word too long for a folded line is encoded ``for_people``; what
    programs read stays raw as long as a line may be, since they seldom decode.
    """
    words = _SINGLE_SPACE.split(text) if text else []
    width = WIDTH if for_people else LINE_LIMIT
    limits = [field.room(width), *[width - 1] * len(words)]
    odd = [
        position
        for position, (word, limit) in enumerate(zip(words, limits, strict=False))
        if not is_plain(word) or len(word) > limit
    ]
    first, last = (odd[0], odd[-1] + 1) if odd else (len(words), len(words))
    for word in words[:first]:
        field.add(word)
    if odd:
        field.add_encoded(" ".join(words[first:last]))
    for word in words[last:]:
        field.add(word)


def is_plain(word: str) -> bool:
    """Whether ``word`` is printable ASCII without outer white space and nothing to decode."""
    return _PRINTABLE.fullmatch(word) is not None and "=?" not in word


def add_phrase(field: Field, name: str) -> None:
    """Append a display name (RFC 5322, 3.2.5) as atoms, a quoted string or encoded-words.

    A quoted string is never folded and never holds what looks like an
    encoded-word: readers disagree about both.
    """
    if "=?" not in name and _PHRASE.fullmatch(name):
        words = name.split(" ")
        if all(len(word) <= _ATOM_LIMIT for word in words):
            for word in words:
                field.add(word)
            return
    quoted = quote(name)
    printable = all(" " <= character <= "~" for character in name)
    if printable and "=?" not in name and len(quoted) <= _QUOTED_LIMIT:
        field.add(quoted)
    else:
        field.add_encoded(name)


def quote(text: str) -> str:
    """``text`` as a quoted string (RFC 5322, 3.2.4)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
