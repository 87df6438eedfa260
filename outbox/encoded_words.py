"""Display names that arrive in the form they have on the wire (RFC 2047).

Producers copy names from other mails, where ``Zoë`` reads ``=?utf-8?q?Zo=C3=AB?=``.
Sent as it is, a name like that is at the mercy of every program that refolds it; so
it is decoded once, at enqueue, and encoded by the renderer.

Decoding must not bring in what plain text may not hold: an encoded word can hide a
line break, and with it a header. Such text stays literal as a whole. It also stays
literal if what comes out holds an encoded word again; therefore decoding twice is
the same as decoding once, and a stored name never changes when it is read back.
"""

from __future__ import annotations

import binascii
import quopri
import re
from typing import Final

_ENCODED_WORD: Final = re.compile(
    r"(?<!\S)=\?(?P<charset>[A-Za-z0-9_-]+)(?:\*[A-Za-z0-9-]*)?"
    r"\?(?P<encoding>[BbQq])\?(?P<text>[!->@-~]*)\?=(?!\S)"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CODECS: Final = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    **{f"iso-8859-{n}": f"iso8859-{n}" for n in (*range(1, 12), *range(13, 17))},
    **{f"windows-{n}": f"cp{n}" for n in range(1250, 1259)},
    **{
        name: name
        for name in (
            *("koi8-r", "koi8-u", "gb2312", "gbk", "gb18030", "big5"),
            *("shift_jis", "iso-2022-jp", "euc-jp", "euc-kr"),
        )
    },
}
"""Closed, so that no Python version decodes what another leaves alone."""

_Segment = tuple[str, bytes]
"""A charset and octets in it; plain text is UTF-8."""


def decode_words(text: str) -> str:
    """``text`` with its encoded words decoded, or ``text`` itself.

    Left alone as a whole: unknown charsets, octets that do not fit theirs, and
    whatever would decode to a control character or to another encoded word.
    """
    if "=?" not in text:
        return text
    try:
        decoded = "".join(octets.decode(_CODECS[name]) for name, octets in _segments(text))
    except (KeyError, ValueError):
        return text
    if _CONTROL.search(decoded) or _ENCODED_WORD.search(decoded):
        return text
    return decoded


def _segments(text: str) -> list[_Segment]:
    segments: list[_Segment] = []
    end = 0
    for word in _ENCODED_WORD.finditer(text):
        between = text[end : word.start()]
        # White space between two encoded words is not shown (RFC 2047 section 6.2).
        if between and not (end and between.isspace()):
            segments.append(("utf-8", between.encode()))
        charset, octets = word["charset"].lower(), _octets(word)
        # Some senders split one character over two words; joined, it can be read.
        if segments and end and segments[-1][0] == charset and between.isspace():
            octets = segments.pop()[1] + octets
        segments.append((charset, octets))
        end = word.end()
    return [*segments, ("utf-8", text[end:].encode())]


def _octets(word: re.Match[str]) -> bytes:
    encoded = word["text"].encode("ascii")
    if word["encoding"] in "Bb":
        return binascii.a2b_base64(encoded, strict_mode=True)
    return quopri.decodestring(encoded, header=True)
