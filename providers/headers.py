"""Header fields as they go over the wire: each function returns one whole field.

A field comes back folded, in octets, with its line end. Which syntax a field
has decides how it may be written: text is encoded, a list of addresses is
encoded only in its names, an identifier or a structured value is never
encoded. :mod:`providers.encoding` says what goes wrong otherwise.

What a field may not hold is refused with :class:`InvalidField`, which names
the field of the message. Messages are checked when they are enqueued; this is
the second wall, and it stands right before the socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from urllib.parse import quote as percent

from providers.addresses import ascii_address, ascii_domain, needs_smtputf8
from providers.contract import Address
from providers.encoding import (
    WIDTH,
    Field,
    InvalidField,
    NeedsSmtpUtf8,
    WireError,
    add_phrase,
    add_text,
    quote,
    refuse_controls,
)

__all__ = [
    "InvalidField",
    "NeedsSmtpUtf8",
    "WireError",
    "address_list",
    "ascii_address",
    "date",
    "message_id",
    "message_ids",
    "needs_smtputf8",
    "parameterised",
    "structured",
    "unstructured",
]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_ID = re.compile(r"<[!-;=?-~]+@[!-;=?-~]+>")
_ASCII = re.compile(r"[\t -~]*")
_LOOKS_ENCODED = re.compile(r"=\?[^?\s]+\?[bBqQ]\?[^?\s]*\?=")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`{|}~\-]+")
_QUOTABLE = re.compile(r"[ !#-\[\]-~]*")
_SAFE_IN_PARAMETER = "!#$&+^`|"
_SINGLE_SPACE = re.compile(r"(?<=[^ \t]) (?=[^ \t])")


def unstructured(name: str, text: str, *, path: str = "", for_people: bool = True) -> bytes:
    """A field of free text, such as Subject; decoded, it equals ``text``.

    ``for_people`` encodes a word too long for a line; what programs read keeps
    it raw. ``path`` is named in the error. Source: RFC 5322, 3.6.5; RFC 2047.
    """
    field = Field(name, path=path)
    add_text(field, refuse_controls(path or name, text), for_people=for_people)
    return field.render()


def address_list(
    name: str, addresses: Sequence[Address], *, smtputf8: bool, path: str = ""
) -> bytes:
    """A field of mailboxes, such as To; names are encoded, addresses and commas never.

    Raises InvalidField for ``path[i].name`` or ``path[i].address``, and
    NeedsSmtpUtf8. Source: RFC 5322, 3.4; RFC 2047, 5 (3).
    """
    field = Field(name, path=path)
    for position, mailbox in enumerate(addresses):
        where = f"{path or name}[{position}]"
        separator = "," if position < len(addresses) - 1 else ""
        spec = ascii_address(mailbox.address, smtputf8=smtputf8, field=f"{where}.address")
        if mailbox.name:
            add_phrase(field, refuse_controls(f"{where}.name", mailbox.name))
            spec = f"<{spec}>"
        field.add(spec + separator)
    return field.render()


def message_id(value: str, *, path: str = "message_id") -> str:
    """``value`` as a message identifier in angle brackets, its domain in ASCII.

    Raises InvalidField when it is none. Source: RFC 5322, 3.6.4.
    """
    bare = value.removeprefix("<").removesuffix(">")
    left, at, domain = bare.rpartition("@")
    identifier = f"<{left}{at}{ascii_domain(domain, field=path)}>"
    if _ID.fullmatch(identifier):
        return identifier
    raise InvalidField(path, f"{value!r} is no message id; write it as unique-part@example.org")


def message_ids(name: str, value: str, *, path: str = "") -> bytes:
    """A field of message identifiers, folded only between them and never encoded.

    ``value`` is as in the header: ``<a@example.org> <b@example.org>``.
    Source: RFC 5322, 3.6.4.
    """
    where = path or name
    field = Field(name, path=path)
    identifiers = refuse_controls(where, value).split()
    if not identifiers:
        raise InvalidField(where, "names no message id; leave the header out")
    for identifier in identifiers:
        if not _ID.fullmatch(identifier):
            raise InvalidField(
                where, f"{identifier!r} is no message id; write it as <unique-part@example.org>"
            )
        field.add(identifier)
    return field.render()


def date(moment: datetime, *, name: str = "Date", path: str = "date") -> bytes:
    """A field with an instant, in UTC and to the second. Source: RFC 5322, 3.3.

    Raises InvalidField for a datetime without a time zone: its instant is unknown.
    """
    if moment.tzinfo is None:
        raise InvalidField(path, "has no time zone; give a datetime with tzinfo")
    utc = moment.astimezone(UTC)
    day, month = _DAYS[utc.weekday()], _MONTHS[utc.month - 1]
    # strftime would ask the locale for the names.
    return structured(name, f"{day}, {utc.day:02d} {month} {utc.year:04d} {utc:%H:%M:%S} +0000")


def structured(name: str, value: str, *, path: str = "") -> bytes:
    """A field whose value has a syntax of its own: ASCII as given, folded at its spaces.

    Raises InvalidField for anything that would have to be encoded (RFC 2047, 5
    forbids it there) and for what a reader would take for encoded text.
    """
    where = path or name
    refuse_controls(where, value)
    if not _ASCII.fullmatch(value):
        raise InvalidField(where, "holds a character that is not ASCII; this field cannot encode")
    if _LOOKS_ENCODED.search(value):
        raise InvalidField(where, "holds text that looks like an encoded-word; write it otherwise")
    field = Field(name, path=path)
    for word in _SINGLE_SPACE.split(value.strip(" \t")):
        field.add(word)
    return field.render()


def parameterised(
    name: str, value: str, parameters: Iterable[tuple[str, str]], *, path: str = ""
) -> bytes:
    """A MIME field: ``value`` and its parameters, each on a line where it fits.

    Plain values are tokens or quoted strings. Values that are not ASCII, hold
    a quote or backslash (readers disagree about escapes) or look encoded, and
    long ones, are written as ``name*=utf-8''…`` or its numbered continuations
    (RFC 2231, 3 and 4).
    """
    words = [value]
    for key, text in parameters:
        words += _parameter(key, refuse_controls(path or name, text))
    field = Field(name, path=path)
    for position, word in enumerate(words):
        field.add(word + (";" if position < len(words) - 1 else ""))
    return field.render()


def _parameter(name: str, value: str) -> list[str]:
    # One octet is the space before the parameter, one the semicolon after it.
    room = WIDTH - 2
    if _TOKEN.fullmatch(value) and name != "filename":
        plain = f"{name}={value}"
    else:
        plain = f"{name}={quote(value)}"
    if _QUOTABLE.fullmatch(value) and "=?" not in value and len(plain) <= room:
        return [plain]
    encoded = [percent(character, safe=_SAFE_IN_PARAMETER) for character in value]
    whole = f"{name}*=utf-8''{''.join(encoded)}"
    if len(whole) <= room:
        return [whole]
    sections = [f"{name}*0*=utf-8''"]
    for character in encoded:
        if len(sections[-1]) + len(character) > room:
            sections.append(f"{name}*{len(sections)}*=")
        sections[-1] += character
    return sections
