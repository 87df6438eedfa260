"""What an SMTP reply proves. Pure.

Only two things decide: the reply code and the enhanced status code at the
start of the text (RFC 3463). The words after them are for people; servers
change them, translate them and put anything there.

Sources: RFC 5321 4.2.1 (4yz may be tried again, 5yz may not), RFC 4954 6
(530, 534, 535, 538 and X.7.8 to X.7.11 are about the login, never about a
message), RFC 5248 (525, 5.7.13: the account is disabled).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from providers.contract import (
    Accepted,
    AccountBlocked,
    BlockKind,
    InDoubt,
    Outcome,
    Rejected,
    Unavailable,
)
from providers.redact import redact

TEXT_LIMIT = 200
"""Characters kept of a reply's text."""

REPLY_LIMIT = 32_768
"""Octets of one whole reply; RFC 5321 4.5.3.1.5 allows 512 in a line."""

_LINE = re.compile(rb"([2-5][0-9]{2})(?:([ -])([^\r\n]*))?")
_ENHANCED = re.compile(r"([245])\.[0-9]{1,3}\.[0-9]{1,3}(?= |$)")

_ACCOUNT_CODES: dict[int, BlockKind] = {
    525: "suspended",
    530: "credentials",
    534: "credentials",
    535: "credentials",
    538: "credentials",
}
_ACCOUNT_STATUS: dict[str, BlockKind] = {
    "5.7.8": "credentials",
    "5.7.9": "credentials",
    "5.7.11": "credentials",
    "5.7.13": "suspended",
}


class UnreadableReply(ValueError):
    """What came is no SMTP reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: the code, and the text of its lines, cleaned and short."""

    code: int
    text: str = ""

    @classmethod
    def of(cls, code: int, text: str | bytes) -> Reply:
        return cls(code, redact(text, limit=TEXT_LIMIT))

    @property
    def enhanced(self) -> str:
        """The enhanced status code, or "" when there is none of the code's own class."""
        match = _ENHANCED.match(self.text)
        return match[0] if match and match[1] == str(self.code)[0] else ""

    @property
    def positive(self) -> bool:
        return self.code // 100 == 2

    @property
    def refusing(self) -> bool:
        return self.code // 100 in {4, 5}

    def __str__(self) -> str:
        return f"{self.code} {self.text}".strip()


def read_reply(received: bytes) -> tuple[Reply, bytes] | None:
    """The first whole reply in ``received`` and the octets after it; None while it is incomplete.

    Raises UnreadableReply when this is no reply, or one without an end.
    """
    texts: list[bytes] = []
    start = 0
    while (end := received.find(b"\n", start)) >= 0:
        match = _LINE.fullmatch(received[start:end].removesuffix(b"\r"))
        if match is None:
            raise UnreadableReply("the server answered with something that is no SMTP reply")
        start = end + 1
        texts.append(match[3] or b"")
        if match[2] != b"-":
            return Reply.of(int(match[1]), b" ".join(texts)), received[start:]
    if len(received) > REPLY_LIMIT:
        raise UnreadableReply("the server answered without an end")
    return None


def refusal(reply: Reply, step: str) -> Rejected | Unavailable | AccountBlocked:
    """What a reply other than the hoped-for one proves; ``step`` names the command.

    Nothing was taken in any case: it is read before the final dot, or is a 4yz
    or 5yz. A reply that is neither is out of step; it is no verdict on the message.
    """
    reason = f"{step} answered {reply}"
    code = str(reply.code)
    kind = _ACCOUNT_CODES.get(reply.code) or _ACCOUNT_STATUS.get(reply.enhanced)
    if kind is not None:
        return AccountBlocked(kind, reason)
    if code[0] == "5":
        return Rejected(reason, code)
    if code[0] == "4":
        return Unavailable(reason, code)
    return Unavailable(f"{reason}, which is out of step", code)


def login_refusal(reply: Reply) -> Unavailable | AccountBlocked:
    """What a refused AUTH proves: 4yz passes (454), anything else is about the account."""
    found = refusal(reply, "AUTH")
    if isinstance(found, Rejected):
        return AccountBlocked("credentials", found.reason)
    return found


def door_refusal(reply: Reply, step: str) -> Unavailable | AccountBlocked:
    """What a refusal before any message proves (greeting, EHLO): 5yz is about this client.

    No message is at fault, so none may fail for it (554 in the greeting means
    "no SMTP service here", RFC 5321 3.1).
    """
    found = refusal(reply, step)
    if isinstance(found, Rejected):
        return AccountBlocked("permission", found.reason)
    return found


def verdict(reply: Reply) -> Outcome:
    """What the reply to the final dot proves; its text is the receipt (queue id)."""
    if reply.positive:
        return Accepted(message_id=reply.text or None)
    if reply.refusing:
        return refusal(reply, "DATA")
    return InDoubt(f"no usable reply after DATA: the final dot was answered {reply}")
