"""Attachments: captured content, names, types, and their two JSON forms."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from pathlib import PurePath
from typing import Any

import pytest

from outbox import limits
from outbox.errors import InvalidMessage
from outbox.message import Attachment, Email, StoredMessage

CONTENT = b"a;b\n1;2\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
BASE64 = base64.b64encode(CONTENT).decode()


def message(*attachments: Any) -> dict[str, Any]:
    """The JSON form of a message with ``attachments``."""
    return {"to": "ana@example.org", "text": "x", "attachments": list(attachments)}


def test_the_content_is_captured_and_named_by_its_digest() -> None:
    """An attachment holds its own bytes, whatever becomes of the buffer they came in (B22)."""
    buffer = bytearray(CONTENT)
    attachment = Attachment("a.csv", memoryview(buffer), "text/csv")  # type: ignore[arg-type]
    buffer[:] = b"z" * len(buffer)
    assert attachment.content == CONTENT
    assert (attachment.sha256, attachment.size) == (DIGEST, len(CONTENT))
    email = Email("ana@example.org", text="x", attachments=[attachment, attachment])
    assert email.blobs() == {DIGEST: CONTENT}
    assert email.sha256s() == (DIGEST,)


def test_the_arguments_stand_in_the_documented_order() -> None:
    """File name, content, type, content id; the type has a default."""
    assert Attachment("a", b"").content_type == "application/octet-stream"
    attachment = Attachment("a.png", b"", "image/png", "logo@example.com")
    assert attachment.content_id == "logo@example.com"
    assert dataclasses.replace(attachment, filename="b.png").filename == "b.png"
    assert "content=" not in repr(attachment)


@pytest.mark.parametrize(
    ("content_type", "content", "stored"),
    [
        ("text/csv", "Zoë", "text/csv; charset=utf-8"),
        ("text/csv", "Zoe", "text/csv"),
        ("text/csv; charset=UTF-8", "Zoë", "text/csv; charset=UTF-8"),
        ('text/csv; charset="utf-8"', "Zoë", 'text/csv; charset="utf-8"'),
        ("text/csv; charset=us-ascii", "Zoe", "text/csv; charset=us-ascii"),
        ("application/json", "Zoë", "application/json"),
        ("text/csv", "Zoë".encode(), "text/csv"),
        ("text/csv; charset=iso-8859-1", b"Zo\xeb", "text/csv; charset=iso-8859-1"),
    ],
)
def test_text_leaves_as_utf_8_and_says_so(
    content_type: str, content: str | bytes, stored: str
) -> None:
    """Text content is encoded in UTF-8, and a text type without a charset gets one."""
    attachment = Attachment("a.csv", content, content_type)
    assert attachment.content_type == stored
    assert attachment.content == (content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    "name",
    ["Prüfbericht Q1 – 10%.pdf", r"a\"b\\c; d=e.pdf", "재" * 70 + ".pdf", "../../etc/passwd", ""],
)
def test_any_file_name_without_control_characters_is_kept(name: str) -> None:
    """File names are kept exactly; the renderer makes them safe to send (B14)."""
    email = Email("ana@example.org", text="x", attachments=[Attachment(name, b"")])
    assert StoredMessage.parse(email.to_json()).attachments[0].filename == name


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"filename": "x.pdf\r\nX-Evil: 1"}, "filename: contains a carriage return (U+000D)"),
        ({"filename": "x\u2028y"}, "filename: contains a line break (U+2028)"),
        ({"filename": "x\x85y"}, "filename: contains a line break (U+0085)"),
        ({"filename": "x\x00y"}, "filename: contains NUL"),
        ({"filename": "x\ud83dy"}, "filename: contains half of a surrogate pair (U+D83D)"),
        ({"filename": "x" * 256}, "filename: has 256 characters; at most 255"),
        ({"filename": None}, "filename: is null, not text"),
        ({"filename": PurePath("x")}, "filename: is of type PurePosixPath, not text"),
        ({"content": None}, "content: is null; pass bytes or text"),
        (
            {"content": PurePath("x")},
            "content: is of type PurePosixPath; pass bytes or text, for a file",
        ),
        ({"content": "x\x00"}, "content: contains NUL"),
        ({"content": "x\ud83d"}, "content: contains half of a surrogate pair"),
        (
            {"content": "é", "content_type": "text/csv; charset=iso-8859-1"},
            "content: is text, which leaves as UTF-8, not iso-8859-1; drop the charset",
        ),
        ({"content": "é", "content_type": "text/csv; charset=us-ascii"}, "content: is text, which"),
        ({"content_type": "text"}, 'content_type: "text" is not like "text/csv"'),
        ({"content_type": "text/csv; name=x"}, "content_type: "),
        ({"content_type": "text/csv; charset=a; charset=b"}, "content_type: "),
        ({"content_type": "text/csv\r\nX-Evil: 1"}, "content_type: contains a carriage return"),
        ({"content_type": "text/ csv"}, "content_type: "),
        ({"content_type": "téxt/csv"}, "content_type: "),
        ({"content_type": ""}, "content_type: "),
        ({"content_type": "Multipart/mixed"}, "content_type: "),
        ({"content_id": "<logo>"}, 'content_id: "<logo>" is not usable'),
        ({"content_id": "a b"}, "content_id: "),
        ({"content_id": ""}, "content_id: "),
        ({"content_id": "é"}, "content_id: "),
        ({"content_id": "a\r\nb"}, "content_id: contains a carriage return"),
    ],
)
def test_what_cannot_be_attached_is_refused(change: dict[str, Any], error: str) -> None:
    """A name, content, type or content id that is not usable is refused and named (B09, B17)."""
    arguments: dict[str, Any] = {"filename": "a.csv", "content": b"", **change}
    with pytest.raises(InvalidMessage) as caught:
        Attachment(**arguments)
    assert str(caught.value).startswith(error)
    assert str(caught.value).isprintable()


def test_one_attachment_and_all_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size limit holds for one attachment and for the sum of all, with the field named."""
    monkeypatch.setattr("outbox.attachments.ATTACHMENTS_OCTETS", 100)
    monkeypatch.setattr(limits, "ATTACHMENTS_OCTETS", 100)
    with pytest.raises(InvalidMessage, match="content: has 101 bytes; at most 100"):
        Attachment("a", b"x" * 101)
    half = Attachment("a", b"x" * 50)
    assert Email("ana@example.org", text="x", attachments=[half, half]).sha256s() == (half.sha256,)
    with pytest.raises(InvalidMessage, match="attachments: have 150 bytes together; at most 100"):
        Email("ana@example.org", text="x", attachments=[half] * 3)


