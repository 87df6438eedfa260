"""Kept requests: what is thawed is what was frozen."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.kept import frozen, thawed
from providers.contract import Attachment
from providers.mime import render
from providers.resend_request import render as render_json
from tests.messages import message

LARGE = bytes(range(256)) * 40


def by_digest(*contents: bytes) -> dict[str, bytes]:
    return {hashlib.sha256(content).hexdigest(): content for content in contents}


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(min_size=512, max_size=700))
def test_every_byte_comes_back(before: bytes, after: bytes, content: bytes) -> None:
    """Freezing and thawing gives the same request, with and without attachments in it."""
    contents = by_digest(content)
    request = before + base64.b64encode(content) + after + base64.b64encode(content)
    assert thawed(frozen(request, contents), contents) == request
    assert thawed(frozen(before + after, contents), contents) == before + after


def test_large_attachments_are_kept_by_reference() -> None:
    """In JSON and in MIME the content is not written a second time."""
    mail = message(attachments=(Attachment("a.bin", LARGE), Attachment("b.bin", LARGE)))
    for request in (render_json(mail), render(mail, eight_bit=False, smtputf8=False)):
        kept = frozen(request, by_digest(LARGE))
        assert len(kept) < 2500 < len(LARGE) < len(request)
        assert thawed(kept, by_digest(LARGE)) == request


def test_a_missing_content_is_an_error_not_another_request() -> None:
    """Without the attachment there is nothing to send, and nothing is made up."""
    kept = frozen(base64.b64encode(LARGE), by_digest(LARGE))
    with pytest.raises(KeyError):
        thawed(kept, {})
    with pytest.raises(ValueError, match="another version"):
        thawed(b"{}", {})
