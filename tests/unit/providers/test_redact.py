"""What may be kept of text from outside."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.redact import REDACTED, redact

PASSWORD = "s3cr3t-Example!"
KEY = "re_example_KEY_123"


@pytest.mark.parametrize(
    "text",
    [
        f"AUTH failed for {PASSWORD}",
        "AUTH PLAIN czNjcjN0LUV4YW1wbGUh",
        "AUTH PLAIN " + base64.b64encode(f"\0user\0{PASSWORD}".encode()).decode(),
        "AUTH PLAIN " + base64.b64encode(f"\0user1\0{PASSWORD}".encode()).decode(),
        "AUTH PLAIN " + base64.b64encode(f"\0user12\0{PASSWORD}".encode()).decode(),
        f"https://host/?password={quote(PASSWORD, safe='')}",
        f"form {quote_plus('a b&c' + PASSWORD)}",
        json.dumps({"echo": PASSWORD}),
        f"<b>{PASSWORD}</b>",
        f"{PASSWORD}{PASSWORD}",
    ],
)
def test_a_known_secret_leaves_in_every_form(text: str) -> None:
    """A secret goes in plain, base64 at any offset, URL-quoted, JSON and HTML (B96)."""
    kept = redact(text, [PASSWORD, KEY])
    assert PASSWORD not in kept
    assert quote(PASSWORD, safe="") not in kept
    assert not any(
        kept_piece in kept
        for offset in range(3)
        for kept_piece in [base64.b64encode(b"." * offset + PASSWORD.encode()).decode()[4:16]]
    )
    assert REDACTED in kept


@pytest.mark.parametrize(
    "secret", ['a"quote\\and/slash', "<tag>&amp", "päss wörd", "x y+z%", "\ud83dhalf"]
)
def test_secrets_of_odd_characters_leave_too(secret: str) -> None:
    """Escapes of JSON, HTML and URLs do not hide a secret."""
    import html

    for text in (
        secret,
        json.dumps(secret),
        html.escape(secret),
        quote(secret, safe="", errors="replace"),
        quote(secret, safe="", errors="replace").lower(),
    ):
        assert redact(f"got {text} here", [secret]) in {
            f"got {REDACTED} here",
            f'got "{REDACTED}" here',
        }


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer abc.def-123", f"Authorization: {REDACTED}"),
        ("authorization: Basic dXNlcjpwdw==", f"authorization: {REDACTED}"),
        ('{"Authorization": "Bearer abc"}', f'{{"Authorization": "{REDACTED}"}}'),
        ("('Authorization', 'Bearer abcdefgh1')", f"('Authorization', 'Bearer {REDACTED}')"),
        ("X-Postmark-Server-Token: 0123", f"X-Postmark-Server-Token: {REDACTED}"),
        ("api_key=abc&to=x", f"api_key={REDACTED}&to=x"),
        ("Set-Cookie: session=1; Path=/", f"Set-Cookie: {REDACTED}; Path=/"),
        ("see https://user:pa:ss@host/x", f"see https://{REDACTED}@host/x"),
        ("postgres://app:p%40ss@db:5432/x", f"postgres://{REDACTED}@db:5432/x"),
        ("write to ana@example.org", "write to ana@example.org"),
        ("invalid_api_key: the key is wrong", "invalid_api_key: the key is wrong"),
        ("Missing API key in the authorization header.",) * 2,
        ("only basic authentication is offered",) * 2,
    ],
)
def test_what_stands_where_a_secret_stands_is_removed(text: str, kept: str) -> None:
    """Authorization headers, keys and users in URLs go, though nobody named them (B96)."""
    assert redact(text) == kept


def test_text_becomes_one_clean_line() -> None:
    """NUL, control characters, halves of surrogate pairs and line ends cannot reach a table."""
    kept = redact("a\x00b\x1b[31m\ud83d\r\n\tc\u2028d\x85e")
    assert kept == "a\ufffdb\ufffd[31m\ufffd c\ufffdd\ufffde"


def test_a_secret_is_not_joined_by_cleaning() -> None:
    """Control characters are replaced, never dropped, so they cannot put a secret together."""
    assert PASSWORD not in redact("s3cr3t\x00-Example!", [PASSWORD])


def test_bytes_that_are_no_text_are_read() -> None:
    """An answer in any octets is kept as far as it is UTF-8."""
    assert redact(b"\xff\xfe ok") == "\ufffd\ufffd ok"


def test_the_cut_comes_last() -> None:
    """A secret across the limit leaves no half of itself."""
    kept = redact("x" * 490 + PASSWORD, [PASSWORD], limit=500)
    assert len(kept) == 500
    assert kept.startswith("x" * 490 + "[redact")


def test_no_secret_is_no_reason_to_redact() -> None:
    """Empty secrets match nothing."""
    assert redact("plain", ["", ""]) == "plain"


@given(
    before=st.text(max_size=30),
    after=st.text(max_size=30),
    secret=st.text(
        st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=8, max_size=40
    ),
    limit=st.integers(min_value=20, max_value=60),
)
def test_no_secret_survives_anywhere(before: str, after: str, secret: str, limit: int) -> None:
    """Wherever a secret stands and wherever the text is cut, it is gone, and the bound holds."""
    kept = redact(before + secret + after, [secret], limit=limit)
    assert secret not in kept
    assert len(kept) <= limit
    encoded = base64.b64encode((before + secret + after).encode()).decode()
    start = len(before.encode())
    inside = encoded[(start * 8 + 5) // 6 : (start + len(secret)) * 8 // 6]
    assert inside not in redact(encoded, [secret], limit=10_000)
