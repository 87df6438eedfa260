"""For any text: what a reader decodes is what the producer wrote, on lines that mail can carry."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.addresses import ascii_address
from providers.attachment_names import attachment_name
from providers.contract import Address, Attachment
from providers.encoding import WireError, encoded_words
from providers.headers import address_list, message_ids, parameterised, unstructured
from providers.mime import render
from tests import wire
from tests.messages import message
from tests.wire_body import decode
from tests.wire_header import decode_word

_REFUSED = [*map(chr, range(9)), *map(chr, range(10, 32)), "\x85", "\u2028", "\u2029"]
_ODD = [
    "=?",
    "?=",
    "=?utf-8?q?=0A?=",
    "=?utf-8?b?Cg==?=",
    " ",
    "  ",
    "\t",
    '"',
    "\\\\",
    ",",
    "_",
    "é",
    "🎉",
]

characters = st.characters(exclude_categories=["Cs"], exclude_characters=_REFUSED)
texts = st.text(characters) | st.lists(
    st.sampled_from(_ODD) | st.text(characters, max_size=90)
).map("".join)
atoms = st.from_regex(r"[A-Za-z0-9!#$%&'*+/^_`{|}~-]{1,20}", fullmatch=True)
labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
domains = st.lists(labels, min_size=1, max_size=4).map(".".join)
local_parts = st.lists(atoms, min_size=1, max_size=3).map(".".join)
addresses = st.builds("{}@{}".format, local_parts, domains)
identifiers = st.builds("<{}@{}>".format, local_parts, domains)
bodies = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from([".", "From ", " ", "\t", "\r", "\n", "\r\n", "=", "é", "a" * 75, "-- \n"])
).map("".join)

_LENIENT = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?\s]*)\?=")


def value_of(field: bytes, *, longest: int = 998) -> str:
    assert field.endswith(b"\r\n")
    lines = field.split(b"\r\n")
    assert all(len(line) <= longest for line in lines)
    assert all(line.strip(b" \t") for line in lines[:-1])
    assert not re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", field.replace(b"\r\n ", b" ")[:-2])
    ((_, value),) = wire.fields(field + b"\r\n")
    return value


def decoded_everywhere(value: str) -> str:
    """What a reader sees that decodes encoded-words wherever it finds one."""
    joined = re.sub(r"(\?=)[ \t]+(?==\?)", r"\1", value)
    return _LENIENT.sub(lambda match: decode_word(match[0]), joined)


@given(text=texts, for_people=st.booleans())
@settings(deadline=None)
def test_any_subject_comes_back(*, text: str, for_people: bool) -> None:
    """A strict reader and one that decodes too much both see the producer's text."""
    field = unstructured("Subject", text, for_people=for_people)
    value = value_of(field, longest=78 if for_people else 998)
    assert wire.decode_words(value) == text
    assert decoded_everywhere(value) == text


@given(st.lists(st.builds(Address, addresses, texts), min_size=1, max_size=6))
@settings(deadline=None)
def test_any_mailboxes_come_back(mailboxes: list[Address]) -> None:
    """Names and addresses of a list are the ones that were put in, in order."""
    value = value_of(address_list("Reply-To", mailboxes, smtputf8=False))
    assert wire.mailboxes(value) == [(box.name, box.address) for box in mailboxes]


@given(local=st.text(), domain=st.text(max_size=10), smtputf8=st.booleans())
@settings(deadline=None)
def test_any_address_is_written_safely_or_refused(
    *, local: str, domain: str, smtputf8: bool
) -> None:
    """Whatever an address holds, the result is one address, or a typed error."""
    try:
        written = ascii_address(f"{local}@{domain}", smtputf8=smtputf8)
    except WireError:
        return
    assert wire.mailboxes(written) == [("", written)]
    assert smtputf8 or written.isascii()


@given(st.text(st.sampled_from('ab@."\\\\ <>,\r\n(é'), max_size=12))
@settings(deadline=None, max_examples=300)
def test_any_local_part_is_written_safely_or_refused(local: str) -> None:
    """Specials in a local part never leave the address."""
    try:
        written = ascii_address(f"{local}@example.org", smtputf8=True)
    except WireError:
        return
    assert wire.mailboxes(f"x <{written}>") == [("x", written)]


