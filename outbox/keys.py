"""Delivery keys, and the names that the outside sees, all derived from them.

A key says *which intention* a delivery is, so two intentions must never share one:
joined carelessly, ``("a:b", "c")`` and ``("a", "b:c")`` would, and the second mail
would never be sent. :func:`key` escapes the separator. ``~`` is escaped as well: it
marks a deliberate second sending (``…~2``), which no producer may forge.

Nothing here depends on the Unicode tables of the running Python: the same parts
must give the same key after an upgrade, or a mail would be sent twice.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Final

from outbox.domains import InvalidDomain, ascii_domain
from outbox.errors import InvalidKey, InvalidMessage
from outbox.limits import KEY_CHARACTERS
from outbox.shapes import kind, shown

_CONTROL: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_UNPRINTABLE: Final = re.compile(rf"[{_CONTROL}\ud800-\udfff]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_ESCAPED: Final = re.compile(rf"[:~%{_CONTROL}]|\A\s+|\s+\Z")


def key(*parts: str | int) -> str:
    """The delivery key of ``parts``, joined by ``:``. Different parts give different keys.

    ``:``, ``~``, ``%``, control characters, and white space at the ends of a part
    are percent-escaped (UTF-8, as in a URL). A number counts as its decimal text, so that ``7``
    and ``"7"`` are the same part.

    Raises InvalidKey if there are no parts, if a part is empty or neither text nor
    a whole number, or if the key has more than 255 characters.
    """
    if not parts:
        raise InvalidKey("a key needs at least one part")
    return check_key(":".join([_part(n, part) for n, part in enumerate(parts, start=1)]))


def check_key(key: str) -> str:
    """``key``, given as whole text, unchanged.

    Raises InvalidKey unless it has 1 to 255 characters, no control character,
    line break or lone surrogate, no white space at its ends, and no ``~``.
    """
    if not isinstance(key, str):
        raise InvalidKey(f"the key is {kind(key)}, not text")
    if not key:
        raise InvalidKey("the key is empty")
    if len(key) > KEY_CHARACTERS:
        raise InvalidKey(
            f"the key {shown(key)} has {len(key):,} characters; at most {KEY_CHARACTERS}"
        )
    found = _UNPRINTABLE.search(key)
    if found:
        raise InvalidKey(
            f"the key {shown(key)} contains the character U+{ord(found[0]):04X};"
            " outbox.key(…) escapes what needs it"
        )
    if key != key.strip():
        raise InvalidKey(f"the key {shown(key)} starts or ends with white space")
    if "~" in key:
        raise InvalidKey(
            f'the key {shown(key)} contains "~", which marks a second sending;'
            " outbox.key(…) escapes it"
        )
    return str.__str__(key)


def public_id(namespace: uuid.UUID, key: str) -> str:
    """The UUIDv5 under which the outside knows the delivery of this installation."""
    return str(uuid.uuid5(namespace, key))


def key_hash(key: str) -> str:
    """SHA-256 of the key in UTF-8, in hex: how a tombstone remembers it."""
    return hashlib.sha256(key.encode()).hexdigest()


def idempotency_key(public_id: str, suffix: int) -> str:
    """The provider's idempotency key: the public id itself while ``suffix`` is 0,
    then ``<public id>-<suffix>``. Raises ValueError for a negative suffix.
    """
    if suffix < 0:
        raise ValueError(f"the suffix of an idempotency key is {suffix}; it starts at 0")
    return f"{public_id}-{suffix}" if suffix else public_id


def message_id(public_id: str, from_domain: str) -> str:
    """The Message-ID, angle brackets included, in pure ASCII.

    The domain is lower-cased and an international one is written with ``xn--``
    labels, so that no server needs SMTPUTF8 on its account (RFC 5322
    section 3.6.4 asks for ASCII). Raises InvalidMessage for ``from`` if it is no domain.
    """
    try:
        return f"<{public_id}@{ascii_domain(from_domain)}>"
    except InvalidDomain as error:
        raise InvalidMessage("from", f"the domain {shown(from_domain)} {error}") from None


def _part(number: int, part: object) -> str:
    if isinstance(part, int) and not isinstance(part, bool):
        if abs(part) >= 10**KEY_CHARACTERS:
            raise InvalidKey(f"part {number} of the key has more than {KEY_CHARACTERS} digits")
        return int.__repr__(part)
    if not isinstance(part, str):
        raise InvalidKey(f"part {number} of the key is {kind(part)}; use text or a whole number")
    if not part:
        raise InvalidKey(f"part {number} of the key is empty")
    if len(part) > KEY_CHARACTERS:
        raise InvalidKey(f"part {number} of the key has more than {KEY_CHARACTERS} characters")
    if _SURROGATE.search(part):
        raise InvalidKey(f"part {number} of the key holds half of a surrogate pair")
    return _ESCAPED.sub(_percent, part)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in found[0].encode())
