"""A message as the JSON that ``POST /emails`` of Resend takes: the same bytes on every attempt.

Resend compares bodies under one key, and how is not documented, so the bytes
are frozen: keys sorted, no spaces, UTF-8 without escapes, nothing from a clock
or from the order of a mapping.

Message-ID and Date are Resend's own; neither its specification nor its pages
offer them to the sender. What carries our value is the tag ``postroom_id``,
which comes back in every webhook event. Producers' tags and metadata become
tags too and not header fields, because recipients can read header fields.

Source: Resend's OpenAPI 1.5.0 (SendEmailRequest, Tag, Attachment) and
resend.com/docs/dashboard/emails/tags.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from providers.addresses import ascii_address
from providers.attachment_names import attachment_name
from providers.contract import Address, Attachment, Message
from providers.custom_headers import check_custom
from providers.encoding import ATEXT, InvalidField, quote, refuse_controls

CORRELATION_TAG = "postroom_id"
MAX_TAGS = 75
OPTIONS = frozenset({"scheduled_at", "topic_id"})
"""What ``options`` may hold: strings that are passed on as they are."""

_TAG = re.compile(r"[A-Za-z0-9_-]{1,256}")
_ENCODED = "b64_"
_PHRASE = re.compile(rf"[{ATEXT}\u00a0-\U0010ffff]+(?: [{ATEXT}\u00a0-\U0010ffff]+)*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def render(message: Message) -> bytes:
    """The request's body. Raises InvalidField, with the field's path, for what Resend
    cannot express; it never will, so the message is refused for good."""
    body: dict[str, Any] = {
        "from": _mailbox(message.sender, "from"),
        "subject": refuse_controls("subject", message.subject),
        "tags": _tags(message),
        **_addressees(message),
        **_options(message.options),
    }
    optional = {
        "text": "" if message.text is None and message.html is None else message.text,
        "html": message.html,
        "reply_to": [_mailbox(mailbox, "reply_to") for mailbox in message.reply_to] or None,
        "headers": _headers(message) or None,
        "attachments": [_attachment(*item) for item in enumerate(message.attachments)] or None,
    }
    body.update({name: value for name, value in optional.items() if value is not None})
    text = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if _SURROGATE.search(text):
        raise InvalidField("text", "or html or metadata holds half of a surrogate pair")
    return text.encode("utf-8")


def _mailbox(mailbox: Address, field: str) -> str:
    address = ascii_address(mailbox.address, smtputf8=True, field=field)
    name = refuse_controls(f"{field}.name", mailbox.name)
    if not name:
        return address
    # Quoted, a name that looks like an encoded-word stays what it is.
    plain = _PHRASE.fullmatch(name) and "=?" not in name
    return f"{name if plain else quote(name)} <{address}>"


def _addressees(message: Message) -> dict[str, list[str]]:
    """``to``, ``cc`` and ``bcc``, less everybody this attempt is not for.

    Resend needs somebody in ``to``. Where only others are left, those in
    ``cc`` move up, who are visible anyway, or a single one in ``bcc``, who
    then sees nobody but himself. Several in ``bcc`` would see each other.
    """
    wanted = {_same(address) for address in message.recipients}
    found: dict[str, list[Address]] = {}
    for kind, mailboxes in (("to", message.to), ("cc", message.cc), ("bcc", message.bcc)):
        found[kind] = [mailbox for mailbox in mailboxes if _same(mailbox.address) in wanted]
        wanted -= {_same(mailbox.address) for mailbox in mailboxes}
    if wanted:
        raise InvalidField("recipients", f"{len(wanted)} of them are not in to, cc or bcc")
    if not found["to"] and found["cc"]:
        found["to"], found["cc"] = found["cc"], []
    if not found["to"] and len(found["bcc"]) == 1:
        found["to"], found["bcc"] = found["bcc"], []
    if not found["to"]:
        raise InvalidField("to", "is empty, and Resend would show the bcc to each other")
    return {
        kind: [_mailbox(mailbox, kind) for mailbox in mailboxes]
        for kind, mailboxes in found.items()
        if mailboxes
    }


def _same(address: str) -> str:
    local, at, domain = address.rpartition("@")
    return f"{local}{at}{domain.lower()}"


def _headers(message: Message) -> dict[str, str]:
    fields: list[tuple[str, str]] = []
    if message.auto_submitted is not None:
        fields.append(("Auto-Submitted", message.auto_submitted))
    if message.unsubscribe is not None:
        targets = ", ".join(f"<{url}>" for url in message.unsubscribe.urls)
        fields.append(("List-Unsubscribe", targets))
        if message.unsubscribe.one_click:
            fields.append(("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"))
    taken: frozenset[str] = frozenset()
    for name, value in (*fields, *message.headers):
        # A JSON object holds a name once, so a second field would silently replace the first.
        taken |= {check_custom(name, value, taken=taken)}
    return dict((*fields, *message.headers))


def _tags(message: Message) -> list[dict[str, str]]:
    pairs = [
        (CORRELATION_TAG, message.correlation),
        *((tag, "true") for tag in message.tags),
        *sorted(message.metadata.items()),
    ]
    tags = [{"name": _tag(name), "value": _tag(value)} for name, value in pairs]
    _refuse_twice(tag["name"] for tag in tags)
    if len(tags) > MAX_TAGS:
        raise InvalidField("tags", f"and metadata make {len(tags)} tags; Resend takes {MAX_TAGS}")
    return tags


def _tag(text: str) -> str:
    """``text``, if Resend's alphabet has it; else ``b64_`` and its base64 for URLs, unpadded."""
    fits = _TAG.fullmatch(text) and not text.startswith(_ENCODED)
    tag = text if fits else _ENCODED + _base64_for_urls(text)
    if len(tag) > 256:
        raise InvalidField("metadata", f"{text[:40]!r}… is too long for a tag of Resend")
    return tag


def _base64_for_urls(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode("ascii").rstrip("=")


def _refuse_twice(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidField("metadata", f"{name!r} names two tags; Resend keeps one of a name")
        seen.add(name)


def _options(options: Mapping[str, Any]) -> dict[str, str]:
    for name, value in options.items():
        if name not in OPTIONS:
            known = ", ".join(sorted(OPTIONS))
            raise InvalidField(f"options.{name}", f"is no option of Resend; known are {known}")
        if not isinstance(value, str):
            raise InvalidField(f"options.{name}", "has to be text")
    return dict(options)


def _attachment(index: int, attachment: Attachment) -> dict[str, str]:
    content_type = refuse_controls(f"attachments[{index}].content_type", attachment.content_type)
    part = {
        "filename": attachment_name(attachment.filename, index, content_type),
        "content": base64.b64encode(attachment.content).decode("ascii"),
        "content_type": content_type,
    }
    if attachment.content_id is not None:
        part["content_id"] = attachment.content_id
    return part
