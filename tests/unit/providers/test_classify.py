"""What a failed request proves, and how long a Retry-After asks to wait."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from providers.classify import (
    FAULTS,
    FOREIGN,
    LONGEST_WAIT,
    Reached,
    failure,
    parse_retry_after,
)
from providers.contract import InDoubt, Unavailable

NOW = datetime(2026, 3, 29, 0, 59, tzinfo=UTC)


def tree(root: type[BaseException]) -> Iterator[type[BaseException]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


ROOTS = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError)
EVERY = sorted({kind for root in ROOTS for kind in tree(root)}, key=lambda kind: kind.__name__)
PUBLIC = {
    kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, Exception)
}


def test_every_exception_of_httpx_is_in_the_map() -> None:
    """The map names each class of httpx's exception trees, and there is no other tree."""
    assert set(EVERY) <= set(FAULTS)
    assert set(EVERY) >= PUBLIC
    assert all(issubclass(kind, FOREIGN) for kind in FAULTS)


BEFORE_CONNECTION = {
    httpx.PoolTimeout,
    httpx.ConnectTimeout,
    httpx.ConnectError,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
}


@pytest.mark.parametrize("kind", [*EVERY, TimeoutError, OSError])
def test_only_failures_before_a_connection_prove_that_nothing_left(
    kind: type[BaseException],
) -> None:
    """Before the first body octet everything is Unavailable; after it only what needs no connection."""
    error = kind.__new__(kind)
    assert isinstance(failure(error, Reached.NOTHING), Unavailable)
    for reached in (Reached.BODY, Reached.ANSWER):
        expected = Unavailable if kind in BEFORE_CONNECTION else InDoubt
        assert isinstance(failure(error, reached), expected)


def test_a_class_that_httpx_adds_is_judged_by_its_parent() -> None:
    """A subclass that nobody has heard of is doubt once the body began."""

    class Novel(httpx.NetworkError):
        pass

    assert failure(Novel("?"), Reached.BODY) == InDoubt("network")
    assert failure(Novel("?"), Reached.NOTHING) == Unavailable("network")


def test_a_full_pool_uses_no_attempt() -> None:
    """A pool time-out is the only failure that is not counted."""
    uncounted = {
        kind
        for kind in EVERY
        if isinstance(found := failure(kind.__new__(kind), Reached.NOTHING), Unavailable)
        and not found.counted
    }
    assert uncounted == {httpx.PoolTimeout}


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (socket.gaierror(-2, "unknown"), "dns"),
        (ConnectionRefusedError(111, "refused"), "refused"),
        (ssl.SSLError(1, "wrong version"), "tls"),
        (ssl.SSLCertVerificationError(1, "self-signed"), "certificate"),
        (OSError(101, "unreachable"), "connect"),
        (ExceptionGroup("all failed", [ConnectionRefusedError(111, "refused")]), "refused"),
    ],
)
def test_a_failed_connection_says_why(cause: Exception, reason: str) -> None:
    """The reason comes from the cause deep inside, not from text."""
    middle = OSError("all attempts failed")
    middle.__cause__ = cause
    error = httpx.ConnectError("failed")
    error.__cause__ = middle
    assert failure(error, Reached.NOTHING) == Unavailable(reason)


def test_causes_that_run_in_a_circle_end() -> None:
    """Exceptions that are each other's context do not hang the translation."""
    first, second = httpx.ReadError("a"), OSError("b")
    first.__context__, second.__context__ = second, first
    assert failure(first, Reached.BODY) == InDoubt("read")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("120, 300", 300.0),
        ("Sun, 29 Mar 2026 01:02:00 GMT", 180.0),
        ("Sunday, 29-Mar-26 01:02:00 GMT", 180.0),
        ("Sun Mar 29 01:02:00 2026", 180.0),
        ("Sun, 29 Mar 2026 00:00:00 GMT", 0.0),
        ("99999999999", LONGEST_WAIT),
        ("9" * 5000, LONGEST_WAIT),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT),
        ("Sat, 01 Jan 10000 00:00:00 GMT", None),
        ("2026-03-29T01:02:00Z", None),
        ("soon", None),
        ("", None),
        ("   ", None),
        ("-5", None),
        ("+5", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("١٢٠", None),
        (None, None),
    ],
)
def test_retry_after_in_all_its_forms(value: str | None, seconds: float | None) -> None:
    """Each form gives its wait, what is no form gives none (B75)."""
    assert parse_retry_after(value, NOW) == seconds


@given(
    st.text() | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,3} [A-Z][a-z]{2} [0-9]{1,6} [0-9:]{0,9} ?.*")
)
@example("Mon, 01 Jan 0001 00:00:00 +2359")
@example("Fri, 31 Dec 9999 23:59:59 -2359")
def test_retry_after_never_raises(value: str) -> None:
    """Whatever a server writes, the wait is None or within bounds (B75)."""
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or 0.0 <= seconds <= LONGEST_WAIT
