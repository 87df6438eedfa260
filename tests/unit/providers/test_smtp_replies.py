"""What an SMTP reply proves: code and enhanced status code decide, words never."""

from __future__ import annotations

import pytest

from providers.contract import Accepted, AccountBlocked, InDoubt, Rejected, Unavailable
from providers.smtp_replies import (
    REPLY_LIMIT,
    Reply,
    UnreadableReply,
    door_refusal,
    login_refusal,
    read_reply,
    refusal,
    verdict,
)


@pytest.mark.parametrize("code", [421, 432, 450, 451, 452, 454, 455, 499])
def test_every_4yz_is_certainly_not_taken(code: int) -> None:
    """B79: temporary, with the code kept, though the text claims the opposite."""
    reply = Reply(code, "5.1.1 permanent failure")
    assert refusal(reply, "RCPT TO") == Unavailable(
        f"RCPT TO answered {code} 5.1.1 permanent failure", str(code)
    )
    assert verdict(reply) == refusal(reply, "DATA")


@pytest.mark.parametrize("code", [500, 501, 503, 550, 551, 552, 553, 554, 555, 571])
def test_every_other_5yz_is_final_for_the_message(code: int) -> None:
    """B79: permanent, with the code kept, though the text claims the opposite."""
    reply = Reply(code, "try again later 4.2.1")
    assert isinstance(refusal(reply, "RCPT TO"), Rejected)
    assert isinstance(verdict(reply), Rejected)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(525), "suspended"),
        (Reply(530, "5.7.0 Login first"), "credentials"),
        (Reply(534), "credentials"),
        (Reply(535), "credentials"),
        (Reply(538), "credentials"),
        (Reply(550, "5.7.8 Bad login"), "credentials"),
        (Reply(554, "5.7.9 Too weak"), "credentials"),
        (Reply(550, "5.7.11 Encrypt"), "credentials"),
        (Reply(550, "5.7.13 Disabled"), "suspended"),
    ],
)
def test_replies_about_the_account_blame_no_message(reply: Reply, kind: str) -> None:
    """Codes and enhanced codes of the login block the account wherever they come."""
    found = refusal(reply, "MAIL FROM")
    assert isinstance(found, AccountBlocked)
    assert found.kind == kind


@pytest.mark.parametrize("text", ["the status 5.7.8 says", "5.7.80 x", "4.7.8 x", "5.7.8x"])
def test_only_an_enhanced_code_of_its_own_class_in_its_place_counts(text: str) -> None:
    """A number in the words, or of another class, is no enhanced status code."""
    assert isinstance(refusal(Reply(550, text), "RCPT TO"), Rejected)


def test_at_auth_every_5yz_is_about_the_login() -> None:
    """4yz passes; any other refusal of AUTH blocks the account."""
    assert login_refusal(Reply(454)) == Unavailable("AUTH answered 454", "454")
    for code in (500, 504, 535, 550):
        assert isinstance(login_refusal(Reply(code)), AccountBlocked)


def test_before_any_message_a_5yz_is_about_this_client() -> None:
    """A refusing greeting or EHLO never rejects a message."""
    assert isinstance(door_refusal(Reply(421), "the greeting"), Unavailable)
    found = door_refusal(Reply(554, "No"), "the greeting")
    assert found == AccountBlocked("permission", "the greeting answered 554 No")


def test_the_text_of_the_final_reply_is_the_receipt() -> None:
    """Accepted carries the queue text; a reply of another kind proves nothing after the dot."""
    assert verdict(Reply(250, "2.0.0 Ok: queued as 4Zk1")) == Accepted("2.0.0 Ok: queued as 4Zk1")
    assert verdict(Reply(250)) == Accepted(None)
    assert isinstance(verdict(Reply(354)), InDoubt)
    assert isinstance(refusal(Reply(354), "RCPT TO"), Unavailable)


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"250 Ok\r\n", (Reply(250, "Ok"), b"")),
        (b"250\r\n", (Reply(250), b"")),
        (b"250 Ok\n550 next", (Reply(250, "Ok"), b"550 next")),
        (b"250-2.0.0 one\r\n250 2.0.0 two\r\n", (Reply(250, "2.0.0 one 2.0.0 two"), b"")),
        (b"250-one\r\n250 tw", None),
        (b"250-one\r\n", None),
        (b"", None),
    ],
)
def test_a_reply_is_read_when_it_is_whole(
    received: bytes, expected: tuple[Reply, bytes] | None
) -> None:
    """One or several lines; what is incomplete is waited for."""
    assert read_reply(received) == expected


@pytest.mark.parametrize(
    "received", [b"hello\r\n", b"25 Ok\r\n", b"950 Ok\r\n", b"250_Ok\r\n", b"\r\n", b"2500\r\n"]
)
def test_what_is_no_reply_is_said_to_be_none(received: bytes) -> None:
    """A line that does not follow the grammar ends the reading."""
    with pytest.raises(UnreadableReply):
        read_reply(received)


@pytest.mark.parametrize("received", [b"2" * REPLY_LIMIT + b"22", b"250-x\r\n" * REPLY_LIMIT])
def test_a_reply_without_an_end_is_not_read_for_ever(received: bytes) -> None:
    """Memory is bounded whatever a server sends."""
    with pytest.raises(UnreadableReply):
        read_reply(received)


def test_the_text_is_cleaned_and_short() -> None:
    """NUL, lone bytes and endless lines do not get past the reply."""
    found = read_reply(b"250 a\x00b\xff" + b"x" * 5000 + b"\r\n")
    assert found is not None
    assert "\0" not in found[0].text
    assert len(found[0].text) <= 200
    assert found[0].text.encode()
