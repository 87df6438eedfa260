"""Which delivery a test means, and what is different about those that are there. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict

from outbox.attachments import Attachment
from outbox.deliveries import Delivery
from outbox.message import compare_key

SHOWN_CHARACTERS: Final = 300
SHOWN_DELIVERIES: Final = 10
SHOWN_LINES: Final = 20


Text: TypeAlias = str | re.Pattern[str] | Callable[[Any], bool]
"""A text as it is wanted: equal to this, found by this pattern, or whatever this accepts."""

People: TypeAlias = str | Sequence[str] | Callable[[Any], bool]


class Wanted(TypedDict, total=False):
    """What a test may ask of a delivery: of its message, and of the delivery itself.

    Any value may be a function that says of the real one whether it will do. ``attachments``:
    the file names in their order, or a mapping from names to contents.
    """

    key: Text
    to: People
    cc: People
    bcc: People
    reply_to: People
    from_: Text | None
    subject: Text
    text: Text | None
    html: Text | None
    tags: Sequence[str] | Callable[[Any], bool]
    headers: Sequence[tuple[str, str]] | Callable[[Any], bool]
    metadata: Mapping[str, str] | Callable[[Any], bool]
    attachments: str | Sequence[str] | Mapping[str, bytes | str] | Callable[[Any], bool]
    account: Text
    run_key: Text | None
    tenant: Text | None
    priority: int | Callable[[Any], bool]
    state: Text
    send_after: datetime | Callable[[Any], bool]
    send_before: datetime | Callable[[Any], bool] | None


FIELDS: Final = tuple(Wanted.__annotations__)
_NO_MESSAGE: Final = "nothing: its message was removed, or cannot be read"
_PEOPLE: Final = ("to", "cc", "bcc", "reply_to")
_OF_MESSAGE: Final = (
    *_PEOPLE, "from_", "subject", "text", "html", "tags", "headers", "metadata", "attachments",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is not as it is wanted. ``wanted`` and ``found`` are for people."""

    field: str
    wanted: str
    found: str


def line(found: Delivery) -> str:
    """A delivery in one line: its key, to whom, about what, how it stands."""
    if found.message is None:
        return f"{found.key} (no message any more, {found.state.value})"
    people = ", ".join(address.address for _, address in found.message.recipients())
    return f'{found.key} to {people}, "{found.message.subject}" ({found.state.value})'


def differences(found: Delivery, wanted: Mapping[str, Any]) -> list[Difference]:
    """The wanted fields that this delivery has otherwise."""
    return [
        different
        for name, value in wanted.items()
        if (different := _difference(name, value, found)) is not None
    ]


def _difference(name: str, wanted: Any, delivery: Delivery) -> Difference | None:
    if name in _OF_MESSAGE and delivery.message is None:
        return Difference(name, _shown(wanted), _NO_MESSAGE)
    found = _value(name, delivery)
    if isinstance(wanted, re.Pattern):
        fits = isinstance(found, str) and wanted.search(found) is not None
        return None if fits else Difference(name, f"/{wanted.pattern}/", _shown(found))
    if callable(wanted) and not isinstance(wanted, type):
        fits = bool(wanted(found))
        called = getattr(wanted, "__qualname__", repr(wanted))
        return None if fits else Difference(name, f"what {called} accepts", _shown(found))
    if name in _PEOPLE:
        return _people(name, wanted, found)
    if name == "attachments":
        return _files(wanted, found)
    if found == wanted:
        return None
    return Difference(name, _shown(wanted, beside=found), _shown(found, beside=wanted))


def _value(name: str, delivery: Delivery) -> Any:
    return getattr(delivery.message if name in _OF_MESSAGE else delivery, name)


def _people(name: str, wanted: Any, found: Sequence[str]) -> Difference | None:
    """Addresses in any order; a name counts only where the test gives one."""
    given = [wanted] if isinstance(wanted, str) else list(wanted)
    left = list(found)
    for each in given:
        same = next((other for other in left if _same_mailbox(each, other)), None)
        if same is None:
            return Difference(name, ", ".join(given) or "nobody", ", ".join(found) or "nobody")
        left.remove(same)
    if left:
        return Difference(name, ", ".join(given) or "nobody", ", ".join(found))
    return None


