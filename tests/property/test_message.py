"""Messages: whatever is accepted can be stored, read back and compared; nothing else escapes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from outbox.addresses import Address, address_hash, compare_key, mailbox
from outbox.encoded_words import decode_words
from outbox.errors import InvalidMessage
from outbox.message import (
    Attachment,
    Email,
    StoredMessage,
    Unsubscribe,
    differing_fields,
    fingerprint,
)
from outbox.message_schema import MESSAGE_SCHEMA, message_schema

VALIDATOR = Draft202012Validator(message_schema())

LINES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=20)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NAMES = st.one_of(LINES, st.text('a ."\\<>@,;:()=?_', max_size=12)).map(str.strip)
ADDRESSES = st.sampled_from(
    ["ana@example.org", "Ana@EXAMPLE.org", "jörg@bücher.example", '"a..b"@[192.0.2.1]', "x@y"]
)
MAILBOXES = st.builds(Address, ADDRESSES, NAMES)
LISTS = st.lists(MAILBOXES, max_size=3)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["X-A", "x-a", "X-B", "Precedence"]), LINES), max_size=4
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    TEXTS,
    st.floats(allow_nan=False, allow_infinity=False),
)
OPTIONS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
ATTACHMENTS = st.lists(
    st.builds(
        Attachment,
        LINES,
        st.binary(max_size=20) | TEXTS,
        st.sampled_from(["text/csv", "image/png", "text/plain; charset=utf-8"]),
    ),
    max_size=3,
)
UNSUBSCRIBE = st.builds(
    Unsubscribe,
    st.just(["https://example.com/u", "mailto:u@example.com"]),
    one_click=st.booleans(),
)
EMAILS = st.builds(
    Email,
    st.lists(MAILBOXES, min_size=1, max_size=3),
    LINES,
    text=TEXTS,
    html=st.none() | TEXTS,
    from_=st.none() | MAILBOXES,
    cc=LISTS,
    bcc=LISTS,
    reply_to=LISTS,
    headers=HEADERS,
    attachments=ATTACHMENTS,
    tags=st.lists(LINES.filter(bool), max_size=3),
    metadata=st.dictionaries(LINES.filter(bool), TEXTS, max_size=3),
    provider_options=st.dictionaries(
        st.sampled_from(["resend", "smtp"]), st.dictionaries(TEXTS, OPTIONS, max_size=3)
    ),
    list_unsubscribe=st.none() | UNSUBSCRIBE,
    auto_submitted=st.sampled_from([None, "auto-generated", "auto-replied"]),
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
NEARLY = st.fixed_dictionaries(
    {"to": st.one_of(ADDRESSES, JSON), "text": st.one_of(TEXTS, JSON)},
    optional={
        name: st.one_of(JSON, st.lists(st.fixed_dictionaries({"content": JSON, "size": JSON})))
        for name in MESSAGE_SCHEMA["properties"]
        if name not in ("to", "text")
    },
)


@given(EMAILS)
def test_a_stored_message_is_valid_and_reads_back_unchanged(email: Email) -> None:
    """What to_json gives follows the schema, and reading it back changes nothing."""
    text = email.to_json()
    VALIDATOR.validate(json.loads(text))
    stored = StoredMessage.parse(text)
    assert stored.canonical() == text
    assert stored.recipients() == email.recipients()
    assert stored.sha256s() == email.sha256s() == tuple(sorted(email.blobs()))
    assert fingerprint(text) == fingerprint(email)


@given(EMAILS, st.randoms(use_true_random=False))
def test_another_spelling_of_the_json_is_the_same_message(email: Email, random: Any) -> None:
    """Order of keys, white space and escapes of the JSON do not count (B7, N16)."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            random.shuffle(items)
            return {name: shuffled(part) for name, part in items}
        return [shuffled(part) for part in value] if isinstance(value, list) else value

    other = json.dumps(shuffled(json.loads(email.to_json())), indent=1)
    assert fingerprint(other) == fingerprint(email)
    assert differing_fields(other, email.to_json()) == ()


@given(EMAILS, EMAILS)
def test_messages_differ_exactly_where_their_fingerprints_do(first: Email, second: Email) -> None:
    """Two messages have one fingerprint if and only if no field differs."""
    same = fingerprint(first) == fingerprint(second)
    assert same == (first == second)
    assert same == (differing_fields(first.to_json(), second.to_json()) == ())


@given(st.one_of(st.text(), JSON.map(json.dumps), NEARLY.map(json.dumps), st.binary()))
def test_anything_else_raises_invalid_message_and_nothing_else(text: Any) -> None:
    """A row or an input that is no message raises InvalidMessage in one line, never another error."""
    for read in (StoredMessage.parse, Email.from_json):
        try:
            found = read(text)
        except InvalidMessage as error:
            line = str(error)
        else:
            line = found.canonical()
            assert VALIDATOR.is_valid(json.loads(line))
            line = ""
        assert "\n" not in line
        assert "\r" not in line


@given(NEARLY)
def test_what_is_read_is_valid_by_the_schema(document: dict[str, Any]) -> None:
    """Whatever the code accepts as JSON, the published schema accepts too."""
    try:
        StoredMessage.parse(json.dumps(document))
    except InvalidMessage:
        return
    VALIDATOR.validate(document)


@given(ADDRESSES, NAMES)
def test_the_text_form_of_an_address_reads_back(address: str, name: str) -> None:
    """An address read from its own text form has the same two parts."""
    made = Address(address, name)
    again = Address.parse(str(made))
    assert (again.address, again.name) == (made.address, made.name)
    form = {"address": made.address, "name": made.name}
    assert mailbox("to", form) == made


@given(st.text())
def test_any_text_is_one_mailbox_or_refused(text: str) -> None:
    """A text is taken as a mailbox that holds no control character, or InvalidMessage."""
    try:
        made = mailbox("to", text)
    except InvalidMessage:
        return
    assert made.address.count("@") >= 1
    assert not any(c in "\r\n\0<> " for c in made.address)
    assert Address.parse(str(made)) == made


@given(
    st.lists(
        st.sampled_from(
            ["=?utf-8?q?", "=?iso-8859-1?b?", "=3D", "=0A", "_", "YQ==", "?=", " ", "a", "=?", "ë"]
        ),
        max_size=9,
    ).map("".join)
)
def test_decoding_a_name_twice_is_decoding_it_once(name: str) -> None:
    """A decoded name never changes again, so that a stored message is stable."""
    once = decode_words(name)
    assert decode_words(once) == once
    assert once == name or not any(ord(c) < 32 for c in once)


@given(st.text(), st.text())
def test_the_hash_of_an_address_never_raises(local: str, domain: str) -> None:
    """Any text has a compare key and a hash, and equal keys have equal hashes."""
    text = f"{local}@{domain}"
    assert len(address_hash(text)) == 64
    assert address_hash(compare_key(text)) == address_hash(text)
