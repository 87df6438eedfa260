"""JSON in and out: strict when read, one spelling when written.

Written: compact, keys sorted by code point, characters as they are. Equal messages
are therefore equal texts, and a fingerprint is a digest of the text.

Read: a name that stands twice is refused, since which of the two counts depends on
the reader (PostgreSQL keeps the last). NaN and infinities are no JSON. A document nested deep
enough to exhaust the parser is refused like any other that cannot be read.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from outbox.errors import InvalidMessage
from outbox.limits import DOCUMENT_CHARACTERS
from outbox.shapes import entry, kind

compact: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
"""The one spelling of a JSON value."""


def read(document: object) -> Any:
    """The value in ``document``: text, or bytes in UTF-8.

    Raises InvalidMessage for ``message`` (or for the name that stands twice).
    """
    if isinstance(document, (bytes, bytearray)):
        try:
            document = bytes(document).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidMessage("message", f"is not UTF-8 text (byte {error.start})") from None
    if not isinstance(document, str):
        raise InvalidMessage("message", f"is {kind(document)}, not JSON text")
    if len(document) > DOCUMENT_CHARACTERS:
        raise InvalidMessage(
            "message", f"has {len(document):,} characters; at most {DOCUMENT_CHARACTERS:,}"
        )
    try:
        return _DECODER.decode(document)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidMessage("message", f"is not JSON: {error.msg} ({where})") from None
    except RecursionError:
        raise InvalidMessage("message", "is nested too deeply") from None
    except InvalidMessage:
        raise
    except ValueError:
        raise InvalidMessage("message", "has a number that is too long") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidMessage(entry(twice), "stands twice in one object of the JSON")
    return found


def _no_constant(name: str) -> NoReturn:
    raise InvalidMessage("message", f"is not JSON: {name} is no JSON number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)
