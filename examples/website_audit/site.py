"""What a collected website is: plain values that the checks work on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

OK = 200
NOT_FOUND = 404

_PORTS = {"http": 80, "https": 443}

FOLDER_ORIGIN = "http://folder.invalid"
"""Stands for the host of pages that come from a folder (RFC 2606: it never exists)."""


@dataclass(frozen=True)
class Limits:
    """How much is collected, so that no site keeps a run for ever."""

    pages: int = 50
    """Pages read at most."""
    addresses: int = 200
    """Addresses asked for at most, pages and everything else that pages link to."""
    page_bytes: int = 2_000_000
    """Bytes read of one page at most; the rest of a longer page is not looked at."""
    seconds: float = 60.0
    """Time for the whole site; what is not read by then is left out."""
    answer_seconds: float = 10.0
    """Time for a server to connect, or to send the next bytes."""
    pause_seconds: float = 0.2
    """Rest between two requests: an audit is a guest."""


@dataclass(frozen=True)
class Page:
    """One HTML page as it was read."""

    address: str
    """Path (and query) within the site: ``/breads/rye.html``."""
    html: str
    size: int
    """Bytes of the whole document; of a page cut at the limit, the bytes read."""
    seconds: float = 0.0
    """From asking to the last byte; 0 for a file."""


@dataclass(frozen=True)
class Site:
    """Everything a report needs to know, collected before any transaction begins."""

    pages: tuple[Page, ...]
    """In the order of their addresses."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """HTTP status of each internal address that was tried; 404 for a file that is not there."""
    origin: str = FOLDER_ORIGIN
    """Scheme, host and port, which tell links within the site from those that leave it."""
    left_out: int = 0
    """Addresses that are known but were not tried, because a limit was reached."""


class SiteUnavailable(Exception):
    """The site could not be read at all; one line that says why."""


def internal_address(href: str, page: str, origin: str) -> str | None:
    """Where a link on ``page`` leads within the site, or None when it leaves it.

    ``origin`` is scheme, host and port (``https://www.example.org``); the
    fragment is dropped, since it names a place on a page, not another page.
    """
    try:
        target = urlsplit(urljoin(origin + page, href.strip()))
        same = target_origin(target.geturl()) == target_origin(origin)
    except ValueError:
        return None
    if not same:
        return None
    path = target.path or "/"
    return f"{path}?{target.query}" if target.query else path


def target_origin(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an http(s) URL, None for anything else.

    Raises ValueError for a URL that cannot be read.
    """
    parts = urlsplit(url)
    usual = _PORTS.get(parts.scheme)
    if usual is None or not parts.hostname:
        return None
    return parts.scheme, parts.hostname.lower(), usual if parts.port is None else parts.port