def test_the_number_of_attachments_is_bounded() -> None:
    """More than 100 attachments are refused."""
    with pytest.raises(InvalidMessage, match="attachments: has 101 entries; at most 100"):
        Email("ana@example.org", text="x", attachments=[Attachment("a", b"")] * 101)


def test_a_content_id_names_one_attachment() -> None:
    """Two attachments cannot share a content id."""
    logo = Attachment("a.png", b"a", "image/png", "logo")
    with pytest.raises(InvalidMessage, match=r"attachments\[1\].content_id: is used twice"):
        Email("ana@example.org", text="x", attachments=[logo, logo])


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (Attachment("a", b""), "attachments: is of type Attachment, not a list"),
        ("a.csv", "attachments: is text, not a list of attachments"),
        (["a.csv"], "attachments[0]: is text, not an Attachment"),
        ([{"filename": "a"}], "attachments[0]: is an object, not an Attachment"),
        (
            list(
                StoredMessage.parse(
                    Email("a@b.org", text="", attachments=[Attachment("a", b"")]).to_json()
                ).attachments
            ),
            "attachments[0]: is of type AttachmentReference, not an Attachment",
        ),
    ],
)
def test_only_a_list_of_attachments_is_taken(value: Any, error: str) -> None:
    """Anything but a list of Attachment objects is refused."""
    with pytest.raises(InvalidMessage) as caught:
        Email("ana@example.org", text="x", attachments=value)
    assert str(caught.value).startswith(error)


