"""What a value is, in the words of an error line; and which members an object has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from outbox.errors import InvalidMessage

_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (type(None), "null"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)
_SHOWN: Final = 60


def shown(text: str) -> str:
    """``text`` in double quotes for an error line: cut short, and with every
    character that could break the line or hide in it escaped.
    """
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut) + '"'


def kind(value: object) -> str:
    """What ``value`` is, in words for an error line."""
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return f"of type {type(value).__name__}"


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether ``value`` is a list of things with an order of its own.

    Text and bytes are sequences too, but never meant as one here. A set has no
    order, so that the same message would get another fingerprint each time.
    """
    return isinstance(value, (list, tuple)) or (
        isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))
    )


def member(field: str, key: object) -> str:
    """The path of ``key`` inside ``field`` (``to[1].name``, ``headers["X-Id"]``)."""
    if isinstance(key, str) and key.isidentifier() and key.isascii() and len(key) <= _SHOWN:
        return f"{field}.{key}" if field else key
    return f"{field}[{entry(key)}]" if field else entry(key)


def entry(key: object) -> str:
    """``key`` as it stands between the brackets of a path."""
    return shown(key) if isinstance(key, str) else kind(key)


def check_members(
    field: str, value: object, known: Iterable[str], required: Iterable[str] = ()
) -> Mapping[str, Any]:
    """``value`` as an object with no member that is not ``known``; null members are
    left out, as if they were not there.

    Raises InvalidMessage with the path of the member that is unknown or missing.
    """
    if not isinstance(value, Mapping):
        raise InvalidMessage(field or "message", f"is {kind(value)}, not an object")
    known = tuple(known)
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(entry(key), known, 1)
            hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
            raise InvalidMessage(member(field, key), f"is unknown; {hint}")
    present = {key: part for key, part in value.items() if part is not None}
    for key in required:
        if key not in present:
            raise InvalidMessage(member(field, key), "is missing")
    return present
