"""What may be kept of text that came from outside: no secrets, no control characters, short.

A provider may echo our own request in its error, an exception may print a URL
with a password, a server may answer in NUL bytes. Everything of that kind that
is stored, logged or shown goes through :func:`redact` first.

Two nets, because each has holes. The first knows the secrets and removes them
in every form in which they travel: plain, in a URL, in JSON, in HTML, and in
base64, there at each of the three offsets at which base64 can begin inside a
longer text (``user:secret`` in an Authorization header, NUL-separated in SMTP's
PLAIN). The second knows no secret and removes whatever stands where one would
stand: after ``Authorization:``, ``api_key=``, ``Bearer``, before the ``@`` of
a URL. Secrets go before control characters are replaced, and the text is cut
last, so that no half of a secret survives.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_SHORTEST_FRAGMENT = 6
"""A base64 fragment shorter than this would match innocent text."""

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SPACE = re.compile(r"[\t\n\x0b\x0c\r ]+")

_NAMES = (
    r"(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]*(?:key|token|secret)"
    r"|api[-_]?key|access[-_]?token|password|passwd|secret"
)
_ASSIGNED = re.compile(
    rf"""(?ix) \b ({_NAMES}) (["']?\s*[:=]\s*["']?) (?:(?:bearer|basic|token)\s+)? [^\s"',;<>&]+"""
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+(?=[^\s]*[0-9=_])[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"""(://)[^/\s"'<>]+@""")


def redact(text: str | bytes, secrets: Iterable[str] = (), *, limit: int = 500) -> str:
    """``text`` without secrets and control characters, on one line.

    ``secrets`` are the plain values to remove; ``limit`` is the greatest number
    of characters returned. Bytes are read as UTF-8, what is not UTF-8 is replaced.
    """
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    known = _known(secrets)
    if known is not None:
        plain = known.sub(REDACTED, plain)
    plain = _ASSIGNED.sub(rf"\1\2{REDACTED}", plain)
    plain = _SCHEME.sub(rf"\1 {REDACTED}", plain)
    plain = _USERINFO.sub(rf"\1{REDACTED}@", plain)
    plain = _SPACE.sub(" ", _CONTROL.sub(REPLACEMENT, plain)).strip()
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _known(secrets: Iterable[str]) -> re.Pattern[str] | None:
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    if not forms:
        return None
    # Longest first: a form that contains another one must not leave its tail behind.
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield html.escape(secret)
    for quoted in (
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), quoted)
    yield from _base64_forms(secret.encode("utf-8", "surrogatepass"))


def _base64_forms(secret: bytes) -> Iterator[str]:
    for offset in range(3):
        # Characters that carry bits of a neighbour are left out: they differ from text to text.
        padded = b"\0" * offset + secret
        first = (offset * 8 + 5) // 6
        last = len(padded) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            fragment = encode(padded).decode("ascii")[first:last]
            if len(fragment) >= _SHORTEST_FRAGMENT:
                yield fragment
    yield base64.b64encode(secret).decode("ascii")
    yield base64.urlsafe_b64encode(secret).decode("ascii")
