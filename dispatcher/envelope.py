"""From a claimed row to the message a provider understands. Pure.

The same row gives the same message on every attempt: nothing here reads a
clock, a random source or the configuration. What the producer left out was
stored with the row at its first claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outbox.errors import InvalidMessage
from outbox.keys import idempotency_key, message_id
from outbox.message import Address, StoredMessage
from outbox.records import Claimed
from providers import contract


def parsed(claimed: Claimed) -> StoredMessage:
    """The stored message. Raises InvalidMessage when the row holds none."""
    return StoredMessage.parse(claimed.message)


def envelope(
    claimed: Claimed,
    message: StoredMessage,
    blobs: Mapping[str, bytes],
    *,
    provider: str,
    kept: bytes | None = None,
) -> contract.Message:
    """The message for one attempt, to the recipients that it is for.

    ``blobs`` holds the attachments' contents by SHA-256; ``provider`` chooses
    among the producer's options; ``kept`` is the request that a replay repeats. Raises InvalidMessage when the message has no
    sender or an attachment's content is not there.
    """
    sender = _sender(claimed, message)
    recipients = claimed.for_recipients
    closed = len(claimed.recipients) - len(recipients)
    unsubscribe = message.list_unsubscribe
    return contract.Message(
        correlation=claimed.public_id,
        idempotency_key=claimed.idempotency_key or idempotency_key(claimed.public_id, closed),
        message_id=message_id(claimed.public_id, sender.domain),
        date=claimed.send_after,
        sender=_address(sender),
        to=_addresses(message.to),
        cc=_addresses(message.cc),
        bcc=_addresses(message.bcc),
        reply_to=_addresses(message.reply_to),
        recipients=tuple(recipient.address for recipient in recipients),
        subject=message.subject,
        text=message.text,
        html=message.html,
        headers=tuple(message.headers),
        attachments=tuple(_attachments(message, blobs)),
        tags=tuple(message.tags),
        metadata=dict(message.metadata),
        unsubscribe=None
        if unsubscribe is None
        else contract.Unsubscribe(tuple(unsubscribe.urls), unsubscribe.one_click),
        auto_submitted=message.auto_submitted,
        options=dict(message.provider_options.get(provider, {})),
        kept=kept,
    )


def inquiry(claimed: Claimed, message: StoredMessage) -> contract.Inquiry:
    """The question that a look-up asks about a delivery in doubt."""
    return contract.Inquiry(
        correlation=claimed.public_id,
        idempotency_key=claimed.idempotency_key or claimed.public_id,
        message_id=message_id(claimed.public_id, _sender(claimed, message).domain),
        recipients=tuple(recipient.address for recipient in claimed.for_recipients),
        first_transmitted_at=claimed.first_transmitted_at or claimed.send_after,
    )


def _sender(claimed: Claimed, message: StoredMessage) -> Address:
    if message.from_ is not None:
        return message.from_
    if claimed.default_from is None:
        raise InvalidMessage(
            "from", 'is missing, and the configuration has no "from" under [defaults]'
        )
    return Address.parse(claimed.default_from, "from")


def _address(address: Address) -> contract.Address:
    return contract.Address(address.address, address.name)


def _addresses(addresses: Iterable[Address]) -> tuple[contract.Address, ...]:
    return tuple(_address(address) for address in addresses)


def _attachments(
    message: StoredMessage, blobs: Mapping[str, bytes]
) -> Iterable[contract.Attachment]:
    for index, attachment in enumerate(message.attachments):
        content = blobs.get(attachment.sha256)
        if content is None:
            raise InvalidMessage(
                f"attachments[{index}]", f"its content ({attachment.sha256}) was never stored"
            )
        yield contract.Attachment(
            attachment.filename, content, attachment.content_type, attachment.content_id
        )
