"""Bearer tokens: taken from a request's headers, and compared. Pure.

The comparison takes as long for a token that is nearly right as for one that is not, and says
nothing about its length: digests are compared (RFC 6750, section 2.1, is the form).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from enum import Enum
from hashlib import sha256

SHORTEST = 16
"""Characters; whoever can try as often as they like must not find a token by trying."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Verdict(Enum):
    """What a request's credentials are worth."""

    GOOD = "good"
    MISSING = "no token"
    WRONG = "another token"


def unusable(token: str) -> str | None:
    """Why ``token`` cannot be what a listener asks for; never repeats it. None if it can."""
    if len(token) < SHORTEST:
        return f"has fewer than {SHORTEST} characters: take 32 random ones or more"
    if not _TOKEN.fullmatch(token):
        return "has characters that a bearer token cannot have: use letters, digits and -._~+/"
    return None


def verdict(headers: Sequence[tuple[bytes, bytes]], token: str) -> Verdict:
    """Whether the ``Authorization`` of a request holds ``token``.

    headers: as ASGI gives them, names in lower case. Two such headers hold none.
    """
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        return Verdict.MISSING
    scheme, _, rest = given[0].strip().partition(b" ")
    if scheme.lower() != b"bearer" or not rest.strip():
        return Verdict.MISSING
    same = hmac.compare_digest(sha256(rest.strip()).digest(), sha256(token.encode()).digest())
    return Verdict.GOOD if same else Verdict.WRONG
