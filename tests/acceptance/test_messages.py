"""Messages from ``postroom enqueue`` to the octets that an SMTP server got."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from outbox.database import open_engine
from outbox.errors import InvalidMessage
from outbox.message import Email
from outbox.producer import enqueue
from tests import wire
from tests.acceptance.accounts import smtp
from tests.acceptance.fleet import Fleet
from tests.servers.smtp import SmtpServer
from tests.servers.smtp_connection import Taken

LONG_NAME = "Zoë of the Example Department, Northern Branch Office"
RUN = "run-2026-03-29-invoice-reminder-customer-000000000000000123456789-attempt-group-"
EIGHT_BIT = pytest.mark.parametrize("extensions", [(), ("8BITMIME",)], ids=["plain", "8bitmime"])


class Post:
    """The way of a message: standard input, the outbox, a dispatcher, a server."""

    def __init__(self, fleet: Fleet, sink: SmtpServer) -> None:
        self.fleet = fleet
        self.sink = sink

    def __call__(self, *messages: Mapping[str, Any]) -> list[Taken]:
        """Enqueue, drain, and return what the server took; all of it is well-formed."""
        for number, message in enumerate(messages):
            ended = self.enqueue(f"k{number}", message)
            assert (ended.code, ended.err) == (0, "")
        self.fleet.start("--drain").wait()
        for taken in self.sink.taken:
            utf8 = "SMTPUTF8" in taken.options
            assert wire.problems(taken.content, smtputf8=utf8) == []
        return self.sink.taken

    def enqueue(self, key: str, message: Mapping[str, Any]) -> Any:
        written = {"to": "ana@example.org", "subject": "Report", "text": "Hello\n", **message}
        return self.fleet.postroom("enqueue", "--key", key, stdin=json.dumps(written))


Opener = Callable[..., Post]


@pytest.fixture
def post(tmp_path: Path, sqlite_url: str) -> Iterator[Opener]:
    """Open a post to a server with these extensions, one message after the other."""
    opened: list[Any] = []

    def open_post(*extensions: str) -> Post:
        sink = SmtpServer(extensions=extensions)
        fleet = Fleet(tmp_path, sqlite_url, smtp(sink), concurrency=1)
        opened.extend((sink.__enter__(), fleet.__enter__()))
        return Post(fleet, sink)

    yield open_post
    for each in reversed(opened):
        each.__exit__(None, None, None)


def plain(text: str) -> str:
    """Decoded text with the line ends it was given with."""
    return text.replace("\r\n", "\n")


@EIGHT_BIT
def test_very_long_lines_arrive_whole_in_short_ones(
    post: Opener, extensions: tuple[str, ...]
) -> None:
    """B01: 3,000 characters without a break, in text and HTML, decode to what was given."""
    text, html = "A" * 3000 + "\nend\n", "<p>" + "é" * 3000 + "</p>"
    [taken] = post(*extensions)({"text": text, "html": html})
    assert max(map(len, taken.wire.split(b"\r\n"))) <= 998
    first, second = wire.body_parts(taken.content)
    assert (plain(first.text), plain(second.text)) == (text, html)


def test_lines_of_dots_arrive_and_the_connection_goes_on(post: Opener) -> None:
    """B02: no dot ends the message early or vanishes; a second message follows on the connection."""
    dots = "start\n.\n..\n.hidden\nend\n"
    first, second = post()({"text": dots}, {"text": dots, "to": "ben@example.org"})
    assert first.connection == second.connection
    assert first.wire.endswith(b"\r\nstart\r\n..\r\n...\r\n..hidden\r\nend\r\n.\r\n")
    for taken in (first, second):
        assert [plain(part.text) for part in wire.body_parts(taken.content)] == [dots]


def test_a_comma_in_a_name_makes_no_second_mailbox(post: Opener) -> None:
    """B04: one mailbox in the header, one RCPT, whether the name came in parts, as text or encoded."""
    word = "=?utf-8?q?Zo=C3=AB_of_the_Example_Department=2C_Northern_Branch_Office?="
    given: list[object] = [
        {"name": LONG_NAME, "address": "zoe@example.org"},
        f'"{LONG_NAME}" <zoe@example.org>',
        f"{word} <zoe@example.org>",
    ]
    sent = post()
    for taken in sent(*({"to": to} for to in given)):
        found = wire.mailboxes(wire.get(taken.content, "To") or "")
        assert found == [(LONG_NAME, "zoe@example.org")]
    assert sent.sink.said("RCPT") == ["TO:<zoe@example.org>"] * 3


def test_the_comma_at_a_fold_stays_a_comma(post: Opener) -> None:
    """B05: a long address before a name that is not ASCII: two mailboxes."""
    long = "quarterly-report-readers-of-the-northern-branch-office-0000000@example.org"
    [taken] = post()({"to": [long, "Åsa <asa@example.net>"]})
    assert wire.mailboxes(wire.get(taken.content, "To") or "") == [
        ("", long),
        ("Åsa", "asa@example.net"),
    ]
    assert taken.recipients == (long, "asa@example.net")


def test_long_identifiers_are_never_encoded(post: Opener) -> None:
    """B07: References and In-Reply-To keep their identifiers byte for byte."""
    one, two = f"<{RUN}7f3a9c@mail.example.com>", f"<{RUN}7f3a9d@mail.example.com>"
    [taken] = post()({"headers": {"References": f"{one} {two}", "In-Reply-To": two}})
    assert (wire.get(taken.content, "References") or "").split() == [one, two]
    assert wire.get(taken.content, "In-Reply-To") == two
    for name in ("Message-ID", "References", "In-Reply-To"):
        assert "=?" not in (wire.get(taken.content, name) or "")


SMUGGLED = [
    "Hi\r\nBcc: x@example.net",
    "Hi\nBcc: x@example.net",
    "Hi\rBcc: x@example.net",
    "Hi =?utf-8?q?a=0ABcc=3A_x=40example=2Enet?=",
    "Hi\u2028Bcc: x",
    "Hi\x85Bcc: x",
    "Hi\x0cBcc: x",
    "Hi\x00there",
]
PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "subject": lambda text: {"subject": text},
    "to": lambda text: {"to": {"name": text, "address": "ana@example.org"}},
    "headers": lambda text: {"headers": {"X-Note": text}},
    "header names": lambda text: {"headers": {text: "x"}},
    "attachments": lambda text: {"attachments": [{"filename": text, "content": ""}]},
}


def test_no_line_break_is_smuggled_into_a_header(post: Opener) -> None:
    """B09: refused with the field named, or one header line; never a recipient more."""
    sent = post()
    taken, fields = 0, set()
    engine = open_engine(sent.fleet.url)
    for place, made in PLACES.items():
        for number, text in enumerate(SMUGGLED):
            message = {"to": "ana@example.org", "subject": "Report", "text": "x", **made(text)}
            try:
                email = Email.from_json(json.dumps(message))
            except InvalidMessage as error:
                fields.add((place.split()[0], error.field))
                continue
            with engine.begin() as connection:
                enqueue(connection, email, key=f"{place}:{number}")
            taken += 1
    engine.dispose()
    assert fields
    assert [field for place, field in fields if not field.startswith(place)] == []
    # The command line says the same, and leaves no row.
    refused = sent.enqueue("k", {"to": "ana@example.org>\r\nRCPT TO:<x@example.net"})
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("postroom: to")
    assert sent.fleet.states == {"pending": taken}
    for each in sent():
        names = [name.lower() for name, _ in wire.fields(each.content)]
        assert not {"bcc", "x-evil"} & set(names)
        assert each.recipients == ("ana@example.org",)
    assert len(sent.sink.taken) == taken > 0


def test_a_mailbox_name_that_is_not_ascii_needs_the_extension(post: Opener) -> None:
    """B10: without SMTPUTF8 the delivery fails with that reason, at once and without DATA."""
    sent = post()
    assert sent({"to": "jörg@example.com"}) == []
    assert sent.sink.count("DATA") == 0
    state, reason, attempts, error = sent.fleet.one(
        "SELECT state, reason, last_attempt, last_error FROM outbox_deliveries"
    )
    assert (state, reason, attempts) == ("failed", "rejected", 1)
    assert "SMTPUTF8" in str(error)


def test_a_mailbox_name_that_is_not_ascii_goes_out_in_utf_8(post: Opener) -> None:
    """B10: with SMTPUTF8 envelope and header hold the address as it is."""
    sent = post("8BITMIME", "SMTPUTF8")
    [taken] = sent({"to": "jörg@example.com"})
    assert "SMTPUTF8" in taken.options
    assert taken.recipients == ("jörg@example.com",)
    assert wire.mailboxes(wire.get(taken.content, "To") or "") == [("", "jörg@example.com")]
    assert sent.fleet.states == {"accepted": 1}


def test_blind_recipients_are_in_the_envelope_only(post: Opener) -> None:
    """B12: four RCPTs; no header, no octet and no operator's screen names a blind one."""
    sent = post()
    [taken] = sent(
        {
            "to": "ana@example.org",
            "cc": "ben@example.org",
            "bcc": ["aud@example.net", "aud2@example.net"],
        }
    )
    assert taken.recipients == (
        "ana@example.org",
        "ben@example.org",
        "aud@example.net",
        "aud2@example.net",
    )
    assert b"example.net" not in taken.content
    assert not any(name.lower().endswith("bcc") for name, _ in wire.fields(taken.content))
    assert "example.net" not in sent.fleet.postroom("deliveries", "show", "k0").said
    assert "aud2@example.net" in sent.fleet.postroom("deliveries", "show", "k0", "--show-bcc").out


