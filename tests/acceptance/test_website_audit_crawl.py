"""Collecting a website over HTTP, from a real server on the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from examples.website_audit.crawl import AGENT
from examples.website_audit.fetch import collect
from examples.website_audit.findings import find
from examples.website_audit.site import Limits, SiteUnavailable

QUICK = Limits(pause_seconds=0)
CHUNK = b"<p>" + b"x" * 4093


@dataclass
class Reply:
    """What the server answers at one path."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/html"})
    endless: bool = False


@dataclass
class Website:
    """A server on a free port; a path that ends in a number has a link to the next one."""

    url: str = ""
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    silent: threading.Event | None = None

    def page(self, path: str, *links: str) -> None:
        self.replies[path] = Reply("".join(f'<a href="{link}">x</a>' for link in links).encode())

    def redirect(self, path: str, target: str) -> None:
        self.replies[path] = Reply(status=302, headers={"Location": target})

    def reply(self, path: str) -> Reply:
        if path in self.replies:
            return self.replies[path]
        number = path.removeprefix("/endless/")
        if number.isdigit():
            return Reply(f'<a href="{int(number) + 1}">next</a>'.encode())
        return Reply(b"nothing here", status=404)


@contextmanager
def serving() -> Iterator[Website]:
    website = Website()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            website.asked.append(self.path)
            website.agents.add(self.headers["User-Agent"])
            if website.silent:
                website.silent.wait()
                return
            reply = website.reply(self.path)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if not reply.endless:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            try:
                while reply.endless:
                    self.wfile.write(CHUNK)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    website.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield website
    finally:
        if website.silent:
            website.silent.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def website() -> Iterator[Website]:
    with serving() as running:
        yield running


def test_all_linked_pages_are_read_once(website: Website) -> None:
    """Links are followed breadth first, each address is asked for once, by a named agent."""
    website.page("/", "b.html", "/a.html#top", "b.html")
    website.page("/a.html", "/", "sub/c.html?q=1")
    website.page("/b.html", "a.html")
    website.page("/sub/c.html?q=1", "../a.html")
    site = collect(website.url, QUICK)
    assert [page.address for page in site.pages] == ["/", "/a.html", "/b.html", "/sub/c.html?q=1"]
    assert website.asked == ["/robots.txt", "/", "/b.html", "/a.html", "/sub/c.html?q=1"]
    assert website.agents == {AGENT}
    assert site.left_out == 0


def test_what_links_lead_to_is_known(website: Website) -> None:
    """A link to a missing page is a finding, one to a file that is there is not."""
    website.page("/", "gone.html", "list.pdf")
    website.replies["/list.pdf"] = Reply(b"%PDF", headers={"Content-Type": "application/pdf"})
    site = collect(website.url, QUICK)
    assert site.answers == {"/": 200, "/gone.html": 404, "/list.pdf": 200}
    broken = [finding for finding in find(site) if finding.rule == "link-broken"]
    assert [finding.sentence for finding in broken] == [
        "The link to gone.html is broken (status 404)."
    ]


def test_another_host_is_never_asked(website: Website) -> None:
    """Neither links nor redirects lead the audit to another host, or to another port of it."""
    with serving() as other:
        website.page("/", f"{other.url}/page", "away.html", "//example.invalid/x")
        website.redirect("/away.html", f"{other.url}/secret")
        site = collect(website.url, QUICK)
        assert other.asked == []
        assert set(site.answers) == {"/"}


def test_a_redirect_within_the_site_is_followed(website: Website) -> None:
    """The page counts under the address where it was found, and links start there."""
    website.redirect("/", "/en/")
    website.page("/en/", "about.html")
    website.page("/en/about.html")
    site = collect(website.url, QUICK)
    assert [page.address for page in site.pages] == ["/en/", "/en/about.html"]
    assert site.answers["/"] == 200


def test_a_site_that_moved_is_named(website: Website) -> None:
    """A first page on another host is no report about an empty site, but a clear error."""
    website.redirect("/", "https://www.example.org/")
    with pytest.raises(SiteUnavailable, match=r"redirects to https://www\.example\.org/: audit"):
        collect(website.url, QUICK)


