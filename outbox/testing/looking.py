"""What was enqueued, read on whatever connection there is.

The statements are steps (:mod:`outbox.statements`), so that a test may also look at a
delivery inside the transaction that has just written it, on any database.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import String, bindparam, func, select

from outbox import schema
from outbox.attachments import AnyAttachment, Attachment
from outbox.connections import Query, Steps
from outbox.deliveries import Delivery, delivery
from outbox.store import enqueue as store

_D, _B = schema.deliveries, schema.blobs
_keys = select(_D.c.delivery_key).order_by(_D.c.id)


@cache
def _content(dialect: str) -> Any:
    """As hexadecimal text: the drivers' own forms of bytes differ."""
    digits = func.encode(_B.c.content, "hex") if dialect == "postgresql" else func.hex(_B.c.content)
    return select(digits).where(_B.c.sha256 == bindparam("of_sha256", type_=String()))


def deliveries(dialect: str) -> Steps[list[Delivery]]:
    """Every delivery, in the order in which they were enqueued; attachments with content."""
    found: list[Delivery] = []
    for (key,) in (yield Query(_keys)):
        row = yield from store.find(dialect, key)
        if row is not None:
            found.append((yield from _loaded(dialect, delivery(*row))))
    return found


def _loaded(dialect: str, found: Delivery) -> Steps[Delivery]:
    message = found.message
    if message is None or not message.attachments:
        return found
    attachments: list[AnyAttachment] = []
    for each in message.attachments:
        rows = yield Query(_content(dialect), {"of_sha256": each.sha256})
        attachments.append(_with_content(each, rows[0][0]) if rows else each)
    whole: Any = tuple(attachments)
    return replace(found, message=replace(message, attachments=whole))


def _with_content(attachment: AnyAttachment, digits: str) -> AnyAttachment:
    return Attachment(
        attachment.filename,
        bytes.fromhex(digits),
        attachment.content_type,
        attachment.content_id,
    )