def test_attachment_names_arrive(post: Opener) -> None:
    """B14: exact names of any characters; only the base name of a path; a name where none was."""
    given = {
        "Prüfbericht Q1 – 10%.pdf": "Prüfbericht Q1 – 10%.pdf",
        'a"b\\c; d=e.pdf': 'a"b\\c; d=e.pdf',
        "재" * 70 + ".pdf": "재" * 70 + ".pdf",
        "../../etc/passwd": "passwd",
        "": "attachment-5.pdf",
    }
    content = base64.b64encode(b"%PDF").decode()
    files = [
        {"filename": name, "content": content, "content_type": "application/pdf"} for name in given
    ]
    sent = post()
    [taken] = sent({"attachments": files})
    parts = [part for part in wire.body_parts(taken.content) if part.disposition == "attachment"]
    assert [part.filename for part in parts] == list(given.values())
    assert {part.content for part in parts} == {b"%PDF"}
    assert parts[0].headers["content-disposition"] == (
        "attachment; filename*=utf-8''Pr%C3%BCfbericht%20Q1%20%E2%80%93%2010%25.pdf"
    )
    evil = {"filename": "x.pdf\r\nX-Evil: 1", "content": content}
    refused = sent.enqueue("evil", {"attachments": [evil]})
    assert refused.code == 2
    assert "attachments[0].filename" in refused.err


