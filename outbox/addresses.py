"""Mailboxes: taking them apart, refusing what is none, comparing them.

An entry is one mailbox. A list in one text is refused, not split: the comma may
belong to a name, and splitting it wrongly writes to somebody else.

:class:`Address` is a text (its value is the usual ``Name <address>`` form, or the
bare address where there is no name) with the two parts as attributes. That makes
``email.to == ("ana@example.org",)`` true, also for a type checker, with an equality
and a hash that agree; an equality of our own could not be used in sets and would be
refused by strict checkers.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from outbox.characters import check_line
from outbox.domains import InvalidDomain, ascii_domain
from outbox.encoded_words import decode_words
from outbox.errors import InvalidMessage
from outbox.limits import (
    ADDRESS_OCTETS,
    LOCAL_PART_OCTETS,
    MAILBOX_CHARACTERS,
    NAME_CHARACTERS,
)
from outbox.shapes import check_members, is_list, kind, shown

_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ORDINARY: Final = re.compile(rf"({_ATOM}+(?:\.{_ATOM}+)*)@(?:{_LABEL}\.)*(?=[A-Za-z]){_LABEL}")
"""What nearly every address looks like; all others take the long way."""

_DOT_ATOM: Final = re.compile(rf"(?:{_ATOM}|[^\x00-\x7f])+(?:\.(?:{_ATOM}|[^\x00-\x7f])+)*")
_QUOTED: Final = re.compile(r'"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*"')
_ENCODED_WORD: Final = re.compile(r"=\?.*\?=")
_NAMED: Final = re.compile(
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^"<>@,;\\]*))[ \t]*<(?P<address>[^<>]*)>',
    re.DOTALL,
)
_BARE_NAME: Final = re.compile(r"[\w'!&*+/-][\w .'!&*+/-]*")
_JOINERS: Final = "\u200c\u200d"
"""Zero width, but part of the spelling in some scripts."""


class Address(str):
    """One mailbox: ``address`` as ``local@domain``, ``name`` as decoded text, may be ``""``.

    As a text it is what a header shows, ``Ana <ana@example.org>``; where only
    the address is meant, use ``.address``. Unchangeable. Encoded words of
    RFC 2047 in ``name`` are decoded, unless that would bring in a control character.

    Raises InvalidMessage (field ``address`` or ``name``) if a part is not usable.
    """

    __slots__ = ("address", "name")

    address: str
    name: str

    def __new__(cls, address: str, name: str = "") -> Address:
        return _built(address, name, "address", "name")

    @property
    def domain(self) -> str:
        """What follows the last ``@``, as written."""
        return self.address.rpartition("@")[2]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an Address cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an Address cannot be changed")

    def __repr__(self) -> str:
        return (
            f"Address({self.address!r})"
            if not self.name
            else f"Address({self.address!r}, {self.name!r})"
        )

    def __reduce__(self) -> tuple[type[Address], tuple[str, str]]:
        return (Address, (self.address, self.name))

    @classmethod
    def parse(cls, text: str, field: str = "address") -> Address:
        """The mailbox in ``text``: ``a@b``, ``<a@b>``, ``Name <a@b>``, ``"Name" <a@b>``.

        Raises InvalidMessage for ``field`` if it is not exactly one mailbox.
        """
        return _parsed(field, text)


AddressLike: TypeAlias = str | Address | Mapping[str, str]
"""One mailbox: its text form, an :class:`Address`, or ``{"address": …, "name": …}``."""

AddressList: TypeAlias = AddressLike | Sequence[AddressLike]
"""One mailbox, or a list of them. A text is always one mailbox."""


def mailbox(field: str, value: object) -> Address:
    """``value`` (see :data:`AddressLike`) as an Address; raises InvalidMessage for ``field``."""
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        return _parsed(field, value)
    if not isinstance(value, Mapping):
        raise InvalidMessage(field, f"is {kind(value)}, not an address")
    parts = check_members(field, value, ("address", "name"), ("address",))
    return _built(parts["address"], parts.get("name", ""), f"{field}.address", f"{field}.name")


def mailboxes(field: str, value: object) -> tuple[Address, ...]:
    """``value`` (see :data:`AddressList`) as Addresses; raises InvalidMessage.

    The path of a problem is ``field`` for a single mailbox, ``field[1]`` in a list.
    """
    if isinstance(value, (str, Mapping)):
        return (mailbox(field, value),)
    if not is_list(value):
        raise InvalidMessage(field, f"is {kind(value)}, not an address or a list of them")
    return tuple([mailbox(f"{field}[{i}]", entry) for i, entry in enumerate(value)])


def compare_key(address: str) -> str:
    """The form in which two spellings of one mailbox are equal.

    The local part counts exactly (RFC 5321 section 2.4 leaves its case to the
    receiver); the domain is lower-cased and in ASCII. Never raises: what is no
    address compares by its own text.
    """
    bare = address.address if isinstance(address, Address) else address
    local, at, domain = bare.rpartition("@")
    try:
        return f"{local}{at}{ascii_domain(domain)}"
    except InvalidDomain:
        return f"{local}{at}{domain.lower()}"


def address_hash(address: str) -> str:
    """SHA-256 of :func:`compare_key`, in hex."""
    return hashlib.sha256(compare_key(address).encode("utf-8", "surrogatepass")).hexdigest()


def address_form(address: Address) -> str | dict[str, str]:
    """``address`` as it stands in JSON: a text, or an object where it has a name."""
    if not address.name:
        return address.address
    return {"address": address.address, "name": address.name}


def _built(address: Any, name: Any, address_field: str, name_field: str) -> Address:
    address = _checked(address_field, address)
    if name != "":
        name = decode_words(check_line(name_field, name, NAME_CHARACTERS).strip()).strip()
    made = str.__new__(Address, f"{_phrase(name)} <{address}>" if name else address)
    object.__setattr__(made, "address", address)
    object.__setattr__(made, "name", name)
    return made


def _phrase(name: str) -> str:
    if _BARE_NAME.fullmatch(name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _parsed(field: str, text: str) -> Address:
    if len(text) <= MAILBOX_CHARACTERS and "<" not in text and '"' not in text:
        return _built(text.strip(" \t"), "", field, field)
    text = check_line(field, text, MAILBOX_CHARACTERS).strip(" \t")
    if not text.endswith(">"):
        return _built(text, "", field, field)
    found = _NAMED.fullmatch(text)
    if found is None:
        raise InvalidMessage(
            field,
            f"{shown(text)} is not one mailbox: pass a list for several addresses,"
            " and put a name with special characters in double quotes",
        )
    quoted = found["quoted"]
    name = found["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return _built(found["address"], name, field, f"{field}.name")


def _checked(field: str, address: object) -> str:
    if isinstance(address, str):
        ordinary = _ORDINARY.fullmatch(address) if len(address) <= ADDRESS_OCTETS else None
        if ordinary and ordinary.end(1) <= LOCAL_PART_OCTETS and "=?" not in address:
            return address if type(address) is str else str.__str__(address)
    line = check_line(field, address, MAILBOX_CHARACTERS)
    problem = _problem(line)
    if problem:
        raise InvalidMessage(field, f"{shown(line)} {problem}")
    return line


def _problem(address: str) -> str | None:
    """What is wrong with ``address``, as the end of a sentence; None if nothing is."""
    local, at, domain = address.rpartition("@")
    if not address:
        return "is no address"
    if "," in domain or ";" in domain or ("@" in local and not local.startswith('"')):
        return "is not one mailbox: pass a list for several addresses"
    if not at or not domain:
        return "has no domain"
    if not local:
        return "has nothing before the @"
    problem = _local_problem(local)
    if problem:
        return problem
    if len(address.encode()) > ADDRESS_OCTETS:
        return f"is longer than {ADDRESS_OCTETS} octets"
    try:
        ascii_domain(domain)
    except InvalidDomain as error:
        return f"has a bad domain: it {error}"
    return None


def _local_problem(local: str) -> str | None:
    if len(local.encode()) > LOCAL_PART_OCTETS:
        return f"has more than {LOCAL_PART_OCTETS} octets before the @"
    if any(c in " \t<>" or not _visible(c) for c in local):
        return "contains white space, an angle bracket or an invisible character"
    if _ENCODED_WORD.search(local):
        return "has an encoded word before the @; write it in plain Unicode"
    if not _DOT_ATOM.fullmatch(local) and not _QUOTED.fullmatch(local):
        return 'is no address; what is special before the @ must be in double quotes ("a..b"@…)'
    return None


def _visible(character: str) -> bool:
    return character.isascii() or (
        unicodedata.category(character) not in {"Cc", "Cf", "Zs", "Zl", "Zp"}
        or character in _JOINERS
    )
