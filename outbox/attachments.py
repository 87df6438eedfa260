"""Files that travel with a message.

The content is captured when the message is made and named by its SHA-256, so that
nothing can change or vanish between two attempts. A row holds the digest; the bytes
lie in the blob table, once, however many messages carry them. A row written by plain
SQL may hold the bytes themselves, in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from outbox.characters import check_line, check_text
from outbox.errors import InvalidMessage
from outbox.limits import (
    ATTACHMENTS_OCTETS,
    CONTENT_ID_CHARACTERS,
    CONTENT_TYPE_CHARACTERS,
    FILENAME_CHARACTERS,
)
from outbox.shapes import check_members, is_list, kind, member, shown

_OCTET_STREAM: Final = "application/octet-stream"
_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]+"
_CONTENT_TYPE: Final = re.compile(
    rf'({_WORD}/{_WORD})(?:[ \t]*;[ \t]*charset=(?:({_WORD})|"({_WORD})"))?', re.IGNORECASE
)
_CONTENT_ID: Final = re.compile(r"[!#-;=?-~]+")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MEMBERS: Final = ("filename", "content", "content_type", "content_id", "sha256", "size")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file with its content.

    ``filename`` is any text without control characters; path parts are cut off by
    the renderer, and an empty name gets a generated one. ``content`` given as text
    is encoded in UTF-8 (a ``text/…`` type then says so, where it matters).
    ``content_type`` is ``type/subtype``, with no parameter but ``charset``.
    ``content_id``, without angle brackets, makes it inline (``cid:`` in the HTML).

    Raises InvalidMessage with the field (``filename``) if something is not usable.
    """

    filename: str
    content: bytes = field(repr=False)
    content_type: str
    content_id: str | None
    sha256: str = field(init=False)
    """SHA-256 of ``content``, in hex."""
    size: int = field(init=False)
    """Octets of ``content``."""

    def __init__(
        self,
        filename: str,
        content: bytes | str,
        content_type: str = _OCTET_STREAM,
        content_id: str | None = None,
    ) -> None:
        content_type = _check_content_type(content_type)
        if isinstance(content, str):
            content_type, content = _encoded(content_type, content)
        captured = _captured(content)
        put = object.__setattr__
        put(self, "filename", check_line("filename", filename, FILENAME_CHARACTERS))
        put(self, "content", captured)
        put(self, "content_type", content_type)
        put(self, "content_id", _check_content_id(content_id))
        put(self, "sha256", hashlib.sha256(captured).hexdigest())
        put(self, "size", len(captured))


@dataclass(frozen=True, slots=True)
class AttachmentReference:
    """A file by the digest of its content, which lies in the blob table."""

    filename: str
    sha256: str
    size: int
    content_type: str = _OCTET_STREAM
    content_id: str | None = None

    def __post_init__(self) -> None:
        check_line("filename", self.filename, FILENAME_CHARACTERS)
        _check_digest(self.sha256)
        _check_size(self.size)
        object.__setattr__(self, "content_type", _check_content_type(self.content_type))
        _check_content_id(self.content_id)


AnyAttachment: TypeAlias = Attachment | AttachmentReference


def attachment_forms(field_name: str, value: object, *, references: bool) -> list[AnyAttachment]:
    """The attachments of a message given as JSON, ``content`` in base64.

    With ``references``, one may give ``sha256`` and ``size`` instead of ``content``.
    Raises InvalidMessage with the path (``attachments[0].filename``).
    """
    if not is_list(value):
        raise InvalidMessage(field_name, f"is {kind(value)}, not a list")
    return [
        _from_form(f"{field_name}[{i}]", form, references=references)
        for i, form in enumerate(value)
    ]


def attachment_form(attachment: AnyAttachment) -> dict[str, Any]:
    """``attachment`` as it stands in a stored message: always by digest."""
    form = {
        "filename": attachment.filename,
        "content_type": attachment.content_type,
        "sha256": attachment.sha256,
        "size": attachment.size,
    }
    return form if attachment.content_id is None else {**form, "content_id": attachment.content_id}


