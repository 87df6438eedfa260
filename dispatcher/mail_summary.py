"""A stored message in a few words: who, to whom, about what, how big. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from outbox.errors import InvalidMessage
from outbox.keys import message_id
from outbox.message import Address, StoredMessage
from outbox.reports import Story


@dataclass(frozen=True, slots=True)
class AttachmentSummary:
    """One attachment; ``size`` in bytes."""

    filename: str
    content_type: str
    size: int


@dataclass(frozen=True, slots=True)
class MailSummary:
    """What the message is. ``size`` is the bytes of texts and attachments before they are
    encoded; ``sender`` is None while nobody said; ``message_id`` is known from the first claim."""

    sender: str | None
    to: tuple[str, ...]
    cc: tuple[str, ...]
    bcc: tuple[str, ...]
    reply_to: tuple[str, ...]
    subject: str
    size: int
    attachments: tuple[AttachmentSummary, ...]
    message_id: str | None


def mail_summary(story: Story, default_from: str | None) -> MailSummary | None:
    """The message of ``story``; None when it was purged or cannot be read.

    default_from: the configured sender, for a message that names none and was
      never claimed; its first claim stores it.
    """
    if story.message is None:
        return None
    try:
        message = StoredMessage.parse(story.message)
        sender = message.from_ or _address(story.default_from or default_from)
    except InvalidMessage:
        return None
    bodies = (text for text in (message.text, message.html) if text is not None)
    attachments = tuple(
        AttachmentSummary(a.filename or "", a.content_type, a.size) for a in message.attachments
    )
    return MailSummary(
        sender=None if sender is None else str(sender),
        to=tuple(map(str, message.to)),
        cc=tuple(map(str, message.cc)),
        bcc=tuple(map(str, message.bcc)),
        reply_to=tuple(map(str, message.reply_to)),
        subject=message.subject,
        size=sum(len(text.encode()) for text in bodies) + sum(a.size for a in attachments),
        attachments=attachments,
        message_id=_message_id(story.public_id, sender),
    )


def _address(text: str | None) -> Address | None:
    return None if text is None else Address.parse(text, "from")


def _message_id(public_id: str | None, sender: Address | None) -> str | None:
    if public_id is None or sender is None:
        return None
    try:
        return message_id(public_id, sender.domain)
    except InvalidMessage:
        return None
