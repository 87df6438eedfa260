"""Headers that a message brings of its own: which ones it may, and how each is written.

A header of one's own can undo what the rest of the message promises: a second
From, a blind recipient in the open, a Content-Type that reads the body
otherwise. So the fields that we or the servers write are closed, for every
adapter: those that render MIME and those that hand headers to an HTTP API.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from providers.encoding import WIDTH, InvalidField, refuse_controls
from providers.headers import message_ids, structured, unstructured

_NAME = re.compile(r"[!-9;-~]+")

_OURS = {
    "from": "set from",
    "to": "set to",
    "cc": "set cc",
    "bcc": "set bcc",
    "reply-to": "set reply_to",
    "subject": "set subject",
    "date": "it is the time the message was asked for",
    "message-id": "it is derived from the delivery",
    "mime-version": "it is written with the body",
    "return-path": "receiving servers write it",
    "received": "receiving servers write it",
    "received-spf": "receiving servers write it",
    "delivered-to": "receiving servers write it",
    "authentication-results": "receiving servers write it",
    "dkim-signature": "sending servers write it",
}
_OUR_PREFIXES = {
    "content-": "it is written with the body",
    "resent-": "a message is never resent under an old header",
    "arc-": "relaying servers write it",
}
_IDS = frozenset({"in-reply-to", "references"})
_STRUCTURED = frozenset(
    {
        "archived-at",
        "auto-submitted",
        "disposition-notification-to",
        "errors-to",
        "feedback-id",
        "importance",
        "list-archive",
        "list-help",
        "list-id",
        "list-owner",
        "list-post",
        "list-subscribe",
        "list-unsubscribe",
        "list-unsubscribe-post",
        "precedence",
        "priority",
        "return-receipt-to",
        "sender",
        "sensitivity",
        "x-priority",
    }
)


def check_custom(name: str, value: str, *, taken: frozenset[str] = frozenset()) -> str:
    """``name`` in lower case, if a message may bring this header of its own.

    ``taken`` holds names, in lower case, of fields that the message has
    already and that may stand only once. Raises InvalidField, naming
    ``headers[NAME]``, for a name that is none (RFC 5322, 2.2), one that we or
    servers write, one that would show blind recipients, one that is taken, and
    for a value that no header may carry.
    """
    path = _path(name)
    low = name.lower()
    if not _NAME.fullmatch(name) or len(name) > WIDTH:
        raise InvalidField(
            path, f"is no header name; use at most {WIDTH} printable ASCII characters and no colon"
        )
    reason = _OURS.get(low) or next(
        (why for prefix, why in _OUR_PREFIXES.items() if low.startswith(prefix)), None
    )
    if low.endswith("-bcc"):
        reason = "it would show blind recipients; set bcc"
    if reason:
        raise InvalidField(path, f"cannot be a header of your own: {reason}")
    if low in taken:
        raise InvalidField(path, "is there already; give it once")
    refuse_controls(path, value)
    return low


def custom_fields(
    headers: Iterable[tuple[str, str]], *, taken: frozenset[str] = frozenset()
) -> list[bytes]:
    """Each of ``headers`` as a field, in the given order.

    Message identifiers and structured values are never encoded; everything
    else is free text that programs may read. Raises as :func:`check_custom`,
    and for a second header of a kind that may stand only once.
    """
    fields = []
    for name, value in headers:
        low = check_custom(name, value, taken=taken)
        path = _path(name)
        if low in _IDS:
            fields.append(message_ids(name, value, path=path))
        elif low in _STRUCTURED:
            fields.append(structured(name, value, path=path))
        else:
            fields.append(unstructured(name, value, path=path, for_people=False))
        if low in _IDS or low in _STRUCTURED:
            taken |= {low}
    return fields


def _path(name: str) -> str:
    return f"headers[{name}]" if _NAME.fullmatch(name) else f"headers[{name!a}]"