def test_json_brings_the_content_in_base64() -> None:
    """from_json decodes base64, line breaks included, and checks what is said of it."""
    broken_in_lines = base64.encodebytes(CONTENT * 20).decode()
    email = Email.from_json(
        message(
            {"filename": "a.csv", "content": BASE64, "sha256": DIGEST, "size": len(CONTENT)},
            {"content": broken_in_lines, "content_type": None, "content_id": "x"},
        )
    )
    assert [a.content for a in email.attachments] == [CONTENT, CONTENT * 20]
    assert email.attachments[1].filename == ""


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"filename": "a"}, ".content: is missing; give the bytes in base64"),
        ({"sha256": DIGEST, "size": 1}, ".content: is missing; give the bytes in base64"),
        ({"content": "a;b"}, ".content: is not valid base64"),
        ({"content": "YW;Jj"}, ".content: is not valid base64"),
        ({"content": "YQ"}, ".content: is not valid base64"),
        ({"content": "é"}, ".content: is not valid base64"),
        ({"content": 5}, ".content: is a number, not text in base64"),
        ({"content": BASE64, "sha256": "0" * 64}, ".sha256: does not belong to the content"),
        ({"content": BASE64, "size": 1}, ".size: does not belong to the content; that has 8"),
        ({"content": BASE64, "size": 8.0}, ".size: does not belong to the content"),
        ({"content": BASE64, "path": "/etc/passwd"}, ".path: is unknown"),
        ({"content": BASE64, "filename": "a\r\nb"}, ".filename: contains a carriage return"),
        ({"content": BASE64, "content_type": "x"}, ".content_type: "),
        ("a.csv", ": is text, not an object"),
    ],
)
def test_a_bad_attachment_in_json_is_named_by_its_path(form: Any, error: str) -> None:
    """What is wrong with an attachment in JSON is named with the attachment's place."""
    good = {"filename": "a", "content": BASE64}
    with pytest.raises(InvalidMessage) as caught:
        Email.from_json(message(good, form))
    assert str(caught.value).startswith(f"attachments[1]{error}")


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"filename": "a"}, ".sha256: is missing"),
        ({"sha256": DIGEST}, ".size: is missing"),
        ({"sha256": DIGEST.upper(), "size": 1}, ".sha256: is no SHA-256 digest"),
        ({"sha256": 5, "size": 1}, ".sha256: is no SHA-256 digest"),
        ({"sha256": DIGEST, "size": -1}, ".size: is no number of bytes"),
        ({"sha256": DIGEST, "size": True}, ".size: is no number of bytes"),
        ({"sha256": DIGEST, "size": 1.0}, ".size: is no number of bytes"),
        ({"sha256": DIGEST, "size": limits.ATTACHMENTS_OCTETS + 1}, ".size: is no number of"),
        ({"sha256": DIGEST, "size": 1, "filename": "a\nb"}, ".filename: contains a line break"),
        ({"sha256": DIGEST, "size": 1, "content_type": "x"}, ".content_type: "),
        ({"sha256": DIGEST, "size": 1, "content_id": "<x>"}, ".content_id: "),
    ],
)
def test_a_bad_reference_in_a_row_is_named_by_its_path(form: Any, error: str) -> None:
    """A reference to a blob is checked as strictly as an attachment."""
    with pytest.raises(InvalidMessage) as caught:
        StoredMessage.parse(
            Email.from_json(message()).to_json()[:-1] + f',"attachments":[{json.dumps(form)}]}}'
        )
    assert str(caught.value).startswith(f"attachments[0]{error}")


def test_a_row_may_hold_references_and_content() -> None:
    """A stored message knows an attachment by digest, or carries it if SQL wrote it (C7)."""
    stored = StoredMessage.parse(
        json.dumps(message({"filename": "a", "sha256": "f" * 64, "size": 3}, {"content": BASE64}))
    )
    assert stored.sha256s() == (DIGEST, "f" * 64)
    assert stored.blobs() == {DIGEST: CONTENT}
    assert f'"sha256":"{DIGEST}"' in stored.canonical()
    assert BASE64 not in stored.canonical()
