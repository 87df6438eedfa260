"""Mailbox addresses in the form the wire takes.

The two halves of an address follow different rules. The domain can always be
written in ASCII, as A-labels (RFC 5891). The part before the ``@`` cannot:
what stands there means something to one server only, so it is never encoded,
never mapped and never guessed. Not ASCII, it travels as raw UTF-8 and only
where the server said SMTPUTF8 (RFC 6531); anywhere else the message is refused.
"""

from __future__ import annotations

import re

import idna

from providers.encoding import ATEXT, InvalidField, NeedsSmtpUtf8, quote, refuse_controls

ADDRESS_LIMIT = 254
"""Octets of an address: a path has 256, with its angle brackets (RFC 5321, 4.5.3.1.3)."""

_UNICODE = "\u00a0-\U0010ffff"
_DOT_STRING = re.compile(rf"[{ATEXT}{_UNICODE}]+(?:\.[{ATEXT}{_UNICODE}]+)*")
_DOTTED = re.compile(rf"[{ATEXT}.{_UNICODE}]+")
_QUOTED = re.compile(rf'"((?:[ !#-\[\]-~{_UNICODE}]|\\[ -~])+)"')
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_\-]{0,61}[A-Za-z0-9_])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_LITERAL = re.compile(r"\[[!-Z^-~]+\]")
_ESCAPED = re.compile(r"\\(.)")


def ascii_address(address: str, *, smtputf8: bool, field: str = "address") -> str:
    """``address`` (``local@domain``) as SMTP commands and header fields take it.

    The domain becomes A-labels. A local part that is no dot-atom but only
    breaks the rule of dots (``a..b``) is quoted; a quoted one stays quoted,
    with the escapes it needs and no others. With ``smtputf8`` the local part
    may be any UTF-8. ``field`` is named in the error.

    Raises InvalidField when this is no address, NeedsSmtpUtf8 when the local
    part is not ASCII and ``smtputf8`` is false. Source: RFC 5321, 4.1.2.
    """
    refuse_controls(field, address)
    local, at, domain = address.rpartition("@")
    if not at:
        raise InvalidField(field, f"{address!r} is no address; write it as name@example.org")
    local = _local_part(local, address=address, field=field)
    result = f"{local}@{ascii_domain(domain, field=field)}"
    if len(result.encode()) > ADDRESS_LIMIT:
        raise InvalidField(
            field, f"is longer than the {ADDRESS_LIMIT} octets that an address may have"
        )
    if not smtputf8 and not local.isascii():
        raise NeedsSmtpUtf8(address)
    return result


def needs_smtputf8(address: str) -> bool:
    """Whether ``address`` can be written only for a server that offers SMTPUTF8 (RFC 6531)."""
    return not address.rpartition("@")[0].isascii()


def ascii_domain(domain: str, *, field: str = "domain") -> str:
    """``domain`` in ASCII: as written if it is, else as A-labels (UTS 46, then RFC 5891).

    Raises InvalidField when it is no domain name and no address literal.
    """
    name = domain
    if not domain.isascii():
        try:
            name = idna.encode(domain, uts46=True).decode("ascii")
        except ValueError as error:
            raise InvalidField(field, f"{domain!r} is no domain name: {error}") from None
    if _DOMAIN.fullmatch(name) or _LITERAL.fullmatch(name):
        return name
    raise InvalidField(field, f"{domain!r} is no domain name; write it as example.org")


def _local_part(local: str, *, address: str, field: str) -> str:
    # A reader that decodes too much would turn such a name into another mailbox.
    if "=?" not in local:
        if _DOT_STRING.fullmatch(local):
            return local
        if _DOTTED.fullmatch(local):
            return quote(local)
        quoted = _QUOTED.fullmatch(local)
        if quoted:
            return quote(_ESCAPED.sub(r"\1", quoted[1]))
    raise InvalidField(
        field, f"{address!r} is no address: the part before the @ has to be a plain or quoted name"
    )
