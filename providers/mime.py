"""A message as octets: the same ones on every attempt.

A receiver that got two copies can tell so only if both are the same message,
and a provider that knows a key compares bodies. So nothing here comes from a
clock, a counter, a random number or the order of a set: the Date and the
Message-ID are the message's own, boundaries are derived from its correlation
value, and fields stand in one fixed order. Two things may still differ
between attempts, because the server on the other side does: ``eight_bit`` and
``smtputf8``. An adapter that wants one form everywhere passes False for both.

A boundary must not occur in what it separates (RFC 2046, 5.1.1). It begins
with ``=_``, which neither quoted-printable nor base64 can produce, and it is
searched for in the finished parts; if it is there, the next one is derived.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from providers.addresses import needs_smtputf8
from providers.attachment_names import attachment_name
from providers.bodies import Body, encode_base64, encode_message, encode_text
from providers.contract import Attachment, Message, Unsubscribe
from providers.custom_headers import custom_fields
from providers.encoding import InvalidField
from providers.headers import (
    address_list,
    date,
    message_id,
    parameterised,
    structured,
    unstructured,
)

__all__ = ["attachment_name", "message_needs_smtputf8", "render"]

_WORD = r"[A-Za-z0-9!#$&^_.+\-]+"
_CONTENT_TYPE = re.compile(
    rf'({_WORD}/{_WORD})(?:[ \t]*;[ \t]*charset="?({_WORD})"?)?', re.IGNORECASE
)
_CONTENT_ID = re.compile(r"[!-;=?-~]+")
_URL = re.compile(r"(?:mailto:|https://)[!#-;=?-~]+", re.IGNORECASE)
_AUTO_SUBMITTED = re.compile(r"[A-Za-z0-9\-]+(?: *;.+)?")
_UNKNOWN_TYPE = "application/octet-stream"
_FREELY_ENCODED = frozenset(
    {
        "message/global",
        "message/global-delivery-status",
        "message/global-disposition-notification",
        "message/global-headers",
    }
)
"""Messages that may be encoded like any file (RFC 6532, 3.7; RFC 6533, 4 to 6)."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of the tree: its header fields in order, and its encoded body."""

    fields: tuple[bytes, ...]
    content: bytes = field(repr=False)
    is_8bit: bool = False

    @property
    def octets(self) -> bytes:
        return b"".join(self.fields) + b"\r\n" + self.content


def render(message: Message, *, eight_bit: bool, smtputf8: bool) -> bytes:
    """``message`` as it goes over the wire, with CRLF line ends and no dot doubled.

    ``eight_bit``: the server offers 8BITMIME, UTF-8 bodies may go raw.
    ``smtputf8``: the server offers SMTPUTF8, addresses may hold UTF-8.
    Blind recipients appear nowhere. Decoded bodies equal the message's text,
    with CRLF line ends.

    Raises InvalidField for what cannot be written, with the field's path, and
    NeedsSmtpUtf8 for an address in the header that is not ASCII. Both are final.
    Source: RFC 5322, RFC 2045, RFC 2046, RFC 2387.
    """
    body = _body(message, eight_bit=eight_bit)
    fields = [
        *_message_fields(message, smtputf8=smtputf8),
        structured("MIME-Version", "1.0"),
        *body.fields,
    ]
    end = b"" if not body.content or body.content.endswith(b"\r\n") else b"\r\n"
    return b"".join(fields) + b"\r\n" + body.content + end


def message_needs_smtputf8(message: Message) -> bool:
    """Whether an address of the header or of ``recipients`` needs SMTPUTF8 (RFC 6531)."""
    shown = (message.sender, *message.to, *message.cc, *message.reply_to)
    return any(
        needs_smtputf8(address)
        for address in (*(mailbox.address for mailbox in shown), *message.recipients)
    )


def _message_fields(message: Message, *, smtputf8: bool) -> list[bytes]:
    lists = (
        ("From", (message.sender,), "from"),
        ("Reply-To", message.reply_to, "reply_to"),
        ("To", message.to, "to"),
        ("Cc", message.cc, "cc"),
    )
    own = [
        date(message.date),
        *(
            address_list(name, mailboxes, smtputf8=smtputf8, path=path)
            for name, mailboxes, path in lists
            if mailboxes
        ),
        unstructured("Subject", message.subject, path="subject"),
        structured("Message-ID", message_id(message.message_id), path="message_id"),
    ]
    if message.auto_submitted is not None:
        if not _AUTO_SUBMITTED.fullmatch(message.auto_submitted):
            raise InvalidField(
                "auto_submitted",
                f"{message.auto_submitted!r} is no keyword of RFC 3834; write auto-generated",
            )
        own.append(structured("Auto-Submitted", message.auto_submitted, path="auto_submitted"))
    if message.unsubscribe is not None:
        own += _unsubscribe_fields(message.unsubscribe)
    taken = frozenset(octets.partition(b":")[0].decode("ascii").lower() for octets in own)
    return own + custom_fields(message.headers, taken=taken)


def _unsubscribe_fields(unsubscribe: Unsubscribe) -> list[bytes]:
    """List-Unsubscribe (RFC 2369, 3.2) and, for one click, its companion (RFC 8058, 3.1)."""
    for position, url in enumerate(unsubscribe.urls):
        if not _URL.fullmatch(url):
            raise InvalidField(
                f"unsubscribe.urls[{position}]",
                f"{url!r} is no mailto: or https: URL in ASCII; percent-encode it",
            )
    if not unsubscribe.urls:
        raise InvalidField("unsubscribe.urls", "is empty; give at least one URL")
    value = ", ".join(f"<{url}>" for url in unsubscribe.urls)
    fields = [structured("List-Unsubscribe", value, path="unsubscribe.urls")]
    if unsubscribe.one_click:
        if not any(url.lower().startswith("https://") for url in unsubscribe.urls):
            raise InvalidField("unsubscribe.one_click", "needs an https: URL in unsubscribe.urls")
        fields.append(structured("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"))
    return fields


