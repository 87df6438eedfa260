"""Delivery keys and the names derived from them."""

from __future__ import annotations

import hashlib
import uuid
from enum import StrEnum
from typing import Any

import pytest

from outbox.errors import InvalidKey, InvalidMessage
from outbox.keys import check_key, idempotency_key, key, key_hash, message_id, public_id

NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


class Role(StrEnum):
    OWNER = "owner"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("invoice", 7, "owner"), "invoice:7:owner"),
        (("invoice", "7"), "invoice:7"),
        (("invoice", -7, Role.OWNER), "invoice:-7:owner"),
        (("a:b", "c"), "a%3Ab:c"),
        (("a", "b:c"), "a:b%3Ac"),
        (("a~2",), "a%7E2"),
        (("100%",), "100%25"),
        (("a\nb\x00\x7f",), "a%0Ab%00%7F"),
        (("a\x85b\u2028c",), "a%C2%85b%E2%80%A8c"),
        ((" a b ",), "%20a b%20"),
        (("\u3000a",), "%E3%80%80a"),
        (("Zoë 👩‍👩‍👧",), "Zoë 👩‍👩‍👧"),
    ],
)
def test_parts_are_joined_and_escaped(parts: tuple[str | int, ...], expected: str) -> None:
    """Parts are joined by ``:``; what would be ambiguous or unprintable is escaped (B37)."""
    assert key(*parts) == expected
    assert check_key(key(*parts)) == expected


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((), "a key needs at least one part"),
        (("a", ""), "part 2 of the key is empty"),
        (("a", True), "part 2 of the key is true or false"),
        (("a", None), "part 2 of the key is null"),
        ((1.5,), "part 1 of the key is a number; use text or a whole number"),
        ((b"a",), "part 1 of the key is bytes"),
        (("a\ud83d",), "half of a surrogate pair"),
        ((10**300,), "more than 255 digits"),
        (("a" * 200, "b" * 55), "has 256 characters; at most 255"),
        ((":" * 86,), "has 258 characters; at most 255"),
        ((" " * 1_000_000 + "x",), "more than 255 characters"),
    ],
)
def test_parts_that_make_no_key_are_refused(parts: tuple[Any, ...], problem: str) -> None:
    """A part that is empty, of another type, or too long is refused in one line."""
    with pytest.raises(InvalidKey) as caught:
        key(*parts)
    assert problem in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["a", "a" * 255, "invoice:7:owner", "50% off", "a b", "ключ"])
def test_a_whole_key_is_taken_as_it_is(text: str) -> None:
    """A key given as text of 1 to 255 printable characters is unchanged."""
    assert check_key(text) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the key is empty"),
        ("a" * 256, "has 256 characters; at most 255"),
        ("a\nb", r'"a\nb" contains the character U+000A'),
        ("a\x00b", "U+0000"),
        ("a\tb", "U+0009"),
        ("a\x7fb", "U+007F"),
        ("a\x9bb", "U+009B"),
        ("a\u2029b", "U+2029"),
        ("a\ud83db", "U+D83D"),
        (" a", "starts or ends with white space"),
        ("a\u00a0", "starts or ends with white space"),
        ("a~2", 'contains "~"'),
        (7, "the key is a number, not text"),
    ],
)
def test_a_whole_key_that_breaks_the_grammar_is_refused(text: Any, problem: str) -> None:
    """A key with a control character, white space at an end, or ``~`` is refused (C5)."""
    with pytest.raises(InvalidKey) as caught:
        check_key(text)
    assert problem in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_checked_key_is_plain_text() -> None:
    """A member of a text enumeration is stored as the text it stands for."""
    assert type(check_key(Role.OWNER)) is str


def test_the_public_id_is_the_uuid5_of_the_key() -> None:
    """The outside sees UUIDv5 of namespace and key, another one in each installation."""
    assert public_id(NAMESPACE, "python.org") == "886313e1-3b8a-5372-9b90-0c9aee199e5d"
    assert public_id(uuid.UUID(int=1), "python.org") != public_id(NAMESPACE, "python.org")


def test_the_key_hash_is_sha256_of_the_key() -> None:
    """A tombstone knows a key by its SHA-256 in UTF-8."""
    assert key_hash("ключ") == hashlib.sha256("ключ".encode()).hexdigest()


def test_the_idempotency_key_has_a_suffix_after_the_first() -> None:
    """The first group of attempts uses the public id, later ones a numbered suffix."""
    assert [idempotency_key("id", n) for n in (0, 1, 12)] == ["id", "id-1", "id-12"]
    with pytest.raises(ValueError, match="starts at 0"):
        idempotency_key("id", -1)


def test_the_message_id_is_pure_ascii() -> None:
    """Message-ID is made of the public id and the author's domain in ASCII (B20)."""
    assert message_id("id", "Example.COM") == "<id@example.com>"
    assert message_id("id", "Bücher.example") == "<id@xn--bcher-kva.example>"
    assert message_id("id", "[192.0.2.1]") == "<id@[192.0.2.1]>"
    with pytest.raises(InvalidMessage, match="from: the domain"):
        message_id("id", "exa mple>\r\nBcc: x")
