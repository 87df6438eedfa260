"""One function per kind of field: what a producer may write, and its one stored form.

Each takes the path of the field and whatever was given, and returns the normal form
or raises InvalidMessage with the exact path. Python, JSON on the command line and
rows written by plain SQL all come through here; there is no second set of rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

from outbox import limits
from outbox.attachments import AnyAttachment
from outbox.characters import check_line, check_text
from outbox.errors import InvalidMessage
from outbox.message_json import compact
from outbox.shapes import check_members, entry, is_list, kind, shown

AutoSubmitted: TypeAlias = Literal["auto-generated", "auto-replied"]
HeaderPairs: TypeAlias = tuple[tuple[str, str], ...]
A = TypeVar("A", bound=AnyAttachment)

AUTO_SUBMITTED: Final[tuple[str, ...]] = get_args(AutoSubmitted)

_HEADER_NAME: Final = re.compile(r"[!-9;-~]+")
_PROVIDER_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_URL: Final = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")

_OWN_HEADERS: Final = {
    **{name: f"use the field {name}" for name in ("from", "to", "cc", "bcc", "subject")},
    "date": "it is derived from the delivery",
    "message-id": "it is derived from the delivery",
    "return-path": "the server writes it",
    "received": "the server writes it",
    "reply-to": "use the field reply_to",
    "list-unsubscribe": "use the field list_unsubscribe",
    "list-unsubscribe-post": "use the field list_unsubscribe",
    "auto-submitted": "use the field auto_submitted",
    "mime-version": "the renderer writes it",
    "sender": "it is an address; the account's settings say who sends",
}
_OWN_PREFIXES: Final = {
    "content-": "the renderer writes it",
    "resent-": "this is no resent message",
}
_ONCE: Final = frozenset({"in-reply-to", "references"})
"""Of the headers left to the producer, those that RFC 5322 section 3.6 allows once."""


@dataclass(frozen=True, slots=True, init=False)
class Unsubscribe:
    """Where a reader can unsubscribe: ``mailto:`` and ``https:`` URLs (RFC 2369).

    ``one_click`` adds List-Unsubscribe-Post (RFC 8058), which needs an ``https:``
    URL that unsubscribes by a POST alone. Raises InvalidMessage.
    """

    urls: tuple[str, ...]
    one_click: bool

    def __init__(self, urls: Sequence[str], *, one_click: bool = False) -> None:
        if not is_list(urls) or not urls:
            raise InvalidMessage("urls", "is not a list with at least one URL")
        if len(urls) > limits.UNSUBSCRIBE_URLS:
            raise InvalidMessage("urls", f"has {len(urls)} URLs; at most {limits.UNSUBSCRIBE_URLS}")
        checked = tuple([_unsubscribe_url(f"urls[{i}]", url) for i, url in enumerate(urls)])
        if not isinstance(one_click, bool):
            raise InvalidMessage("one_click", f"is {kind(one_click)}, not true or false")
        if one_click and not any(url.lower().startswith("https:") for url in checked):
            raise InvalidMessage("one_click", "needs an https: URL (RFC 8058 section 3.1)")
        object.__setattr__(self, "urls", checked)
        object.__setattr__(self, "one_click", one_click)


def optional_text(field: str, value: object) -> str | None:
    """``text`` and ``html``: any lines, or None."""
    return None if value is None else check_text(field, value, limits.BODY_OCTETS)


def headers(field: str, value: object) -> HeaderPairs:
    """Further header fields as pairs.

    Pairs keep their order and may repeat a name. A mapping has no order of its
    own (JSON objects lose it in some databases), so it is sorted by name.
    """
    if isinstance(value, Mapping):
        checked = [_header(field, name, text) for name, text in value.items()]
        pairs = tuple(sorted(checked, key=lambda pair: pair[0].lower()))
        once = {name.lower() for name, _ in pairs}
    elif is_list(value):
        pairs = tuple([_pair(f"{field}[{i}]", field, pair) for i, pair in enumerate(value)])
        once = set(_ONCE)
    else:
        raise InvalidMessage(field, f"is {kind(value)}, not an object or a list of pairs")
    if len(pairs) > limits.HEADERS:
        raise InvalidMessage(field, f"has {len(pairs)} headers; at most {limits.HEADERS}")
    seen: set[str] = set()
    for name, _ in pairs:
        lower = name.lower()
        if lower in seen and lower in once:
            raise InvalidMessage(f"{field}[{entry(name)}]", "stands there twice")
        seen.add(lower)
    return pairs


def tags(field: str, value: object) -> tuple[str, ...]:
    """Labels for filters and statistics: in the given order, each once."""
    if not is_list(value):
        raise InvalidMessage(field, f"is {kind(value)}, not a list of texts")
    if len(value) > limits.TAGS:
        raise InvalidMessage(field, f"has {len(value)} tags; at most {limits.TAGS}")
    found = [check_line(f"{field}[{i}]", t, limits.TAG_CHARACTERS) for i, t in enumerate(value)]
    if "" in found:
        raise InvalidMessage(f"{field}[{found.index('')}]", "is empty")
    return tuple(dict.fromkeys(found))


def metadata(field: str, value: object) -> dict[str, str]:
    """Text by name. A number is refused: only the producer knows how to write it."""
    if not isinstance(value, Mapping):
        raise InvalidMessage(field, f"is {kind(value)}, not an object")
    if len(value) > limits.METADATA_ENTRIES:
        raise InvalidMessage(field, f"has {len(value)} entries; at most {limits.METADATA_ENTRIES}")
    found = {}
    for key, text in value.items():
        path = f"{field}[{entry(key)}]"
        name = check_line(path, key, limits.METADATA_KEY_CHARACTERS)
        if not name:
            raise InvalidMessage(path, "has an empty name")
        found[name] = check_text(path, text, limits.METADATA_VALUE_CHARACTERS)
    return found


def provider_options(field: str, value: object) -> dict[str, dict[str, Any]]:
    """JSON objects by provider name; each adapter reads its own."""
    if not isinstance(value, Mapping):
        raise InvalidMessage(field, f"is {kind(value)}, not an object")
    found: dict[str, dict[str, Any]] = {}
    for name, options in value.items():
        path = f"{field}[{entry(name)}]"
        if not isinstance(name, str) or not _PROVIDER_NAME.fullmatch(name):
            raise InvalidMessage(path, "is no provider name (small letters, digits, - and _)")
        if not isinstance(options, Mapping):
            raise InvalidMessage(path, f"is {kind(options)}, not an object")
        found[name] = _json_value(path, options, limits.PROVIDER_OPTIONS_DEPTH)
    if found and (size := len(compact(found))) > limits.PROVIDER_OPTIONS_CHARACTERS:
        raise InvalidMessage(
            field, f"has {size:,} characters; at most {limits.PROVIDER_OPTIONS_CHARACTERS:,}"
        )
    return found


def list_unsubscribe(field: str, value: object) -> Unsubscribe | None:
    """An Unsubscribe, or its JSON form, or None."""
    if value is None or isinstance(value, Unsubscribe):
        return value
    form = check_members(field, value, ("urls", "one_click"), ("urls",))
    try:
        return Unsubscribe(form["urls"], one_click=form.get("one_click", False))
    except InvalidMessage as error:
        raise InvalidMessage(f"{field}.{error.field}", error.problem) from None


def auto_submitted(field: str, value: object) -> str | None:
    """One of :data:`AUTO_SUBMITTED`, or None."""
    if value is None:
        return None
    if not isinstance(value, str) or value not in AUTO_SUBMITTED:
        wrong = shown(value) if isinstance(value, str) else kind(value)
        raise InvalidMessage(field, f"is {wrong}, not one of {', '.join(AUTO_SUBMITTED)}")
    return str.__str__(value)


def attachments(field: str, value: object, types: tuple[type[A], ...]) -> tuple[A, ...]:
    """Attachments of one of ``types``; their content ids are unique, their sum bounded."""
    if not is_list(value):
        raise InvalidMessage(field, f"is {kind(value)}, not a list of attachments")
    if len(value) > limits.ATTACHMENTS:
        raise InvalidMessage(field, f"has {len(value)} entries; at most {limits.ATTACHMENTS}")
    ids: set[str] = set()
    for index, attachment in enumerate(value):
        if not isinstance(attachment, types):
            raise InvalidMessage(f"{field}[{index}]", f"is {kind(attachment)}, not an Attachment")
        if attachment.content_id in ids:
            raise InvalidMessage(f"{field}[{index}].content_id", "is used twice")
        if attachment.content_id is not None:
            ids.add(attachment.content_id)
    size = sum(attachment.size for attachment in value)
    if size > limits.ATTACHMENTS_OCTETS:
        raise InvalidMessage(
            field, f"have {size:,} bytes together; at most {limits.ATTACHMENTS_OCTETS:,}"
        )
    return tuple(value)


def _pair(path: str, field: str, pair: object) -> tuple[str, str]:
    if not is_list(pair) or len(pair) != 2:
        raise InvalidMessage(path, "is not a pair of name and value")
    return _header(field, pair[0], pair[1])


def _header(field: str, name: object, value: object) -> tuple[str, str]:
    path = f"{field}[{entry(name)}]"
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise InvalidMessage(path, "is no header name (visible ASCII without a colon)")
    if len(name) > limits.HEADER_NAME_CHARACTERS:
        raise InvalidMessage(
            path, f"has a name of {len(name)} characters; at most {limits.HEADER_NAME_CHARACTERS}"
        )
    lower = name.lower()
    reason = _OWN_HEADERS.get(lower) or next(
        (why for prefix, why in _OWN_PREFIXES.items() if lower.startswith(prefix)), None
    )
    if lower.endswith("-bcc"):
        reason = reason or "use the field bcc"
    if reason:
        raise InvalidMessage(path, f"cannot be set as a header: {reason}")
    return str.__str__(name), check_line(path, value, limits.HEADER_VALUE_CHARACTERS)


def _unsubscribe_url(path: str, value: object) -> str:
    url = check_line(path, value, limits.UNSUBSCRIBE_URL_CHARACTERS)
    if not _URL.fullmatch(url):
        raise InvalidMessage(path, f"{shown(url)} is no URL; percent-encode other characters")
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise InvalidMessage(path, f"{shown(url)} is no URL") from None
    if parts.scheme == "https" and host:
        return url
    if parts.scheme == "mailto" and "@" in parts.path.strip("@"):
        return url
    raise InvalidMessage(path, f"{shown(url)} is not an https: URL or a mailto: with an address")


def _json_value(path: str, value: object, depth: int) -> Any:
    """``value`` with only what JSON knows, numbers in one spelling (1.0 is 1)."""
    if depth == 0:
        raise InvalidMessage(path, "is nested too deeply")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(path, value, limits.PROVIDER_OPTIONS_CHARACTERS)
    if isinstance(value, (int, float)):
        return _number(path, value)
    if isinstance(value, Mapping):
        return {
            _option_name(path, name): _json_value(f"{path}[{entry(name)}]", part, depth - 1)
            for name, part in value.items()
        }
    if is_list(value):
        return [_json_value(f"{path}[{i}]", part, depth - 1) for i, part in enumerate(value)]
    raise InvalidMessage(path, f"is {kind(value)}, which JSON does not know")


def _option_name(path: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidMessage(f"{path}[{entry(name)}]", "has a name that is not text")
    return check_text(f"{path}[{entry(name)}]", name, limits.PROVIDER_OPTIONS_CHARACTERS)


def _number(path: str, value: float) -> float:
    if not math.isfinite(value):
        raise InvalidMessage(path, "is not a finite number")
    whole = isinstance(value, int) or value.is_integer()
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InvalidMessage(path, "is a whole number of more than 64 bits; write it as text")
    return int(value) if whole and abs(value) < 2**63 else float(value)
