"""Header fields on the wire: text, mailboxes, identifiers, dates, parameters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from providers.contract import Address
from providers.headers import (
    InvalidField,
    address_list,
    date,
    message_id,
    message_ids,
    parameterised,
    structured,
    unstructured,
)
from tests import wire

INJECTIONS = [
    "Hi\r\nBcc: x@example.net",
    "Hi\nBcc: x@example.net",
    "Hi\rBcc: x@example.net",
    "Hi\u2028Bcc: x",
    "Hi\u2029Bcc: x",
    "Hi\x85Bcc: x",
    "Hi\x0cBcc: x",
    "Hi\x1bBcc: x",
    "Hi\x00there",
    "Invoice \ud83d ready",
]
HIDDEN = "Hi =?utf-8?q?a=0ABcc=3A_x=40example=2Enet?="


def value_of(field: bytes) -> str:
    """The unfolded value of one field."""
    ((_, value),) = wire.fields(field + b"\r\n")
    return value


def to(*addresses: Address) -> bytes:
    return address_list("To", addresses, smtputf8=False, path="to")


# Unstructured text


def test_ascii_text_stays_as_it_is() -> None:
    """Printable ASCII is neither encoded nor changed, double spaces included."""
    assert unstructured("Subject", "Re: your  order [7]?") == b"Subject: Re: your  order [7]?\r\n"


def test_an_empty_text_is_an_empty_field() -> None:
    """An empty subject leaves no white space behind the colon."""
    assert unstructured("Subject", "") == b"Subject:\r\n"


@pytest.mark.parametrize(
    "text", [" led", "trailed ", "   ", "a\tb", "a\x7fb", " ", "a ", "  b  c "]
)
def test_white_space_and_delete_survive(text: str) -> None:
    """White space that a reader would strip, and DEL, come back as they were."""
    field = unstructured("Subject", text)
    assert wire.decode_words(value_of(field)) == text
    assert b"\x7f" not in field


def test_words_before_and_after_the_odd_ones_stay_readable() -> None:
    """Only the run from the first to the last odd word is encoded."""
    assert unstructured("Subject", "Invoice für the month of März from us") == (
        b"Subject: Invoice =?utf-8?q?f=C3=BCr_the_month_of_M=C3=A4rz?= from us\r\n"
    )


def test_the_shorter_encoding_is_taken() -> None:
    """Text that is mostly not ASCII is written in base64."""
    assert unstructured("Subject", "Счёт") == b"Subject: =?utf-8?b?0KHRh9GR0YI=?=\r\n"


def test_encoded_words_keep_their_limits() -> None:
    """No encoded-word has more than 75 octets, no line with one more than 76, none splits an emoji."""
    for text in ("Grüße " * 60, "日本語のとても長い件名です" * 20, "🎉" * 90, "x" * 500):
        field = unstructured("Subject", text)
        assert max(len(line) for line in field.split(b"\r\n")) <= 76
        assert wire.decode_words(value_of(field)) == text


def test_the_line_of_the_name_is_filled() -> None:
    """The first encoded-word is cut to fit beside the name, so that no first line is empty."""
    field = unstructured("Subject", "Grüße aus Köln " * 20)
    first, *_ = field.split(b"\r\n")
    assert first.startswith(b"Subject: =?utf-8?")
    assert len(first) > 70


def test_a_first_word_is_measured_with_the_name() -> None:
    """A first word that fits in a line but not beside the name is encoded to be folded."""
    field = unstructured("Subject", "w" * 74 + " end")
    assert max(len(line) for line in field.split(b"\r\n")) <= 76
    assert wire.decode_words(value_of(field)) == "w" * 74 + " end"


def test_a_long_name_still_leaves_room() -> None:
    """A field with a very long name puts its encoded-words on the next lines."""
    field = unstructured("X-" + "n" * 60, "Grüße")
    assert max(len(line) for line in field.split(b"\r\n")) <= 76
    assert wire.decode_words(value_of(field)) == "Grüße"


@pytest.mark.parametrize("text", [HIDDEN, "=?", "(=?utf-8?q?a?=)", "=?utf-8?b?SGk=?= =?x?q??="])
def test_text_that_looks_encoded_is_encoded(text: str) -> None:
    """B09: a reader that decodes gets the producer's text, not what is hidden in it."""
    field = unstructured("Subject", text)
    assert wire.decode_words(value_of(field)) == text
    assert value_of(field) != text