@EIGHT_BIT
def test_text_that_is_not_ascii_suits_the_server(post: Opener, extensions: tuple[str, ...]) -> None:
    """B16: to a server without 8BITMIME no octet is above 127; with it, BODY= says so."""
    [taken] = post(*extensions)({"text": "Grüße aus Köln\n"})
    assert [plain(part.text) for part in wire.body_parts(taken.content)] == ["Grüße aus Köln\n"]
    assert ("BODY=8BITMIME" in taken.options) == (max(taken.wire) > 127)
    if not extensions:
        assert max(taken.wire) < 128


def test_half_a_character_is_refused_and_the_next_message_goes(
    database_url: str, tmp_path: Path
) -> None:
    """B17: on both databases enqueuing says which field, and no row fails again and again."""
    with SmtpServer() as sink, Fleet(tmp_path, database_url, smtp(sink)) as fleet:
        sent = Post(fleet, sink)
        for field, message in {
            "subject": {"subject": "Invoice \ud83d ready"},
            "text": {"text": "x \ud83d y"},
        }.items():
            refused = sent.enqueue("half", message)
            assert (refused.code, refused.out) == (2, "")
            assert refused.err.startswith(f"postroom: {field}: ")
        [taken] = sent({"subject": "Invoice 🎉 ready"})
        assert wire.decode_words(wire.get(taken.content, "Subject") or "") == "Invoice 🎉 ready"
        assert fleet.states == {"accepted": 1}