def _same_mailbox(wanted: str, found: Any) -> bool:
    if "<" in wanted:
        return str(found) == wanted
    return compare_key(getattr(wanted, "address", wanted)) == compare_key(found)


def _files(wanted: Any, found: Sequence[Any]) -> Difference | None:
    """Attachments by name; with a mapping, by name and content."""
    names = [attachment.filename for attachment in found]
    if not isinstance(wanted, Mapping):
        given = [wanted] if isinstance(wanted, str) else list(wanted)
        same = given == names
        return None if same else Difference("attachments", _shown(given), _shown(names))
    if list(wanted) != names:
        return Difference("attachments", _shown(list(wanted)), _shown(names))
    for attachment in found:
        content = wanted[attachment.filename]
        octets = attachment.content if isinstance(attachment, Attachment) else b""
        text = isinstance(content, str)
        got = octets.decode("utf-8", "backslashreplace") if text else octets
        if content != got:
            name = f'attachments["{attachment.filename}"]'
            return Difference(name, _shown(content, beside=got), _shown(got, beside=content))
    return None


# --------------------------------------------------------------------------- #
# The failure's text
# --------------------------------------------------------------------------- #


def found_none(wanted: Mapping[str, Any], found: Sequence[Delivery]) -> str:
    """Why no delivery fits: what is there, nearest first, and what is different about it."""
    asked = f"no delivery was enqueued with {_asked(wanted)}"
    if not found:
        return f"{asked}:\nnothing was enqueued"
    near = sorted(((differences(each, wanted), each) for each in found), key=lambda p: len(p[0]))
    lines = [f"{asked}; {_number(len(found))}, nearest first:"]
    for unlike, each in near[:SHOWN_DELIVERIES]:
        lines.append(f"  {line(each)}")
        lines += [text for different in unlike for text in _told(different)]
    return "\n".join([*lines, *_more(len(found))])


def found_others(wanted: Mapping[str, Any], fits: Sequence[Delivery], times: int) -> str:
    """Why the number is not the wanted one."""
    asked = f"{len(fits)} deliveries were enqueued with {_asked(wanted)}, wanted {times}"
    return "\n".join([f"{asked}:" if fits else asked, *_listed(fits)])


def something(found: Sequence[Delivery]) -> str:
    """That nothing was to be enqueued, and what was."""
    return "\n".join([f"nothing was to be enqueued, but {_number(len(found))}:", *_listed(found)])


def _asked(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_in_a_line(value)}" for name, value in wanted.items()) or "anything"


def _number(count: int) -> str:
    return "1 was" if count == 1 else f"{count} were"


def _listed(found: Sequence[Delivery]) -> list[str]:
    return [*(f"  {line(each)}" for each in found[:SHOWN_DELIVERIES]), *_more(len(found))]


def _more(count: int) -> list[str]:
    left = count - SHOWN_DELIVERIES
    return [f"  … and {left} more"] if left > 0 else []


def _told(different: Difference) -> list[str]:
    name, wanted, found = different.field, different.wanted, different.found
    if "\n" not in wanted + found:
        return [f"    {name}: {found}", f"    {' ' * len(name)}  wanted {wanted}"]
    compared = difflib.unified_diff(
        found.splitlines(), wanted.splitlines(), "found", "wanted", lineterm="", n=1
    )
    lines = list(compared)
    cut = ["…"] if len(lines) > SHOWN_LINES else []
    return [f"    {name}:", *(f"      {text}" for text in [*lines[:SHOWN_LINES], *cut])]


def _shown(value: Any, beside: Any = None) -> str:
    """A value for people; text of several lines stays as it is, to be compared line by line."""
    if isinstance(value, str) and "\n" in value + (beside if isinstance(beside, str) else ""):
        return value
    return _in_a_line(value)


def _in_a_line(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"/{value.pattern}/"
    if callable(value) and not isinstance(value, type):
        return getattr(value, "__qualname__", repr(value))
    text = repr(_plain(value))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _plain(value: Any) -> Any:
    """An enum's word, an address's text, and an instant's, as they are stored."""
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value


def unknown(names: Sequence[str]) -> str:
    """That these are no fields of a delivery, and which there are."""
    near = [
        f"{name} (did you mean {close[0]}?)"
        if (close := difflib.get_close_matches(name, FIELDS, 1))
        else name
        for name in names
    ]
    return f"no delivery has {', '.join(near)}; known: {', '.join(FIELDS)}"