def test_long_words_are_folded_for_people_and_kept_for_programs() -> None:
    """A 200-octet word is encoded in a subject and raw in a header that programs read."""
    word = "w" * 200
    assert b"=?utf-8?q?" in unstructured("Subject", word)
    assert unstructured("X-Data", word, for_people=False) == f"X-Data: {word}\r\n".encode()


def test_no_line_passes_998_octets() -> None:
    """A word too long for any line is encoded even where programs read."""
    field = unstructured("X-Data", "a " + "w" * 3000, for_people=False)
    assert max(len(line) for line in field.split(b"\r\n")) <= 998
    assert wire.decode_words(value_of(field)) == "a " + "w" * 3000


@pytest.mark.parametrize("text", INJECTIONS)
def test_control_characters_are_refused(text: str) -> None:
    """B09, B17: line breaks of any kind, controls and half characters are refused by name."""
    with pytest.raises(InvalidField, match=r"^subject: holds U\+") as caught:
        unstructured("Subject", text, path="subject")
    assert caught.value.field == "subject"
    with pytest.raises(InvalidField, match=r"^to\[1\]\.name: holds U\+"):
        to(Address("ana@example.org"), Address("ben@example.org", text))
    with pytest.raises(InvalidField, match=r"^filename: holds U\+"):
        parameterised("Content-Disposition", "attachment", [("filename", text)], path="filename")
    with pytest.raises(InvalidField, match=r"^x: holds U\+"):
        structured("Precedence", text, path="x")
    with pytest.raises(InvalidField, match=r"^x: holds U\+"):
        message_ids("References", text, path="x")


# Mailboxes


def test_a_name_with_a_comma_stays_one_mailbox() -> None:
    """B04: a comma in an encoded name does not split the mailbox."""
    name = "Zoë of the Example Department, Northern Branch Office"
    field = to(Address("zoe@example.org", name))
    assert field == (
        b"To: =?utf-8?q?Zo=C3=AB_of_the_Example_Department=2C_Northern_Branch_Office?=\r\n"
        b" <zoe@example.org>\r\n"
    )
    assert wire.mailboxes(value_of(field)) == [(name, "zoe@example.org")]


def test_the_separator_is_never_encoded() -> None:
    """B05: the comma at a fold stays a comma."""
    long = "quarterly-report-readers-of-the-northern-branch-office-0000000@example.org"
    field = to(Address(long), Address("asa@example.net", "Åsa"))
    assert field == f"To: {long},\r\n =?utf-8?q?=C3=85sa?= <asa@example.net>\r\n".encode()
    assert wire.mailboxes(value_of(field)) == [("", long), ("Åsa", "asa@example.net")]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Ana Example", "Ana Example"),
        ("Example, Ana", '"Example, Ana"'),
        ('Ana "A" \\ B', '"Ana \\"A\\" \\\\ B"'),
        ("ana@example.org", '"ana@example.org"'),
        ("Dr. Ana", '"Dr. Ana"'),
        ("Ana  Example", '"Ana  Example"'),
        ("Ana (sales)", '"Ana (sales)"'),
        ("=?utf-8?q?Zo=C3=AB?=", "=?utf-8?b?PT91dGYtOD9xP1pvPUMzPUFCPz0=?="),
        ("a\ttab", "=?utf-8?q?a=09tab?="),
    ],
)
def test_names_take_the_simplest_form_that_holds_them(name: str, written: str) -> None:
    """A name is written as atoms, a quoted string or encoded-words, and reads back equal."""
    field = to(Address("ana@example.org", name))
    assert field == f"To: {written} <ana@example.org>\r\n".encode()
    assert wire.mailboxes(value_of(field)) == [(name, "ana@example.org")]


@pytest.mark.parametrize("name", ["n" * 90, "a, " * 40 + "b", '"' * 50, "word " * 40 + "end"])
def test_long_names_fold_only_where_it_is_legal(name: str) -> None:
    """A long name fits in short lines and reads back equal."""
    field = to(Address("ana@example.org", name), Address("ben@example.org", name))
    assert max(len(line) for line in field.split(b"\r\n")) <= 78
    assert wire.mailboxes(value_of(field)) == [
        (name, "ana@example.org"),
        (name, "ben@example.org"),
    ]


# Identifiers, dates, structured values


