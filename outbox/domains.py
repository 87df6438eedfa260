"""Mail domains: which are sane, and their one ASCII form.

Python's own ``idna`` codec is not used. It follows IDNA 2003 and turns
``straße.example`` into ``strasse.example``, which is another domain: two people
would count as one, and the second would get no mail. The mapping here is the one
of UTS 46 without its transitional rules, made of Unicode normalisation and the
``punycode`` codec. It is exact for comparing and hashing; what goes on the wire
is encoded by the adapter.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from functools import lru_cache
from typing import Final

from outbox.limits import DOMAIN_OCTETS, LABEL_OCTETS

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_IDEOGRAPHIC_FULL_STOP: Final = "\u3002"
_IN_CONTEXT: Final = frozenset("\u200c\u200d\u00b7\u0375\u05f3\u05f4\u30fb")
"""Not letters, but allowed in a label in some scripts (RFC 5892, appendix A)."""


class InvalidDomain(ValueError):
    """The text is no mail domain; the message completes ``the domain …``."""


@lru_cache(maxsize=4096)
def ascii_domain(domain: str) -> str:
    """``domain`` lower-cased and in ASCII (``xn--`` labels), for comparing.

    An address literal (``[192.0.2.1]``, ``[IPv6:2001:db8::1]``) is lower-cased.
    Raises InvalidDomain if ``domain`` is neither.
    """
    if domain.startswith("["):
        return _literal(domain)
    mapped = domain.lower() if domain.isascii() else _mapped(domain)
    labels = [_ascii_label(label) for label in mapped.split(".")]
    result = ".".join(labels)
    if len(result) > DOMAIN_OCTETS:
        raise InvalidDomain(f"is longer than {DOMAIN_OCTETS} octets")
    if labels[-1].isdigit():
        raise InvalidDomain("ends in a number; write an IP address in brackets: [192.0.2.1]")
    return result


def _literal(domain: str) -> str:
    inner = domain[1:-1].lower() if domain.endswith("]") else ""
    # "%" would begin a scope of one machine, which means nothing to another.
    is_v6 = inner.startswith("ipv6:") and "%" not in inner
    try:
        if is_v6:
            ipaddress.IPv6Address(inner.removeprefix("ipv6:"))
        else:
            ipaddress.IPv4Address(inner)
    except ValueError:
        raise InvalidDomain("is no IP address in brackets, like [192.0.2.1]") from None
    return f"[{inner}]"


def _mapped(domain: str) -> str:
    # Letter by letter, because str.lower() knows the final sigma and UTS 46 does not.
    lowered = "".join(map(str.lower, unicodedata.normalize("NFKC", domain)))
    return unicodedata.normalize("NFKC", lowered).replace(_IDEOGRAPHIC_FULL_STOP, ".")


def _ascii_label(label: str) -> str:
    if not label:
        raise InvalidDomain("has an empty part: two dots in a row, or one at an end")
    if not label.isascii():
        bad = next((c for c in label if not _allowed(c)), None)
        if bad is not None:
            raise InvalidDomain(f"contains U+{ord(bad):04X}, which no domain can")
        if label[0] == "-" or label[-1] == "-":
            raise InvalidDomain("has a part that starts or ends with a hyphen")
        label = "xn--" + label.encode("punycode").decode("ascii")
    elif not _LABEL.fullmatch(label):
        raise InvalidDomain("may hold only letters, digits and hyphens between dots")
    if len(label) > LABEL_OCTETS:
        raise InvalidDomain(f"has a part longer than {LABEL_OCTETS} octets")
    return label


def _allowed(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character == "-"
    return unicodedata.category(character)[0] in "LMN" or character in _IN_CONTEXT
