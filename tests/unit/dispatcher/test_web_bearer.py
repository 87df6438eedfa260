"""Bearer tokens: taken from headers and compared; and where to listen."""

from __future__ import annotations

import pytest

from dispatcher.listen_address import host_and_port
from dispatcher.web.bearer import Verdict, unusable, verdict

TOKEN = "correct-horse-battery-staple-7"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b"Bearer correct-horse-battery-staple-7"], Verdict.GOOD),
        ([b"bearer correct-horse-battery-staple-7"], Verdict.GOOD),
        ([b"BEARER   correct-horse-battery-staple-7  "], Verdict.GOOD),
        ([b"Bearer correct-horse-battery-staple-"], Verdict.WRONG),
        ([b"Bearer correct-horse-battery-staple-77"], Verdict.WRONG),
        ([b"Bearer Correct-horse-battery-staple-7"], Verdict.WRONG),
        ([b"Bearer \xff\xfe"], Verdict.WRONG),
        ([b"Bearer"], Verdict.MISSING),
        ([b"Bearer "], Verdict.MISSING),
        ([b"Basic correct-horse-battery-staple-7"], Verdict.MISSING),
        ([b"correct-horse-battery-staple-7"], Verdict.MISSING),
        ([b""], Verdict.MISSING),
        ([], Verdict.MISSING),
        ([b"Bearer correct-horse-battery-staple-7"] * 2, Verdict.MISSING),
    ],
)
def test_what_a_header_is_worth(values: list[bytes], expected: Verdict) -> None:
    """Only the whole token behind the scheme counts, and only if it is given once."""
    headers = [(b"host", b"example.org"), *((b"authorization", value) for value in values)]
    assert verdict(headers, TOKEN) is expected


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (TOKEN, None),
        ("AZaz09-._~+/====", None),
        ("fifteen-letters", "fewer than 16"),
        ("with a space in it", "characters"),
        ("with-an-umlaut-ä-in-it", "characters"),
        ("with-a-line-end-in-it\n", "characters"),
        ("================", "characters"),
    ],
)
def test_what_can_be_a_token(token: str, why: str | None) -> None:
    """Too short to be safe, or impossible to send: both are said before anybody asks."""
    found = unusable(token)
    assert (found is None) == (why is None)
    assert why is None or why in (found or "")
    assert token not in (found or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8026", ("127.0.0.1", 8026)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("mail-1.internal:80", ("mail-1.internal", 80)),
    ],
)
def test_an_address_to_listen_on(text: str, expected: tuple[str, int]) -> None:
    """Host and port; an IPv6 address in brackets."""
    assert host_and_port(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "8026", ":8026", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:8026", "[::1]",
     "http://127.0.0.1:8026", "127.0.0.1:80:26", "a b:80", "127.0.0.1:8026\n", "127.0.0.1:٨"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    """The error says what to write."""
    with pytest.raises(ValueError, match=r'write "127\.0\.0\.1:8026"'):
        host_and_port(text)