@given(st.lists(identifiers, min_size=1))
@settings(deadline=None)
def test_any_identifiers_come_back(ids: list[str]) -> None:
    """Identifiers are never changed, only folded apart."""
    assert value_of(message_ids("References", " ".join(ids))).split() == ids


@given(texts)
@settings(deadline=None)
def test_any_parameter_comes_back(name: str) -> None:
    """A file name of any characters and length is read back equal."""
    field = parameterised("Content-Disposition", "attachment", [("filename", name)])
    assert wire.parameters(value_of(field, longest=78)) == ("attachment", {"filename": name})


@given(texts)
@settings(deadline=None)
def test_any_attachment_name_has_no_folder(name: str) -> None:
    """A name never holds a slash and is never empty or only dots."""
    base = attachment_name(name, 0, "text/csv")
    assert "/" not in base
    assert base.strip(". \t")


@given(texts, st.integers(36, 75))
@settings(deadline=None)
def test_each_encoded_word_stands_alone(text: str, first: int) -> None:
    """Each encoded-word is short, holds whole characters and decodes by itself."""
    words = encoded_words(text, first=first)
    assert "".join(map(decode_word, words)) == text
    assert all(len(word) <= 75 for word in words)
    assert not words or len(words[0]) <= first


@given(
    subject=texts,
    to=st.lists(st.builds(Address, addresses, texts), min_size=1, max_size=4),
    text=st.none() | bodies,
    html=st.none() | bodies,
    files=st.lists(
        st.builds(
            Attachment,
            texts,
            st.binary(),
            st.sampled_from(["text/csv", "application/pdf", "message/rfc822", "text/plain"]),
            st.sampled_from([None, "logo"]),
        ),
        max_size=3,
    ),
    eight_bit=st.booleans(),
)
@settings(deadline=None)
def test_any_message_is_conforming_and_comes_back(
    *,
    subject: str,
    to: list[Address],
    text: str | None,
    html: str | None,
    files: list[Attachment],
    eight_bit: bool,
) -> None:
    """Any message is free of problems, renders equal twice, and its bodies come back."""
    mail = message(subject=subject, to=tuple(to), text=text, html=html, attachments=tuple(files))
    raw = render(mail, eight_bit=eight_bit, smtputf8=False)
    assert wire.problems(raw) == []
    assert raw == render(mail, eight_bit=eight_bit, smtputf8=False)
    assert eight_bit or raw.isascii()
    parts = wire.body_parts(raw)
    texts_found = [part.text for part in parts if not part.disposition]
    wanted = [part for part in (text, html) if part is not None] or [""]
    assert texts_found == [re.sub(r"\r\n|\r|\n", "\r\n", part) for part in wanted]


@pytest.mark.parametrize("plane", range(17))
def test_every_character_comes_back(plane: int) -> None:
    """Each character of Unicode that is not refused survives in a subject."""
    end = min((plane + 1) << 16, sys.maxunicode + 1)
    every = [chr(point) for point in range(plane << 16, end) if not 0xD800 <= point < 0xE000]
    text = "".join(character for character in every if character not in _REFUSED)
    value = value_of(unstructured("Subject", text))
    assert wire.decode_words(value) == text


@given(bodies)
@settings(deadline=None)
def test_no_part_of_a_body_tempts_a_server(text: str) -> None:
    """No line ends in white space, begins with From, or passes its limit."""
    raw = render(message(text=text), eight_bit=False, smtputf8=False)
    body = raw.partition(b"\r\n\r\n")[2]
    for line in body.split(b"\r\n"):
        assert len(line) <= 78
        assert not line.endswith((b" ", b"\t"))
        assert not line.startswith(b"From ")
    encoding = wire.get(raw, "Content-Transfer-Encoding") or ""
    assert decode(body, encoding).decode() == re.sub(r"\r\n|\r|\n", "\r\n", text)
