"""What the account of an HTTP adapter can set."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from providers.settings import AccountSettings, Duration, is_loopback

_HOST = re.compile(r"[a-z0-9_.-]*|[0-9a-f:.]+")


def check_base_url(value: str) -> str:
    """``value`` without a trailing slash.

    Raises ValueError, one line, for anything but an absolute ``https://`` URL
    (``http://`` for a loopback host) without user, query and fragment.
    """
    try:
        url = urlsplit(value)
        known = _HOST.fullmatch(url.hostname or "") and url.port != 0
    except ValueError:
        known = None
    if not known or not value.isprintable() or " " in value:
        raise ValueError("base_url is not a URL: write it like https://api.example.com")
    if "@" in url.netloc:
        raise ValueError("base_url must not hold a user or password: name the key as a secret")
    if url.scheme not in {"https", "http"} or not url.hostname:
        raise ValueError("base_url must be an absolute URL like https://api.example.com")
    if "?" in value or "#" in value:
        raise ValueError("base_url must end with its path: leave out what follows ? or #")
    if url.scheme == "http" and not is_loopback(url.hostname):
        raise ValueError(
            f"base_url uses http:// for {url.hostname}: "
            "write https://, http:// is for loopback hosts"
        )
    return value.rstrip("/")


Wait = Annotated[Duration, Field(gt=timedelta(0))]


class Timeouts(AccountSettings):
    """How long one request waits: for a slot (``pool``), for a connection and again for TLS
    (``connect``), for each step (``write``, ``read``), and in all once it is connected (``total``).
    """

    pool: Wait = timedelta(seconds=10)
    connect: Wait = timedelta(seconds=10)
    write: Wait = timedelta(seconds=30)
    read: Wait = timedelta(seconds=60)
    total: Wait = timedelta(minutes=2)


class HttpSettings(AccountSettings):
    """What every HTTP adapter's account can set."""

    base_url: Annotated[str, AfterValidator(check_base_url)]
    connections: int = Field(default=20, ge=1, le=1000)
    timeouts: Timeouts = Timeouts()
