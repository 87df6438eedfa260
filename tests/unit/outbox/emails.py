"""A message with every field, and the errors of messages that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox.errors import InvalidMessage
from outbox.message import (
    Address,
    Attachment,
    Email,
    StoredMessage,
    Unsubscribe,
)

FULL = Email(
    ["Zoë <zoe@example.org>", Address("ana@example.org")],
    "Website audit – W48",
    text="Hello\n",
    html="<p>Hello</p>",
    from_="Reports <reports@example.com>",
    cc="ben@example.org",
    bcc=["aud@example.net"],
    reply_to={"address": "help@example.com", "name": "Help, please"},
    headers={"X-Site": "42", "References": "<a@example.com>"},
    attachments=[
        Attachment("a.csv", b"a;b", "text/csv"),
        Attachment("l", b"", "image/png", "logo"),
    ],
    tags=["weekly", "audit", "weekly"],
    metadata={"site": "42", "note": "two\nlines"},
    provider_options={"resend": {"z": [1, 2.0, None, True, "x"], "a": {"b": 0.5}}},
    list_unsubscribe=Unsubscribe(["https://example.com/u", "mailto:u@example.com"], one_click=True),
    auto_submitted="auto-generated",
)


def refusal(**changes: Any) -> InvalidMessage:
    """The error for a message that is fine but for ``changes``."""
    arguments: dict[str, Any] = {"to": "ana@example.org", "text": "x", **changes}
    with pytest.raises(InvalidMessage) as caught:
        Email(**arguments)
    assert str(caught.value).isprintable()
    return caught.value


def json_refusal(document: Any) -> InvalidMessage:
    """The error for a message in JSON; reading it from a row must give the same."""
    text = document if isinstance(document, (str, bytes)) else json.dumps(document)
    with pytest.raises(InvalidMessage) as caught:
        Email.from_json(text)
    with pytest.raises(InvalidMessage) as stored:
        StoredMessage.parse(text)  # type: ignore[arg-type]
    assert str(stored.value) == str(caught.value)
    return caught.value
