"""Each rule of the website audit: one page that breaks it, one that does not."""

from __future__ import annotations

import pytest

from examples.website_audit.customers import examples
from examples.website_audit.fetch import collect
from examples.website_audit.findings import RULES, Finding, find
from examples.website_audit.markup import outline
from examples.website_audit.site import Page, Site

CLEAN = (
    '<html lang="en"><head><title>T</title><meta name="description" content="D"></head>'
    "<body><h1>One</h1><h2>Two</h2><h3>Three</h3><h2>Two</h2>"
    '<img src="a.png" alt="A"><img src="line.png" alt=""><a href="there.html">There</a>'
    "</body></html>"
)


def audit(html: str, *, size: int = 0, seconds: float = 0.0) -> list[Finding]:
    page = Page("/page.html", html, size or len(html), seconds)
    answers = {"/there.html": 200, "/gone.html": 404, "/sub/gone.html": 500}
    return list(find(Site((page,), answers)))


def rules_broken(html: str) -> list[str]:
    return [finding.rule for finding in audit(html)]


def test_a_clean_page_has_no_findings() -> None:
    """A page that keeps every rule gives no finding at all."""
    assert audit(CLEAN) == []


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("title-missing", "<title>T</title>", ""),
        ("title-missing", "<title>T</title>", "<title> \n </title>"),
        ("title-missing", "<title>T</title>", "<svg><title>Drawing</title></svg>"),
        ("description-missing", '<meta name="description" content="D">', ""),
        ("description-missing", 'content="D"', 'content=" "'),
        ("language-missing", '<html lang="en">', "<html>"),
        ("language-missing", 'lang="en"', 'lang=""'),
        ("alt-missing", ' alt="A"', ""),
        ("heading-order", "<h1>One</h1>", ""),
        ("heading-order", "<h2>Two</h2><h3>", "<h3>"),
        ("link-broken", 'href="there.html"', 'href="gone.html"'),
        ("link-broken", 'href="there.html"', 'href="/gone.html?"'),
        ("link-broken", 'href="there.html"', 'href="sub/gone.html#part"'),
        ("link-broken", 'href="there.html"', 'href="http://folder.invalid/gone.html"'),
    ],
)
def test_a_page_that_breaks_a_rule_has_that_finding_only(rule: str, good: str, bad: str) -> None:
    """Taking one good thing away from a clean page gives exactly the finding about it."""
    assert good in CLEAN
    assert rules_broken(CLEAN.replace(good, bad, 1)) == [rule]


@pytest.mark.parametrize(
    "href",
    [
        "https://example.com/gone.html",
        "https://folder.invalid/gone.html",
        "http://folder.invalid:8080/gone.html",
        "mailto:ana@example.org",
        "javascript:void(0)",
        "not-tried.html",
        "#top",
        "http://[broken",
        "http://folder.invalid:port/",
    ],
)
def test_a_link_that_was_not_tried_is_not_called_broken(href: str) -> None:
    """Links to elsewhere, and links nobody looked at, give no finding."""
    assert audit(CLEAN.replace("there.html", href)) == []


def test_a_large_page_is_a_finding_from_its_size() -> None:
    """The size on disk or on the wire counts, not what was read of it."""
    assert audit(CLEAN, size=100_000) == []
    [finding] = audit(CLEAN, size=100_001)
    assert (finding.rule, finding.severity) == ("page-too-large", "warning")


def test_a_slow_answer_is_a_finding() -> None:
    """A page that took more than two seconds is named with the time it took."""
    assert audit(CLEAN, seconds=2.0) == []
    [finding] = audit(CLEAN, seconds=3.26)
    assert finding.rule == "answer-slow"
    assert "3.3 s" in finding.sentence


def test_a_finding_names_the_image_or_the_link() -> None:
    """The sentence says which image or link is meant, in one line of bounded length."""
    html = CLEAN.replace("a.png", "xx\n\u202e" + "x" * 300).replace(' alt="A"', "")
    [finding] = audit(html)
    assert finding.sentence == f"The image {'x' * 77}... has no alternative text."


def test_the_same_image_twice_is_one_finding() -> None:
    """Repetition on one page does not make the list longer."""
    image = '<img src="logo.png">'
    assert rules_broken(CLEAN + image * 3) == ["alt-missing"]


@pytest.mark.parametrize("html", ["", "<", "<![x[", "<title>open", "</html><p", "\x00", "<a href>"])
def test_bad_markup_never_stops_an_audit(html: str) -> None:
    """Whatever a page contains, it has an outline and findings."""
    assert outline(html).links == ()
    assert "language-missing" in rules_broken(html)


def test_the_first_of_a_repeated_attribute_counts() -> None:
    """As in browsers: what comes second is ignored."""
    assert outline('<html lang="en" lang="">').language == "en"


def test_the_shipped_sites_show_every_rule_that_a_folder_can_break() -> None:
    """The example pages are worth reading: all rules but the one about time, and clean pages."""
    found = [finding for customer in examples() for finding in find(collect(customer.site))]
    assert {finding.rule for finding in found} == {rule.id for rule in RULES} - {"answer-slow"}
    bakery = find(collect(examples()[0].site))
    assert "/opening-hours.html" not in {finding.page for finding in bakery}
    assert find(collect(examples()[2].site)) == ()