# --------------------------------------------------------------------------- #
# The tree: mixed(alternative(text, related(html, inline ...)), attachment ...)
# --------------------------------------------------------------------------- #


def _body(message: Message, *, eight_bit: bool) -> _Part:
    seed = message.correlation
    files = [
        (
            attachment.content_id is not None and message.html is not None,
            _attachment(attachment, index, eight_bit=eight_bit),
        )
        for index, attachment in enumerate(message.attachments)
    ]
    inline = [part for belongs_to_html, part in files if belongs_to_html]
    beside = [part for belongs_to_html, part in files if not belongs_to_html]
    texts = [
        (subtype, text)
        for subtype, text in (("plain", message.text), ("html", message.html))
        if text is not None
    ] or [("plain", "")]
    closing = len(texts) + len(files) == 1
    parts = [_text(subtype, text, eight_bit=eight_bit, closing=closing) for subtype, text in texts]
    if inline:
        parts[-1] = _multipart("related", [parts[-1], *inline], seed=seed, root="text/html")
    content = _multipart("alternative", parts, seed=seed) if len(parts) > 1 else parts[0]
    return _multipart("mixed", [content, *beside], seed=seed) if beside else content


def _text(subtype: str, text: str, *, eight_bit: bool, closing: bool) -> _Part:
    path = "text" if subtype == "plain" else "html"
    body = encode_text(text, eight_bit=eight_bit, closing=closing, path=path)
    return _leaf(f"text/{subtype}", [("charset", body.charset)], body)


def _attachment(attachment: Attachment, index: int, *, eight_bit: bool) -> _Part:
    path = f"attachments[{index}]"
    given = _CONTENT_TYPE.fullmatch(attachment.content_type)
    if given is None:
        raise InvalidField(
            f"{path}.content_type",
            f"{attachment.content_type!r} is no type; write it as text/csv",
        )
    content_type, written_in = given.groups()
    name = attachment_name(attachment.filename, index, content_type)
    extra = []
    if attachment.content_id is not None:
        if not _CONTENT_ID.fullmatch(attachment.content_id):
            raise InvalidField(
                f"{path}.content_id", "has to be printable ASCII without spaces, < and >"
            )
        extra.append(
            structured("Content-ID", f"<{attachment.content_id}>", path=f"{path}.content_id")
        )
    disposition = "attachment" if attachment.content_id is None else "inline"
    extra.append(
        parameterised(
            "Content-Disposition", disposition, [("filename", name)], path=f"{path}.filename"
        )
    )
    content_type, body = _file_body(content_type, attachment.content, eight_bit=eight_bit)
    charset = written_in or body.charset
    parameters = [("charset", charset)] if charset else []
    return _leaf(content_type, parameters, body, extra)


def _file_body(content_type: str, content: bytes, *, eight_bit: bool) -> tuple[str, Body]:
    """The type and encoding under which ``content`` arrives octet for octet.

    What claims to be a message but cannot travel as one is sent as a plain
    file, and so is what claims to be multipart: its boundary is not known.
    """
    kind = content_type.lower()
    if kind.startswith("message/") and kind not in _FREELY_ENCODED:
        body = encode_message(content, eight_bit=eight_bit)
        return (content_type, body) if body else (_UNKNOWN_TYPE, encode_base64(content))
    if kind.startswith("multipart/"):
        return _UNKNOWN_TYPE, encode_base64(content)
    encoded = encode_base64(content)
    if kind.startswith("text/") and not content.isascii() and _is_utf8(content):
        return content_type, Body(encoded.encoding, encoded.content, "utf-8")
    return content_type, encoded


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _leaf(
    content_type: str,
    parameters: Sequence[tuple[str, str]],
    body: Body,
    extra: Sequence[bytes] = (),
) -> _Part:
    fields = (
        parameterised("Content-Type", content_type, parameters),
        structured("Content-Transfer-Encoding", body.encoding),
        *extra,
    )
    return _Part(fields, body.content, is_8bit=body.encoding == "8bit")


def _multipart(subtype: str, parts: Sequence[_Part], *, seed: str, root: str = "") -> _Part:
    inside = [part.octets for part in parts]
    boundary = _boundary(f"{seed}/{subtype}", inside)
    parameters = [("type", root)] if root else []
    fields = [
        parameterised("Content-Type", f"multipart/{subtype}", [*parameters, ("boundary", boundary)])
    ]
    is_8bit = any(part.is_8bit for part in parts)
    if is_8bit:
        # A multipart is at least as wide as its widest part (RFC 2045, 6.4).
        fields.append(structured("Content-Transfer-Encoding", "8bit"))
    mark = b"--" + boundary.encode("ascii")
    content = b"".join(mark + b"\r\n" + octets + b"\r\n" for octets in inside) + mark + b"--"
    return _Part(tuple(fields), content, is_8bit=is_8bit)


def _boundary(seed: str, inside: Sequence[bytes]) -> str:
    count = 0
    while True:
        boundary = "=_" + hashlib.sha256(f"{seed}/{count}".encode()).hexdigest()[:32]
        if not any(boundary.encode("ascii") in octets for octets in inside):
            return boundary
        count += 1
