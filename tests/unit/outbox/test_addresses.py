"""Mailboxes: what is taken, what is refused and in which words, and what is equal."""

from __future__ import annotations

import copy
import hashlib
import pickle
from typing import Any

import pytest

from outbox.addresses import Address, address_hash, compare_key, mailbox, mailboxes
from outbox.domains import InvalidDomain, ascii_domain
from outbox.encoded_words import decode_words
from outbox.errors import InvalidMessage

LONG_NAME = "Zoë of the Example Department, Northern Branch Office"
LONG_NAME_ENCODED = "=?utf-8?q?Zo=C3=AB_of_the_Example_Department=2C_Northern_Branch_Office?="


@pytest.mark.parametrize(
    ("text", "address", "name"),
    [
        ("ana@example.org", "ana@example.org", ""),
        ("  ana@example.org\t", "ana@example.org", ""),
        ("<ana@example.org>", "ana@example.org", ""),
        ("Ana <ana@example.org>", "ana@example.org", "Ana"),
        ("Ana<ana@example.org>", "ana@example.org", "Ana"),
        ("J. Doe (sales) <j@example.org>", "j@example.org", "J. Doe (sales)"),
        ('"Doe, Ana" <ana@example.org>', "ana@example.org", "Doe, Ana"),
        (r'"a\"b\\c" <ana@example.org>', "ana@example.org", 'a"b\\c'),
        ('"<x@example.net>" <ana@example.org>', "ana@example.org", "<x@example.net>"),
        ("Zoë <zoe@example.org>", "zoe@example.org", "Zoë"),
        (f'"{LONG_NAME}" <zoe@example.org>', "zoe@example.org", LONG_NAME),
        (f"{LONG_NAME_ENCODED} <zoe@example.org>", "zoe@example.org", LONG_NAME),
        ("jörg@example.com", "jörg@example.com", ""),
        ("ana@bücher.example", "ana@bücher.example", ""),
        ("root@localhost", "root@localhost", ""),
        ("ana@[192.0.2.1]", "ana@[192.0.2.1]", ""),
        ("ana@[IPv6:2001:db8::1]", "ana@[IPv6:2001:db8::1]", ""),
        ('"a..b"@example.org', '"a..b"@example.org', ""),
        ('"a@b"@example.org', '"a@b"@example.org', ""),
        ("!#$%&'*+/=?^_`{|}~-@example.org", "!#$%&'*+/=?^_`{|}~-@example.org", ""),
        (f"{'a' * 64}@example.org", f"{'a' * 64}@example.org", ""),
    ],
)
def test_one_mailbox_is_taken_apart(text: str, address: str, name: str) -> None:
    """A text with exactly one mailbox gives its address and its decoded name (B04, B10)."""
    found = Address.parse(text)
    assert (found.address, found.name) == (address, name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ana@", '"ana@" has no domain'),
        ("ana", '"ana" has no domain'),
        ("", '"" is no address'),
        ("   ", '"" is no address'),
        ("@example.org", '"@example.org" has nothing before the @'),
        ("ana@example.org, ben@example.org", "is not one mailbox: pass a list"),
        ("ana@example.org;ben@example.org", "is not one mailbox: pass a list"),
        ("Ana <ana@example.org>, Ben <ben@example.org>", "is not one mailbox: pass a list"),
        ("Doe, Ana <ana@example.org>", "put a name with special characters in double quotes"),
        ("x@example.net <ana@example.org>", "is not one mailbox"),
        ("Ana <ana@example.org> <x@example.net>", "is not one mailbox"),
        ('Ana "A" <ana@example.org>', "is not one mailbox"),
        ("Team: ana@example.org;", "is not one mailbox"),
        ("ana@@example.org", "is not one mailbox"),
        ("ana b@example.org", "contains white space"),
        ('"ana b"@example.org', "contains white space"),
        ("ana\u00a0b@example.org", "contains white space"),
        ("a\u200bna@example.org", r'"a\u200bna@example.org" contains white space'),
        ("a..b@example.org", "must be in double quotes"),
        (".ana@example.org", "must be in double quotes"),
        ("ana(x)@example.org", "must be in double quotes"),
        ('"ana@example.org', "must be in double quotes"),
        ("=?utf-8?q?j=C3=B6rg?=@example.com", "has an encoded word before the @"),
        (f"{'a' * 65}@example.org", "has more than 64 octets before the @"),
        (f"{'ö' * 33}@example.org", "has more than 64 octets before the @"),
        (f"ana@{'example.' * 31}orga", "is longer than 254 octets"),
        (f"a@{'öööööööööö.' * 12}org", "is longer than 254 octets"),
        ("ana@example..org", "has an empty part"),
        ("ana@example.org.", "has an empty part"),
        ("ana@-example.org", "only letters, digits and hyphens"),
        ("ana@example-.org", "only letters, digits and hyphens"),
        ("ana@exa_mple.org", "only letters, digits and hyphens"),
        ("ana@ö-.example", "starts or ends with a hyphen"),
        ("ana@\uff20.example", "only letters, digits and hyphens"),
        ("ana@\u2100.example", "only letters, digits and hyphens"),
        ("ana@ö\u2100.example", "contains U+002F"),
        ("ana@example.org\u200b", "contains U+200B"),
        ("ana@\U0001f600.example", "contains U+1F600"),
        (f"ana@{'a' * 64}.org", "has a part longer than 63 octets"),
        (f"ana@{'ö' * 60}.org", "has a part longer than 63 octets"),
        ("ana@192.0.2.1", "write an IP address in brackets"),
        ("ana@[192.0.2.300]", "is no IP address in brackets"),
        ("ana@[2001:db8::1]", "is no IP address in brackets"),
        ("ana@[IPv6:fe80::1%eth0]", "is no IP address in brackets"),
        ("ana@[192.0.2.1", "is no IP address in brackets"),
    ],
)
def test_what_is_no_mailbox_is_refused_with_its_path(text: str, problem: str) -> None:
    """A text that is not exactly one usable mailbox is refused, with its place named."""
    with pytest.raises(InvalidMessage) as caught:
        mailboxes("to", ["ana@example.org", text])
    assert caught.value.field == "to[1]"
    assert problem in caught.value.problem
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "character", ["\r\n", "\n", "\r", "\x00", "\x0c", "\x7f", "\x85", "\u2028"]
)
@pytest.mark.parametrize(
    "template",
    [
        "ana@example.org>{}RCPT TO:<x@example.net",
        "ana{}@example.org",
        "ana@example.org{}",
        "{}ana@example.org",
        "Ana{} <ana@example.org>",
        '"Ana{}" <ana@example.org>',
    ],
)
def test_control_characters_never_get_into_an_address(template: str, character: str) -> None:
    """A control character or line break anywhere in a mailbox is refused (B09)."""
    with pytest.raises(InvalidMessage, match=r"^to(\.name)?: contains .* at character"):
        mailbox("to", template.format(character))


