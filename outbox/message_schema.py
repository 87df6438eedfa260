"""The message's JSON form as a JSON Schema (draft 2020-12), for every language.

It says what is a message by its structure and sizes. What no schema can say well
(is this an address, does this header belong to us) is checked when the message is
read; everything that is accepted there is valid here.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from outbox import limits
from outbox.message_fields import AUTO_SUBMITTED

_Schema = dict[str, Any]


def _nullable(description: str, *alternatives: _Schema) -> _Schema:
    return {"description": description, "anyOf": [*alternatives, {"type": "null"}]}


def _text(maximum: int, minimum: int = 0) -> _Schema:
    bounds = {"minLength": minimum} if minimum else {}
    return {"type": "string", **bounds, "maxLength": maximum}


def _list(items: _Schema, maximum: int, minimum: int = 0) -> _Schema:
    bounds = {"minItems": minimum} if minimum else {}
    return {"type": "array", "items": items, **bounds, "maxItems": maximum}


def _object(properties: _Schema, *required: str) -> _Schema:
    needed = {"required": list(required)} if required else {}
    return {
        "type": "object",
        "properties": properties,
        **needed,
        "additionalProperties": False,
    }


def _recipients(description: str, maximum: int = limits.RECIPIENTS) -> _Schema:
    mailbox = {"$ref": "#/$defs/mailbox"}
    return _nullable(description, mailbox, _list(mailbox, maximum))


_MAILBOX: Final[_Schema] = {
    "description": "One mailbox. A comma-separated list is refused.",
    "anyOf": [
        _text(limits.MAILBOX_CHARACTERS, 1),
        _object(
            {
                "address": {
                    **_text(limits.ADDRESS_OCTETS, 1),
                    "description": "local@domain, in plain Unicode.",
                },
                "name": _nullable("The display name.", _text(limits.NAME_CHARACTERS)),
            },
            "address",
        ),
    ],
    "examples": [
        "ana@example.org",
        "Ana <ana@example.org>",
        {"address": "zoe@example.org", "name": "Zoë of the Branch Office, North"},
    ],
}

_ATTACHMENT: Final[_Schema] = {
    "description": "A file: with its content, or by the digest of a stored blob.",
    **_object(
        {
            "filename": _nullable(
                "No control characters; only the last path part is sent.",
                _text(limits.FILENAME_CHARACTERS),
            ),
            "content_type": _nullable(
                "type/subtype, charset as the only parameter; default application/octet-stream.",
                _text(limits.CONTENT_TYPE_CHARACTERS, 3),
            ),
            "content": _nullable(
                "The bytes in base64 (RFC 4648 section 4); line breaks are ignored.",
                {"type": "string", "contentEncoding": "base64"},
            ),
            "content_id": _nullable(
                "Makes it inline: cid: in the HTML names it. Without angle brackets.",
                _text(limits.CONTENT_ID_CHARACTERS, 1),
            ),
            "sha256": _nullable(
                "SHA-256 of the content.", {"type": "string", "pattern": "^[0-9a-f]{64}$"}
            ),
            "size": _nullable(
                "Bytes of the content.",
                {"type": "integer", "minimum": 0, "maximum": limits.ATTACHMENTS_OCTETS},
            ),
        }
    ),
    "anyOf": [{"required": ["content"]}, {"required": ["sha256", "size"]}],
}

_HEADERS: Final[_Schema] = _nullable(
    "Further header fields: an object, or pairs where order or repetition matters. Header"
    " fields that have a member here, and those of the MIME structure, are refused.",
    {
        "type": "object",
        "propertyNames": _text(limits.HEADER_NAME_CHARACTERS, 1),
        "additionalProperties": _text(limits.HEADER_VALUE_CHARACTERS),
        "maxProperties": limits.HEADERS,
    },
    _list(
        {
            "type": "array",
            "prefixItems": [
                _text(limits.HEADER_NAME_CHARACTERS, 1),
                _text(limits.HEADER_VALUE_CHARACTERS),
            ],
            "items": False,
            "minItems": 2,
        },
        limits.HEADERS,
    ),
)

_PROPERTIES: Final[_Schema] = {
    "from": _nullable("The author; left out, the configured default.", {"$ref": "#/$defs/mailbox"}),
    "to": _recipients("The recipients; one per message is the recommended use."),
    "cc": _recipients("Recipients of a copy."),
    "bcc": _recipients("Recipients that no other recipient sees."),
    "reply_to": _recipients("Where answers go.", limits.REPLY_TO),
    "subject": _nullable("One line, literal.", _text(limits.SUBJECT_CHARACTERS)),
    "text": _nullable("The plain text body, at most 10 MiB.", _text(limits.BODY_OCTETS)),
    "html": _nullable("The HTML body, at most 10 MiB.", _text(limits.BODY_OCTETS)),
    "headers": _HEADERS,
    "attachments": _nullable(
        "Files, at most 40 MiB together.",
        _list({"$ref": "#/$defs/attachment"}, limits.ATTACHMENTS),
    ),
    "tags": _nullable(
        "Labels for filters and statistics.", _list(_text(limits.TAG_CHARACTERS, 1), limits.TAGS)
    ),
    "metadata": _nullable(
        "Text by name, passed on to providers that can carry it.",
        {
            "type": "object",
            "propertyNames": _text(limits.METADATA_KEY_CHARACTERS, 1),
            "additionalProperties": _text(limits.METADATA_VALUE_CHARACTERS),
            "maxProperties": limits.METADATA_ENTRIES,
        },
    ),
    "provider_options": _nullable(
        "For each provider's name, what only that one understands.",
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z][a-z0-9_-]{0,63}$"},
            "additionalProperties": {"type": "object"},
        },
    ),
    "list_unsubscribe": _nullable(
        "List-Unsubscribe (RFC 2369), with one_click also RFC 8058.",
        _object(
            {
                "urls": _list(
                    _text(limits.UNSUBSCRIBE_URL_CHARACTERS, 1), limits.UNSUBSCRIBE_URLS, 1
                ),
                "one_click": _nullable("Needs an https: URL.", {"type": "boolean"}),
            },
            "urls",
        ),
    ),
    "auto_submitted": _nullable(
        "auto-generated: nobody asked for it at this moment. auto-replied: an automatic answer.",
        {"enum": list(AUTO_SUBMITTED)},
    ),
}

MESSAGE_SCHEMA: Final[_Schema] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Postroom message",
    "description": "One message to be sent once. A member that is null counts as left out.",
    **_object(_PROPERTIES),
    "allOf": [
        {"anyOf": [{"required": [name]} for name in ("to", "cc", "bcc")]},
        {"anyOf": [{"required": [name]} for name in ("text", "html")]},
    ],
    "$defs": {"mailbox": _MAILBOX, "attachment": _ATTACHMENT},
    "examples": [
        {"to": "ana@example.org", "subject": "Invoice 7", "text": "Thank you."},
        {
            "from": "Reports <reports@example.com>",
            "to": ["ana@example.org", {"address": "ben@example.org", "name": "Ben, at work"}],
            "subject": "Website audit 2026-W48",
            "text": "Three findings.",
            "html": "<p>Three findings.</p>",
            "headers": {"X-Audit": "site-42"},
            "attachments": [
                {"filename": "findings.csv", "content_type": "text/csv", "content": "YSxiCg=="}
            ],
            "tags": ["website-audit"],
            "metadata": {"site": "site-42"},
            "list_unsubscribe": {
                "urls": ["https://example.com/unsubscribe/42", "mailto:unsubscribe@example.com"],
                "one_click": True,
            },
            "auto_submitted": "auto-generated",
        },
    ],
}
"""Not to be changed; :func:`message_schema` gives a copy."""


def message_schema() -> dict[str, Any]:
    """The JSON Schema of the message's JSON form, as a copy of one's own."""
    return copy.deepcopy(MESSAGE_SCHEMA)
