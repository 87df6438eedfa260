"""Addresses as SMTP commands and header fields take them."""

from __future__ import annotations

import pytest

from providers.addresses import ascii_address, ascii_domain, needs_smtputf8
from providers.contract import Address
from providers.headers import InvalidField, NeedsSmtpUtf8, address_list
from tests import wire


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("ana@example.org", "ana@example.org"),
        ("Ana.O'Neil+x@Example.ORG", "Ana.O'Neil+x@Example.ORG"),
        ("ana@bücher.example", "ana@xn--bcher-kva.example"),
        ("ana@例え。テスト", "ana@xn--r8jz45g.xn--zckzah"),
        ("ana@faß.example", "ana@xn--fa-hia.example"),
        ("ana@my_host.example", "ana@my_host.example"),
        ("ana@[192.0.2.1]", "ana@[192.0.2.1]"),
        ("ana@[IPv6:2001:db8::1]", "ana@[IPv6:2001:db8::1]"),
        ("a..b@example.org", '"a..b"@example.org'),
        ("a.@example.org", '"a."@example.org'),
        ('"a b"@example.org', '"a b"@example.org'),
        ('"a@b"@example.org', '"a@b"@example.org'),
        (r'"a\"b\\c\d"@example.org', r'"a\"b\\cd"@example.org'),
        ('"john"@example.org', '"john"@example.org'),
        ('"a>b"@example.org', '"a>b"@example.org'),
    ],
)
def test_addresses_in_ascii(address: str, written: str) -> None:
    """Domains become A-labels, quoted names stay quoted, loose dots are quoted."""
    assert ascii_address(address, smtputf8=False) == written
    field = address_list("To", [Address(address, "Ana")], smtputf8=False)
    assert wire.mailboxes(field.removeprefix(b"To:")[:-2].decode()) == [("Ana", written)]


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ana",
        "@example.org",
        "ana@",
        "a b@example.org",
        "a,b@example.org",
        "<ana@example.org>",
        "ana@example.org, ben@example.org",
        "ana@ben@example.org",
        '"a"b"@example.org',
        '""@example.org',
        "=?utf-8?q?j=C3=B6rg?=@example.com",
        "ana@example..org",
        "ana@.example.org",
        "ana@example.org.",
        "ana@-example.org",
        "ana@exa mple.org",
        "ana@☃.example",
        "ana@" + "d" * 64 + ".example",
        "ana@[]",
        "ana@example.org>\r\nRCPT TO:<x@example.net",
        "ana@example.org\u2028",
        "ana\ud83d@example.org",
        "a" * 250 + "@example.org",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """B09: anything that is no single address is refused, and the field is named."""
    for smtputf8 in (False, True):
        with pytest.raises(InvalidField, match=r"^to\[0\]\.address: "):
            ascii_address(address, smtputf8=smtputf8, field="to[0].address")


def test_a_mailbox_name_in_utf8_needs_the_extension() -> None:
    """B10: a name that is not ASCII is raw with SMTPUTF8 and refused without, never encoded."""
    with pytest.raises(NeedsSmtpUtf8, match=r"^jörg@example\.com: .*SMTPUTF8") as caught:
        ascii_address("jörg@example.com", smtputf8=False)
    assert caught.value.address == "jörg@example.com"
    assert ascii_address("jörg@example.com", smtputf8=True) == "jörg@example.com"
    assert ascii_address("jörg@bücher.example", smtputf8=True) == "jörg@xn--bcher-kva.example"
    field = address_list("To", [Address("jörg@example.com", "Jörg")], smtputf8=True)
    assert field == "To: =?utf-8?b?SsO2cmc=?= <jörg@example.com>\r\n".encode()


def test_only_the_mailbox_name_needs_the_extension() -> None:
    """A domain that is not ASCII needs no SMTPUTF8."""
    assert needs_smtputf8("jörg@example.com")
    assert not needs_smtputf8("joerg@bücher.example")


def test_domains() -> None:
    """An ASCII domain stays as written; another is mapped and then encoded."""
    assert ascii_domain("Mail.Example.com") == "Mail.Example.com"
    assert ascii_domain("ＥＸＡＭＰＬＥ.com") == "example.com"
    with pytest.raises(InvalidField, match="domain: "):
        ascii_domain("bücher example")