def test_a_lone_surrogate_is_refused_in_address_and_name() -> None:
    """Half of a surrogate pair has no UTF-8 form and is refused (B17)."""
    for value in ("an\ud83da@example.org", "An\ud83da <ana@example.org>"):
        with pytest.raises(InvalidMessage, match="half of a surrogate pair"):
            mailbox("to", value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"name": "Ana"}, "to.address: is missing"),
        ({"address": "ana@", "name": "Ana"}, 'to.address: "ana@" has no domain'),
        ({"address": 5}, "to.address: is a number, not text"),
        ({"address": "ana@example.org", "name": 5}, "to.name: is a number, not text"),
        ({"address": "ana@example.org", "name": "A\nB"}, "to.name: contains a line break"),
        ({"address": "ana@example.org", "nmae": ""}, 'to.nmae: is unknown; did you mean "name"?'),
        ({"address": "Ana <ana@example.org>"}, "to.address: "),
        (5, "to: is a number, not an address"),
        (None, "to: is null, not an address"),
        ({"ana@example.org"}, "to: is of type set, not an address"),
        (b"ana@example.org", "to: is bytes, not an address"),
        ([["ana@example.org"]], "to[0]: is a list, not an address"),
    ],
)
def test_objects_and_lists_are_checked_with_their_path(value: Any, error: str) -> None:
    """What is wrong in an address object or a list is named by its path."""
    with pytest.raises(InvalidMessage) as caught:
        mailboxes("to", value)
    assert str(caught.value).startswith(error)


