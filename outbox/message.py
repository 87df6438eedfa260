"""The message: what a producer writes, checks, stores and compares.

One class checks everything, and two kinds of message share it: :class:`Email`, which
carries its attachments, and :class:`StoredMessage`, which is read from a row and knows
attachments by digest. Whoever holds either holds a message that can be rendered:
nothing in it breaks a header, and nothing in it is missing but the bytes of blobs.

The stored form is canonical JSON: fields that were not given are left out, so that a
later release with more fields gives old messages the same text, and the same
fingerprint. The fingerprint covers the message only; account, times and policy are
columns of the row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

from outbox import limits, message_fields, message_json
from outbox.addresses import (
    Address,
    AddressLike,
    AddressList,
    address_form,
    address_hash,
    compare_key,
    mailbox,
    mailboxes,
)
from outbox.attachments import (
    AnyAttachment,
    Attachment,
    AttachmentReference,
    attachment_form,
    attachment_forms,
)
from outbox.characters import check_line
from outbox.errors import InvalidMessage
from outbox.message_fields import AutoSubmitted, Unsubscribe
from outbox.shapes import check_members
from outbox.states import RecipientKind

__all__ = [
    "Address",
    "Attachment",
    "AttachmentReference",
    "Email",
    "StoredMessage",
    "Unsubscribe",
    "address_hash",
    "compare_key",
    "differing_fields",
    "fingerprint",
]

A = TypeVar("A", bound=AnyAttachment)
_NONE: Final[Mapping[str, Any]] = {}
_FINGERPRINT_VERSION: Final = "1"
_MEMBERS: Final = (
    *("from", "to", "cc", "bcc", "reply_to", "subject", "text", "html", "headers"),
    *("attachments", "tags", "metadata", "provider_options"),
    *("list_unsubscribe", "auto_submitted"),
)


@dataclass(frozen=True, slots=True, eq=False)
class _Message(Generic[A]):
    """What both kinds of message have in common; see :class:`Email`."""

    to: tuple[Address, ...]
    subject: str
    text: str | None = field(repr=False)
    html: str | None = field(repr=False)
    from_: Address | None
    cc: tuple[Address, ...]
    bcc: tuple[Address, ...]
    reply_to: tuple[Address, ...]
    headers: tuple[tuple[str, str], ...]
    attachments: tuple[A, ...]
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    provider_options: Mapping[str, Mapping[str, Any]] = field(repr=False)
    list_unsubscribe: Unsubscribe | None
    auto_submitted: AutoSubmitted | None
    _canonical: str | None = field(init=False, repr=False)

    attachment_types: ClassVar[tuple[type, ...]]

    def __init__(
        self,
        to: AddressList,
        subject: str = "",
        *,
        text: str | None = None,
        html: str | None = None,
        from_: AddressLike | None = None,
        cc: AddressList = (),
        bcc: AddressList = (),
        reply_to: AddressList = (),
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        attachments: Sequence[A] = (),
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] = _NONE,
        provider_options: Mapping[str, Mapping[str, Any]] = _NONE,
        list_unsubscribe: Unsubscribe | None = None,
        auto_submitted: AutoSubmitted | None = None,
    ) -> None:
        rules, put = message_fields, object.__setattr__
        put(self, "from_", None if from_ is None else mailbox("from", from_))
        put(self, "to", mailboxes("to", to))
        put(self, "cc", mailboxes("cc", cc))
        put(self, "bcc", mailboxes("bcc", bcc))
        put(self, "reply_to", mailboxes("reply_to", reply_to))
        put(self, "subject", check_line("subject", subject, limits.SUBJECT_CHARACTERS))
        put(self, "text", rules.optional_text("text", text))
        put(self, "html", rules.optional_text("html", html))
        put(self, "headers", rules.headers("headers", headers))
        put(self, "tags", rules.tags("tags", tags))
        put(self, "metadata", rules.metadata("metadata", metadata))
        put(self, "provider_options", rules.provider_options("provider_options", provider_options))
        unsubscribe = rules.list_unsubscribe("list_unsubscribe", list_unsubscribe)
        put(self, "list_unsubscribe", unsubscribe)
        put(self, "auto_submitted", rules.auto_submitted("auto_submitted", auto_submitted))
        kinds = self.attachment_types
        put(self, "attachments", rules.attachments("attachments", attachments, kinds))
        put(self, "_canonical", None)
        _check_whole(self)

    def canonical(self) -> str:
        """The stored form: compact JSON in the one spelling, attachments by digest."""
        if self._canonical is None:
            object.__setattr__(self, "_canonical", message_json.compact(_document(self)))
        return self._canonical or ""

    def recipients(self) -> tuple[tuple[RecipientKind, Address], ...]:
        """Every mailbox once, with its kind: ``to`` before ``cc`` before ``bcc``,
        equal ones (:func:`outbox.addresses.compare_key`) only where they stand first.
        """
        found: dict[str, tuple[RecipientKind, Address]] = {}
        for kind in RecipientKind:
            for address in getattr(self, kind.value):
                found.setdefault(compare_key(address), (kind, address))
        return tuple(found.values())

    def blobs(self) -> dict[str, bytes]:
        """The contents that came with the message, by their SHA-256 in hex."""
        return {a.sha256: a.content for a in self.attachments if isinstance(a, Attachment)}

    def sha256s(self) -> tuple[str, ...]:
        """The digests of all attachments, each once, in ascending order."""
        return tuple(sorted({attachment.sha256 for attachment in self.attachments}))

    def tags_json(self) -> str:
        """The tags as a JSON list, for the column that filters look at."""
        return message_json.compact(self.tags)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())


class Email(_Message[Attachment]):
    """A message to be sent once. Unchangeable; ``dataclasses.replace`` makes a variant.

    :param to: one mailbox (``"ana@example.org"``, ``"Ana <ana@example.org>"``, an
        :class:`Address`) or a list of them. A text is always one mailbox. One
        recipient per message is the recommended use. ``cc``, ``bcc`` and
        ``reply_to`` are given in the same way.
    :param subject: one line. It is literal: encoded words are not decoded.
    :param text: the plain text body; ``html`` the HTML one. One of them, or both.
    :param from_: the author; left out, ``[defaults] from`` of the configuration.
    :param headers: further header fields, as a mapping (sorted by name) or as
        pairs (kept in order, a name may stand there twice). Header fields that
        have a field here, or that the renderer writes, are refused.
    :param attachments: a list of :class:`Attachment`.
    :param tags: labels for filters and statistics.
    :param metadata: text by name, passed on to providers that can carry it.
    :param provider_options: for each provider's name, what only that one understands.
    :param list_unsubscribe: an :class:`Unsubscribe`.
    :param auto_submitted: ``"auto-generated"`` for mail that no person asked for at
        this moment (reports, reminders, alerts), so that out-of-office programs do
        not answer it; ``"auto-replied"`` for an automatic answer to a mail
        (RFC 3834 section 5). Left out, no header is written: an invoice or a
        password link is the direct result of what somebody did.

    Sizes are bounded (:mod:`outbox.limits`). Raises InvalidMessage, with the path of
    the field (``to[1]``, ``headers["X-Id"]``), if anything is not usable.
    """

    __slots__ = ()
    attachment_types = (Attachment,)

    def to_json(self) -> str:
        """The stored form; the contents of attachments are in :meth:`blobs`."""
        return self.canonical()

    @classmethod
    def from_json(cls, value: str | bytes | Mapping[str, Any]) -> Email:
        """The message in JSON (``postroom schema message``), attachments in base64.

        A member that is null counts as left out. Raises InvalidMessage, also for
        unknown members, names that stand twice, and what is no JSON.
        """
        document = value if isinstance(value, Mapping) else message_json.read(value)
        return cls(**_arguments(document, references=False))


class StoredMessage(_Message[AnyAttachment]):
    """A message as it stands in a row. Attachments are :class:`AttachmentReference`;
    in rows written by plain SQL they may carry their content (:class:`Attachment`).
    """

    __slots__ = ()
    attachment_types = (Attachment, AttachmentReference)

    @classmethod
    def parse(cls, text: str) -> StoredMessage:
        """The message in ``text``. Raises InvalidMessage, and nothing else, if it is none."""
        return cls(**_arguments(message_json.read(text), references=True))


def fingerprint(message: str | Email | StoredMessage) -> str:
    """What two equal messages share: a version and the SHA-256 of the canonical form.

    Text is parsed first, so that the order of keys and the spelling of JSON do not
    count, and inlined content equals a reference to it. Raises InvalidMessage if the text
    is no message.
    """
    known = StoredMessage.parse(message) if isinstance(message, str) else message
    digest = hashlib.sha256(known.canonical().encode()).hexdigest()
    return f"{_FINGERPRINT_VERSION}:{digest}"


def differing_fields(first: str, second: str) -> tuple[str, ...]:
    """The fields in which two stored messages differ (``text``, ``attachments[0]``).

    Where one of them is no valid message, only ``message`` can be named.
    """
    try:
        documents = [_document(StoredMessage.parse(text)) for text in (first, second)]
    except InvalidMessage:
        return () if first == second else ("message",)
    parts = [_parts(document) for document in documents]
    names = sorted({*parts[0], *parts[1]}, key=_position)
    return tuple(name for name in names if parts[0].get(name) != parts[1].get(name))


def _check_whole(message: _Message[A]) -> None:
    most = limits.RECIPIENTS
    count = len(message.to) + len(message.cc) + len(message.bcc)
    if not count:
        raise InvalidMessage("to", "is empty, and so are cc and bcc: nobody would get this")
    if count > most:
        raise InvalidMessage("to", f"has, with cc and bcc, {count:,} addresses; at most {most:,}")
    if len(message.reply_to) > limits.REPLY_TO:
        raise InvalidMessage("reply_to", f"has more than {limits.REPLY_TO} addresses")
    if message.text is None and message.html is None:
        raise InvalidMessage("text", "is missing, and so is html: give one of them")


def _arguments(document: object, *, references: bool) -> dict[str, Any]:
    """The JSON form as arguments of :class:`_Message`."""
    given = dict(check_members("", document, _MEMBERS))
    if "from" in given:
        given["from_"] = given.pop("from")
    if "attachments" in given:
        given["attachments"] = attachment_forms(
            "attachments", given["attachments"], references=references
        )
    return {"to": (), **given}


def _document(message: _Message[A]) -> dict[str, Any]:
    unsubscribe = message.list_unsubscribe
    found = {
        "from": None if message.from_ is None else address_form(message.from_),
        "to": [address_form(address) for address in message.to] or None,
        "cc": [address_form(address) for address in message.cc] or None,
        "bcc": [address_form(address) for address in message.bcc] or None,
        "reply_to": [address_form(address) for address in message.reply_to] or None,
        "subject": message.subject or None,
        "text": message.text,
        "html": message.html,
        "headers": message.headers or None,
        "attachments": [attachment_form(a) for a in message.attachments] or None,
        "tags": message.tags or None,
        "metadata": message.metadata or None,
        "provider_options": message.provider_options or None,
        "list_unsubscribe": unsubscribe
        and {"urls": unsubscribe.urls, "one_click": unsubscribe.one_click},
        "auto_submitted": message.auto_submitted,
    }
    return {name: value for name, value in found.items() if value is not None}


def _parts(document: Mapping[str, Any]) -> dict[str, str]:
    """``document`` by field, attachments one by one, each as JSON: there ``1`` is not ``true``."""
    parts = {name: message_json.compact(value) for name, value in document.items()}
    attachments = document.get("attachments", ())
    parts.pop("attachments", None)
    return parts | {
        f"attachments[{i}]": message_json.compact(form) for i, form in enumerate(attachments)
    }


def _position(name: str) -> tuple[int, int]:
    field_name, _, index = name.partition("[")
    return _MEMBERS.index(field_name), int(index.rstrip("]") or 0)