def _from_form(path: str, value: object, *, references: bool) -> AnyAttachment:
    form = check_members(path, value, _MEMBERS)
    try:
        if "content" not in form and references:
            return _reference(form)
        return _with_content(form)
    except InvalidMessage as error:
        raise InvalidMessage(member(path, error.field), error.problem) from None


def _reference(form: Mapping[str, Any]) -> AttachmentReference:
    for name in ("sha256", "size"):
        if name not in form:
            raise InvalidMessage(name, 'is missing; an attachment has "content", or both of these')
    return AttachmentReference(
        form.get("filename", ""),
        form["sha256"],
        form["size"],
        form.get("content_type", _OCTET_STREAM),
        form.get("content_id"),
    )


def _with_content(form: Mapping[str, Any]) -> Attachment:
    if "content" not in form:
        raise InvalidMessage("content", "is missing; give the bytes in base64")
    made = Attachment(
        form.get("filename", ""),
        _decoded(form["content"]),
        form.get("content_type", _OCTET_STREAM),
        form.get("content_id"),
    )
    for name, actual in (("sha256", made.sha256), ("size", made.size)):
        stated = form.get(name, actual)
        if stated != actual or type(stated) is not type(actual):
            raise InvalidMessage(name, f"does not belong to the content; that has {actual}")
    return made


def _decoded(content: object) -> bytes:
    if not isinstance(content, str):
        raise InvalidMessage("content", f"is {kind(content)}, not text in base64")
    try:
        # PostgreSQL's encode(…, 'base64') and the base64 command break lines.
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidMessage("content", "is not valid base64 (RFC 4648 section 4)") from None


def _encoded(content_type: str, content: str) -> tuple[str, bytes]:
    check_text("content", content, ATTACHMENTS_OCTETS)
    charset = _charset(content_type)
    if charset and charset != "utf-8" and not (charset == "us-ascii" and content.isascii()):
        raise InvalidMessage(
            "content", f"is text, which leaves as UTF-8, not {charset}; drop the charset"
        )
    if not charset and content_type.lower().startswith("text/") and not content.isascii():
        content_type = f"{content_type}; charset=utf-8"
    return content_type, content.encode()


def _charset(content_type: str) -> str | None:
    found = _CONTENT_TYPE.fullmatch(content_type)
    charset = found and (found[2] or found[3])
    return charset.lower() if charset else None


def _captured(content: object) -> bytes:
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise InvalidMessage(
            "content", f"is {kind(content)}; pass bytes or text, for a file its read_bytes()"
        )
    captured = bytes(content)
    if len(captured) > ATTACHMENTS_OCTETS:
        raise InvalidMessage(
            "content", f"has {len(captured):,} bytes; at most {ATTACHMENTS_OCTETS:,}"
        )
    return captured


def _check_digest(value: object) -> None:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise InvalidMessage("sha256", "is no SHA-256 digest in 64 small hex digits")


def _check_size(value: object) -> None:
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not 0 <= value <= ATTACHMENTS_OCTETS
    ):
        raise InvalidMessage("size", f"is no number of bytes between 0 and {ATTACHMENTS_OCTETS:,}")


def _check_content_type(value: object) -> str:
    text = check_line("content_type", value, CONTENT_TYPE_CHARACTERS)
    if not _CONTENT_TYPE.fullmatch(text):
        raise InvalidMessage(
            "content_type",
            f'{shown(text)} is not like "text/csv" (only a charset may follow, after a ";")',
        )
    if text.lower().startswith("multipart/"):
        raise InvalidMessage("content_type", f"{shown(text)} is no type of a single file")
    return text


def _check_content_id(value: object) -> str | None:
    if value is None:
        return None
    text = check_line("content_id", value, CONTENT_ID_CHARACTERS)
    if not _CONTENT_ID.fullmatch(text):
        raise InvalidMessage(
            "content_id",
            f"{shown(text)} is not usable: visible ASCII, without white space, quotes"
            " and angle brackets",
        )
    return text