def test_an_object_may_leave_the_name_out_or_null() -> None:
    """An address object needs no name, and a null name is none."""
    assert mailbox("to", {"address": "ana@example.org"}) == "ana@example.org"
    assert mailbox("to", {"address": "ana@example.org", "name": None}).name == ""
    assert mailbox("to", {"address": "ana@example.org", "name": "  "}) == "ana@example.org"


def test_the_name_is_bounded() -> None:
    """A display name of more than 256 characters is refused."""
    assert Address("ana@example.org", "n" * 256).name == "n" * 256
    with pytest.raises(InvalidMessage, match="name: has 257 characters; at most 256"):
        Address("ana@example.org", "n" * 257)


def test_an_address_compares_as_the_text_people_write() -> None:
    """A nameless address equals its text, in tuples, sets and dictionaries too."""
    address = Address("ana@example.org")
    assert (address,) == ("ana@example.org",)
    assert address in {"ana@example.org", "ben@example.org"}
    assert {"ana@example.org": 1}[address] == 1
    assert Address("ana@example.org", "Ana") == "Ana <ana@example.org>"
    assert Address("ana@example.org", "Ana") != "ana@example.org"
    assert f"{Address('ana@example.org', 'Doe, Ana')}" == '"Doe, Ana" <ana@example.org>'


def test_an_error_shows_no_more_than_the_beginning_of_a_long_text() -> None:
    """The error line stays short, however long the refused text is."""
    with pytest.raises(InvalidMessage) as caught:
        mailbox("to", "a" * 900)
    assert len(str(caught.value)) < 120


def test_quotes_and_backslashes_in_a_name_are_escaped() -> None:
    """The text form of a name with special characters is one quoted string."""
    assert str(Address("ana@example.org", 'a"b\\c')) == r'"a\"b\\c" <ana@example.org>'


def test_an_address_cannot_be_changed() -> None:
    """Setting or deleting a part of an address raises."""
    address = Address("ana@example.org")
    for name in ("address", "name", "other"):
        with pytest.raises(AttributeError):
            setattr(address, name, "x")
    with pytest.raises(AttributeError):
        del address.name


def test_an_address_survives_copying_and_pickling() -> None:
    """A copied or pickled address has the same parts."""
    for address in (Address("ana@example.org"), Address("ana@example.org", 'D"oe, Ana')):
        for again in (copy.deepcopy(address), pickle.loads(pickle.dumps(address))):  # noqa: S301
            assert (again, again.address, again.name) == (address, address.address, address.name)
    assert repr(Address("a@b.org", "A")) == "Address('a@b.org', 'A')"
    assert repr(Address("a@b.org")) == "Address('a@b.org')"