def test_redirects_in_a_circle_end(website: Website) -> None:
    """A circle of redirects makes that one address unreadable and nothing else."""
    website.page("/", "round.html", "ok.html")
    website.page("/ok.html")
    website.redirect("/round.html", "round.html")
    site = collect(website.url, QUICK)
    assert [page.address for page in site.pages] == ["/", "/ok.html"]
    assert website.asked.count("/round.html") == 6


def test_an_endless_page_is_cut(website: Website) -> None:
    """A page that never ends is read up to the limit."""
    website.replies["/"] = Reply(b"<title>T</title>", endless=True)
    [page] = collect(website.url, Limits(page_bytes=200_000, pause_seconds=0)).pages
    assert page.size == 200_000
    assert "page-too-large" in {f.rule for f in find(collect(website.url, QUICK))}


def test_an_endless_page_ends_with_the_time(website: Website) -> None:
    """Also without a limit of size, one page cannot keep an audit for ever."""
    website.replies["/"] = Reply(endless=True)
    [page] = collect(website.url, Limits(page_bytes=10**12, seconds=0.1)).pages
    assert page.size > 0


@pytest.mark.parametrize("limits", [Limits(pages=4), Limits(addresses=4)])
def test_an_endless_site_ends(website: Website, limits: Limits) -> None:
    """A site that makes links for ever is read in part, and the report can say so."""
    quick = Limits(pages=limits.pages, addresses=limits.addresses, pause_seconds=0)
    site = collect(f"{website.url}/endless/1", quick)
    assert len(site.pages) == 4
    assert site.left_out == 1
    assert not [finding for finding in find(site) if finding.rule == "link-broken"]


def test_robots_txt_is_obeyed(website: Website) -> None:
    """What a site does not want read is not asked for, and not called broken."""
    website.page("/", "private/x.html", "open.html")
    website.page("/open.html")
    rules = b"User-agent: *\nDisallow: /private/\n"
    website.replies["/robots.txt"] = Reply(rules, headers={"Content-Type": "text/plain"})
    site = collect(website.url, QUICK)
    assert "/private/x.html" not in website.asked
    assert (set(site.answers), site.left_out) == ({"/", "/open.html"}, 1)


def test_a_site_that_wants_no_robots_is_unavailable(website: Website) -> None:
    """A site that disallows everything gets no report that looks clean."""
    website.page("/")
    website.replies["/robots.txt"] = Reply(b"User-agent: *\nDisallow: /\n")
    with pytest.raises(SiteUnavailable, match="nothing may be read here"):
        collect(website.url, QUICK)


@pytest.mark.parametrize("charset", ["latin-1", "no-such-charset", "idna"])
def test_any_charset_is_read(website: Website, charset: str) -> None:
    """A charset that is unknown, or no charset at all, does not stop an audit."""
    headers = {"Content-Type": f"text/html; charset={charset}"}
    website.replies["/"] = Reply(b"<title>Caf\xe9</title>", headers=headers)
    [page] = collect(website.url, QUICK).pages
    assert page.html.startswith("<title>Caf")


def test_a_server_that_does_not_answer_is_unavailable(website: Website) -> None:
    """A time-out, and a port where nobody listens, are errors in one line with the address."""
    website.silent = threading.Event()
    with pytest.raises(SiteUnavailable, match=website.url) as silent:
        collect(website.url, Limits(answer_seconds=0.2))
    with serving() as stopped:
        pass
    with pytest.raises(SiteUnavailable, match=stopped.url) as refused:
        collect(stopped.url, QUICK)
    assert "\n" not in f"{silent.value}{refused.value}"


@pytest.mark.parametrize(
    ("path", "problem"), [("/gone", "status 404"), ("/list.pdf", "no HTML page")]
)
def test_a_first_page_that_is_none_is_unavailable(
    website: Website, path: str, problem: str
) -> None:
    """There has to be one page to audit."""
    website.replies["/list.pdf"] = Reply(b"%PDF", headers={"Content-Type": "application/pdf"})
    with pytest.raises(SiteUnavailable, match=problem):
        collect(website.url + path, QUICK)


@pytest.mark.parametrize("url", ["ftp://example.org/", "http://", "http://example.org:x/", "x://"])
def test_what_is_no_web_address_is_refused(url: str) -> None:
    """Only http and https addresses are audited; the error repeats what was given."""
    with pytest.raises(SiteUnavailable, match=url):
        collect(url, QUICK)