def test_long_identifiers_are_never_encoded() -> None:
    """B07: References keeps both identifiers byte for byte and folds only between them."""
    first, second = (
        "<run-2026-03-29-invoice-reminder-customer-000000000000000123456789"
        f"-attempt-group-7f3a9{end}@mail.example.com>"
        for end in "cd"
    )
    field = message_ids("References", f"{first} {second}")
    assert field == f"References: {first}\r\n {second}\r\n".encode()
    assert message_ids("In-Reply-To", second) == f"In-Reply-To: {second}\r\n".encode()


@pytest.mark.parametrize("value", ["", "a@b", "<a b@c>", "<ab>", "<jörg@example.com>", "<a@b"])
def test_what_is_no_identifier_is_refused(value: str) -> None:
    """A message id needs angle brackets, an @ and printable ASCII."""
    with pytest.raises(InvalidField, match="message id"):
        message_ids("References", value)


def test_a_message_id_gets_brackets_and_an_ascii_domain() -> None:
    """The Message-ID's domain is written as A-labels, its brackets once."""
    assert message_id("5f0c@bücher.example") == "<5f0c@xn--bcher-kva.example>"
    assert message_id("<5f0c@example.com>") == "<5f0c@example.com>"
    with pytest.raises(InvalidField, match="message_id"):
        message_id("5 0c@example.com")


def test_dates_are_utc() -> None:
    """An instant in any zone is written in UTC, to the second."""
    berlin = datetime(2026, 3, 29, 3, 30, 5, 999, tzinfo=timezone(timedelta(hours=2)))
    assert date(berlin) == b"Date: Sun, 29 Mar 2026 01:30:05 +0000\r\n"
    assert date(datetime(2026, 12, 1, tzinfo=UTC)) == b"Date: Tue, 01 Dec 2026 00:00:00 +0000\r\n"


def test_a_date_without_a_zone_is_refused() -> None:
    """A naive datetime names no instant."""
    with pytest.raises(InvalidField, match="date: has no time zone"):
        date(datetime(2026, 3, 29))  # noqa: DTZ001


@pytest.mark.parametrize("value", ["größe", "=?utf-8?q?a?=", "a\x7fb"])
def test_structured_values_cannot_be_encoded(value: str) -> None:
    """A structured field refuses what it could carry only encoded, or what looks encoded."""
    with pytest.raises(InvalidField, match="Precedence"):
        structured("Precedence", value)


def test_a_line_that_mail_cannot_carry_is_refused() -> None:
    """A structured value longer than a line of mail is refused with its length."""
    with pytest.raises(InvalidField, match="1012 octets and mail allows 998"):
        structured("Precedence", "x" * 1000)


# Parameters


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("report.pdf", '; filename="report.pdf"'),
        ("my report; final.pdf", '; filename="my report; final.pdf"'),
        ('a"b\\c; d=e.pdf', "; filename*=utf-8''a%22b%5Cc%3B%20d%3De.pdf"),
        ("10%.pdf", '; filename="10%.pdf"'),
        ("it's*.pdf", '; filename="it\'s*.pdf"'),
        ("é'*%.pdf", "; filename*=utf-8''%C3%A9%27%2A%25.pdf"),
        ("=?utf-8?q?a?=.pdf", "; filename*=utf-8''%3D%3Futf-8%3Fq%3Fa%3F%3D.pdf"),
        (
            "Prüfbericht Q1 – 10%.pdf",
            "; filename*=utf-8''Pr%C3%BCfbericht%20Q1%20%E2%80%93%2010%25.pdf",
        ),
    ],
)
def test_file_names_in_a_header(name: str, written: str) -> None:
    """B14: a file name is quoted or extended, and reads back equal."""
    field = parameterised("Content-Disposition", "attachment", [("filename", name)])
    assert value_of(field) == f"attachment{written}"
    assert wire.parameters(value_of(field)) == ("attachment", {"filename": name})


@pytest.mark.parametrize("name", ["재" * 70 + ".pdf", "f" * 300, "🎉" * 40 + "%'*"])
def test_long_file_names_are_continued(name: str) -> None:
    """B14: a long name becomes numbered sections on short lines, none splitting a character."""
    field = parameterised("Content-Disposition", "attachment", [("filename", name)])
    assert b"filename*0*=utf-8''" in field
    assert max(len(line) for line in field.split(b"\r\n")) <= 76
    assert wire.parameters(value_of(field)) == ("attachment", {"filename": name})