@pytest.mark.parametrize(
    ("name", "decoded"),
    [
        (LONG_NAME_ENCODED, LONG_NAME),
        ("=?UTF-8?B?Wm/Dqw==?=", "Zoë"),
        ("=?utf-8*en?q?Zo=C3=AB?=", "Zoë"),
        ("=?iso-8859-1?q?Zo=EB?= Smith", "Zoë Smith"),
        ("=?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
        ("=?utf-8?q?a?= and =?utf-8?q?b?=", "a and b"),
        ("=?utf-8?q?Zo=C3?= =?utf-8?q?=AB?=", "Zoë"),
        ("=?iso-8859-1?q?=EB?= =?utf-8?q?=C3=AB?=", "ëë"),
        ("=?utf-8?q?_Ana_?=", "Ana"),
        ("x=?utf-8?q?a?=", "x=?utf-8?q?a?="),
        ("plain", "plain"),
    ],
)
def test_encoded_words_in_a_name_are_decoded(name: str, decoded: str) -> None:
    """A name in the form of RFC 2047 is stored as what it says (B04)."""
    assert Address("zoe@example.org", name).name == decoded


@pytest.mark.parametrize(
    "name",
    [
        "Hi =?utf-8?q?a=0ABcc=3A_x=40example=2Enet?=",
        "=?utf-8?q?a=0D=0Ab?=",
        "=?utf-8?q?a=00b?=",
        "=?utf-8?q?a=09b?=",
        "=?utf-8?q?a=C2=85b?=",
        "=?utf-8?q?a=E2=80=A8b?=",
        "=?utf-8?b?YQpCY2M6IHg=?=",
        "=?utf-8?q?=3D=3Futf-8=3Fq=3Fa=3F=3D?=",
        "=?utf-8?q?=FF?=",
        "=?utf-8?q?=ED=A0=BD?=",
        "=?utf-8?b?!!!!?=",
        "=?utf-8?b?YQ?=",
        "=?unknown?q?a?=",
        "=?rot13?q?a?=",
        "=?unicode_escape?q?=5Cx0a?=",
        "fine =?utf-8?q?a?= =?utf-8?q?a=0Ab?=",
    ],
)
def test_encoded_words_that_hide_something_stay_literal(name: str) -> None:
    """A name that would decode to a control character, to an encoded word or to
    nothing readable stays literal as a whole (B09)."""
    assert Address("zoe@example.org", name).name == name
    assert decode_words(name) == name


def test_the_same_mailbox_in_two_spellings_compares_equal() -> None:
    """The domain counts without case and in ASCII, the local part exactly."""
    assert compare_key("Ana@EXAMPLE.org") == "Ana@example.org"
    assert compare_key(Address("ana@BÜCHER.example", "Ana")) == "ana@xn--bcher-kva.example"
    assert compare_key("ana@bücher.example") == compare_key("ana@xn--bcher-kva.example")
    assert compare_key("Ana@example.org") != compare_key("ana@example.org")
    assert compare_key("ana@[IPv6:2001:DB8::1]") == "ana@[ipv6:2001:db8::1]"
    assert compare_key('"a@b"@EXAMPLE.org') == '"a@b"@example.org'


def test_two_domains_are_never_taken_for_one() -> None:
    """Domains that differ only under IDNA 2003 stay two, so that nobody loses a mail."""
    assert compare_key("ana@straße.example") != compare_key("ana@strasse.example")


@pytest.mark.parametrize(
    ("domain", "ascii_form"),
    [
        ("Example.ORG", "example.org"),
        ("straße.de", "xn--strae-oqa.de"),
        ("ΑΣ.gr", "xn--mxa0b.gr"),
        ("ΑΣ-Α.gr", "xn----ylbb4e.gr"),
        ("ℌ.de", "h.de"),
        ("日本語。jp", "xn--wgv71a119e.jp"),
        ("ﬁ.com", "fi.com"),
        ("क्षी.example", "xn--11b2e1a2c.example"),
        ("بی\u200cبی.com", "xn--ngba50cb2343a.com"),
        ("col\u00b7lecció.cat", "xn--collecci-ioa91d.cat"),
    ],
)
def test_an_international_domain_has_one_ascii_form(domain: str, ascii_form: str) -> None:
    """A domain's ASCII form is the one of IDNA 2008 with the mapping of UTS 46."""
    assert ascii_domain(domain) == ascii_form


def test_a_domain_that_is_too_long_in_ascii_is_refused() -> None:
    """The limit of 253 octets holds for the ASCII form."""
    with pytest.raises(InvalidDomain, match="longer than 253"):
        ascii_domain(".".join(["ö" * 10] * 20))


def test_comparing_and_hashing_never_raise() -> None:
    """Text that is no address (from a provider's event) still has a key and a hash."""
    for text in ("", "no domain", "a@..", "a@\ud83d", "@", "a@[x"):
        assert len(address_hash(text)) == 64
    assert compare_key("Ana@EXAMPLE_.org") == "Ana@example_.org"


def test_the_hash_is_the_sha256_of_the_compare_key() -> None:
    """The hash of an address is SHA-256 over its compare key in UTF-8."""
    expected = hashlib.sha256(b"Ana@xn--bcher-kva.example").hexdigest()
    assert address_hash(Address("Ana@Bücher.example", "Name")) == expected
