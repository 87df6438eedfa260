"""What a failed request proves: the one place where httpx's exceptions become outcomes.

Two facts decide. The first is the kind of failure: a name that did not resolve,
a refused connection, a failed TLS handshake or a full pool happen before any
connection exists, so nothing left, whatever else is known. The second is how
far the request got. A server that has read our headers but no byte of the body
holds no message, so a loss there proves that nothing was sent. From the first
body byte on every failure is doubt: the server may have read the rest and
acted, and its answer was what got lost.

The table names every exception class that httpx has; a test walks httpx's tree
and fails when a new release adds one. Classes of other transports' own making
are judged by how far the request got.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import IntEnum

import httpx

from providers.contract import InDoubt, Unavailable


class Reached(IntEnum):
    """How far one request got."""

    NOTHING = 0
    """No byte of the body was handed to the connection."""
    BODY = 1
    """The first byte of the body may have left."""
    ANSWER = 2
    """The head of an answer arrived."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of failure: its word, and whether it can only happen before a connection."""

    reason: str
    before_connection: bool = False
    counted: bool = True


FAULTS: dict[type[BaseException], Fault] = {
    # No connection, so no byte.
    httpx.PoolTimeout: Fault("pool", before_connection=True, counted=False),
    httpx.ConnectTimeout: Fault("connect_timeout", before_connection=True),
    httpx.ConnectError: Fault("connect", before_connection=True),
    httpx.ProxyError: Fault("proxy", before_connection=True),
    httpx.UnsupportedProtocol: Fault("unsupported_protocol", before_connection=True),
    httpx.InvalidURL: Fault("invalid_url", before_connection=True),
    # A connection, so the rest is a question of how far the request got.
    httpx.WriteTimeout: Fault("write_timeout"),
    httpx.WriteError: Fault("write"),
    httpx.ReadTimeout: Fault("read_timeout"),
    httpx.ReadError: Fault("read"),
    httpx.CloseError: Fault("close"),
    httpx.LocalProtocolError: Fault("local_protocol"),
    httpx.RemoteProtocolError: Fault("closed"),
    httpx.DecodingError: Fault("undecodable"),
    httpx.TooManyRedirects: Fault("redirect"),
    httpx.HTTPStatusError: Fault("status"),
    httpx.CookieConflict: Fault("client"),
    httpx.StreamConsumed: Fault("client"),
    httpx.StreamClosed: Fault("client"),
    httpx.ResponseNotRead: Fault("client"),
    httpx.RequestNotRead: Fault("client"),
    # The classes above them, for a transport that raises no closer one.
    httpx.StreamError: Fault("client"),
    httpx.ProtocolError: Fault("protocol"),
    httpx.NetworkError: Fault("network"),
    httpx.TimeoutException: Fault("timeout"),
    httpx.TransportError: Fault("transport"),
    httpx.RequestError: Fault("request"),
    httpx.HTTPError: Fault("http"),
    # httpcore lets these through from the TLS layer; ours is the total deadline.
    TimeoutError: Fault("deadline"),
    OSError: Fault("network"),
}

FOREIGN = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, OSError)
"""What the client translates. Anything else is a bug of ours and passes through."""

_CONNECT_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "dns"),
    (ssl.SSLCertVerificationError, "certificate"),
    (ssl.SSLError, "tls"),
    (ConnectionRefusedError, "refused"),
)


def failure(error: BaseException, reached: Reached) -> Unavailable | InDoubt:
    """What ``error`` proves about a request that got as far as ``reached``."""
    fault = next(FAULTS[kind] for kind in (*type(error).__mro__, OSError) if kind in FAULTS)
    if fault.before_connection or reached is Reached.NOTHING:
        return Unavailable(_closer(error, fault.reason), counted=fault.counted)
    return InDoubt(_broken(error, fault.reason, reached))


def _closer(error: BaseException, reason: str) -> str:
    if reason == "connect":
        for cause in _causes(error):
            for kind, word in _CONNECT_CAUSES:
                if isinstance(cause, kind):
                    return word
    return reason


def _broken(error: BaseException, reason: str, reached: Reached) -> str:
    if any(isinstance(cause, ConnectionResetError | BrokenPipeError) for cause in _causes(error)):
        return "reset"
    if reason == "closed" and reached is Reached.ANSWER:
        return "truncated"
    return reason


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [current.__context__, current.__cause__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


# --------------------------------------------------------------------------- #
# Retry-After
# --------------------------------------------------------------------------- #

LONGEST_WAIT = 100 * 366 * 86400.0
"""Seconds. Longer waits are cut to this, so that the caller's date arithmetic cannot overflow."""

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait from ``now`` (aware), or None when ``value`` says nothing usable.

    Delay-seconds and the three date forms of RFC 9110, sections 10.2.3 and
    5.6.7, are read; a date that has passed is 0. Of several numbers (a header
    sent twice) the longest holds. The caller caps what is long.
    """
    text = (value or "").strip()
    if not text:
        return None
    numbers = [part.strip() for part in text.split(",")]
    if all(_SECONDS.fullmatch(number) for number in numbers):
        return min(max(map(float, numbers)), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), LONGEST_WAIT)
