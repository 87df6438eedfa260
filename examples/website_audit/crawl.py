"""Pages over HTTP: one host, a bounded number, one request at a time.

A site is written by others, so nothing about it is taken on trust: links and
redirects to another host are not followed, an endless page is cut, an endless
site ends at the number of pages or at the time allowed, and ``robots.txt`` is
obeyed (RFC 9309). Whatever a limit leaves out is counted, never guessed about:
a link that was not tried is not called broken.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx

from examples.website_audit.markup import outline
from examples.website_audit.site import (
    OK,
    Limits,
    Page,
    Site,
    SiteUnavailable,
    internal_address,
    target_origin,
)

AGENT = "website-audit-example/1.0"

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5


@dataclass(frozen=True)
class _Answer:
    status: int
    address: str
    """Where the answer came from, after redirects."""
    page: Page | None
    """None for anything that is not an HTML page."""


class _LeavesSite(Exception):
    """A redirect to another host; the argument is its URL."""


def collect_url(url: str, limits: Limits, on_page: Callable[[int], None]) -> Site:
    """The pages that can be reached from ``url`` without leaving its host.

    Raises SiteUnavailable when the first page cannot be read.
    """
    try:
        known = target_origin(url)
    except ValueError as problem:
        raise SiteUnavailable(f"{url}: {problem}") from None
    if known is None:
        raise SiteUnavailable(f"{url}: not an http:// or https:// address")
    with httpx.Client(
        headers={"User-Agent": AGENT, "Accept": "text/html, */*;q=0.5"},
        timeout=limits.answer_seconds,
        follow_redirects=False,
    ) as client:
        return _Crawl(client, url, limits, on_page).run()


class _Crawl:
    """One walk through a site, breadth first, so that a limit cuts the far pages."""

    def __init__(
        self, client: httpx.Client, url: str, limits: Limits, on_page: Callable[[int], None]
    ) -> None:
        parts = urlsplit(url)
        self._client = client
        self._limits = limits
        self._on_page = on_page
        self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._deadline = time.monotonic() + limits.seconds
        self._first = internal_address(url, "/", self._origin) or "/"
        self._pages: dict[str, Page] = {}
        self._answers: dict[str, int] = {}
        self._tried: set[str] = set()

    def run(self) -> Site:
        robots = self._robots()
        waiting = deque([self._first])
        seen = {self._first}
        left_out = 0
        while waiting:
            address = waiting.popleft()
            if self._is_full() or not robots.can_fetch(AGENT, self._origin + address):
                left_out += 1
                continue
            for target in self._visit(address):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        pages = tuple(page for _, page in sorted(self._pages.items()))
        if not pages:
            raise SiteUnavailable(f"{self._origin}{self._first}: nothing may be read here")
        return Site(pages, self._answers, self._origin, left_out)

    def _is_full(self) -> bool:
        return (
            len(self._pages) >= self._limits.pages
            or len(self._tried) >= self._limits.addresses
            or time.monotonic() >= self._deadline
        )

    def _visit(self, address: str) -> Iterator[str]:
        """Read one address; give the internal addresses its page links to."""
        if self._tried:
            time.sleep(self._limits.pause_seconds)
        self._tried.add(address)
        try:
            answer = self._ask(address)
        except _LeavesSite as elsewhere:
            self._fail_if_first(address, f"redirects to {elsewhere}: audit that address instead")
            return
        except httpx.HTTPError as problem:
            self._fail_if_first(address, str(problem) or type(problem).__name__)
            return
        self._answers[address] = answer.status
        if answer.page is None:
            self._fail_if_first(address, f"no HTML page (status {answer.status})")
            return
        self._answers[answer.address] = answer.status
        self._pages[answer.address] = answer.page
        self._on_page(len(self._pages))
        for href in outline(answer.page.html).links:
            target = internal_address(href, answer.address, self._origin)
            if target is not None:
                yield target

    def _fail_if_first(self, address: str, problem: str) -> None:
        if address == self._first:
            raise SiteUnavailable(f"{self._origin}{address}: {problem}")

    def _ask(self, address: str) -> _Answer:
        for _ in range(_MAX_REDIRECTS + 1):
            started = time.monotonic()
            with self._client.stream("GET", self._origin + address) as response:
                if response.status_code not in _REDIRECTS or "location" not in response.headers:
                    return self._answer(response, address, started)
                location = urljoin(self._origin + address, response.headers["location"])
            target = internal_address(location, address, self._origin)
            if target is None:
                raise _LeavesSite(location)
            address = target
        raise httpx.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirects")

    def _answer(self, response: httpx.Response, address: str, started: float) -> _Answer:
        is_page = response.headers.get("content-type", "").startswith("text/html")
        if response.status_code != OK or not is_page:
            return _Answer(response.status_code, address, None)
        content = self._body(response)
        page = Page(
            address=address,
            html=_decode(content, response.charset_encoding or "utf-8"),
            size=len(content),
            seconds=time.monotonic() - started,
        )
        return _Answer(response.status_code, address, page)

    def _body(self, response: httpx.Response) -> bytes:
        content = bytearray()
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) >= self._limits.page_bytes or time.monotonic() >= self._deadline:
                break
        return bytes(content[: self._limits.page_bytes])

    def _robots(self) -> RobotFileParser:
        """What the site allows; a site without ``robots.txt`` allows everything."""
        rules = RobotFileParser()
        lines: list[str] = []
        try:
            with self._client.stream("GET", f"{self._origin}/robots.txt") as response:
                if response.status_code == OK:
                    lines = self._body(response).decode("utf-8", errors="replace").splitlines()
        except httpx.HTTPError as problem:
            raise SiteUnavailable(f"{self._origin}: {str(problem) or 'no answer'}") from None
        rules.parse(lines)
        return rules


def _decode(content: bytes, charset: str) -> str:
    try:
        return content.decode(charset, errors="replace")
    except (LookupError, UnicodeError):  # a charset that only this server knows
        return content.decode("utf-8", errors="replace")
