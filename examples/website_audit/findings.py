"""What an audit finds on a page: a table of rules, each a small pure function.

A rule yields one plain sentence per finding. To add one, write the function
and put a line into :data:`RULES`; nothing else has to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from examples.website_audit.markup import Outline, outline
from examples.website_audit.site import Page, Site, internal_address

RULES_VERSION = "v1"
"""An input of every report: another set of rules makes another report of the same pages."""

MAX_PAGE_BYTES = 100_000
MAX_ANSWER_SECONDS = 2.0

_FIRST_FAILURE = 400


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True)
class Finding:
    page: str
    rule: str
    severity: Severity
    sentence: str


@dataclass(frozen=True)
class Subject:
    """What a rule looks at: a page, what it contains, and the site it is part of."""

    page: Page
    outline: Outline
    site: Site


@dataclass(frozen=True)
class Rule:
    id: str
    severity: Severity
    check: Callable[[Subject], Iterator[str]]


def find(site: Site) -> tuple[Finding, ...]:
    """All findings of a site, in the order of its pages, then of :data:`RULES`."""
    subjects = (Subject(page, outline(page.html), site) for page in site.pages)
    return tuple(
        Finding(subject.page.address, rule.id, rule.severity, sentence)
        for subject in subjects
        for rule in RULES
        for sentence in rule.check(subject)
    )


def _title(subject: Subject) -> Iterator[str]:
    if not subject.outline.title:
        yield "The page has no title, so browser tabs and search results show its address."


def _description(subject: Subject) -> Iterator[str]:
    if not subject.outline.description:
        yield "The page has no description, so search engines choose an extract themselves."


def _language(subject: Subject) -> Iterator[str]:
    if not subject.outline.language:
        yield "The page does not name its language, so screen readers guess how to pronounce it."


def _alternative_text(subject: Subject) -> Iterator[str]:
    sources = (image.source for image in subject.outline.images if image.alt is None)
    for source in dict.fromkeys(sources):
        yield f"The image {_short(source) or 'without a source'} has no alternative text."


def _heading_order(subject: Subject) -> Iterator[str]:
    levels = subject.outline.headings
    if levels and levels[0] != 1:
        yield f"The first heading is an h{levels[0]}; a page starts with its h1."
    for before, after in pairwise(levels):
        if after > before + 1:
            yield f"An h{after} follows an h{before}; no level should be left out."
            return


def _broken_links(subject: Subject) -> Iterator[str]:
    for href in subject.outline.links:
        target = internal_address(href, subject.page.address, subject.site.origin)
        status = subject.site.answers.get(target) if target else None
        if status is not None and status >= _FIRST_FAILURE:
            yield f"The link to {_short(href)} is broken (status {status})."


def _size(subject: Subject) -> Iterator[str]:
    if subject.page.size > MAX_PAGE_BYTES:
        size, most = subject.page.size // 1000, MAX_PAGE_BYTES // 1000
        yield f"The page is {size:,} kB of HTML; more than {most} kB is slow on a phone."


def _slowness(subject: Subject) -> Iterator[str]:
    if subject.page.seconds > MAX_ANSWER_SECONDS:
        taken, most = subject.page.seconds, MAX_ANSWER_SECONDS
        yield f"The page took {taken:.1f} s to arrive; more than {most:.0f} s drives visitors away."


def _short(text: str) -> str:
    """A URL as a sentence can carry it: one line, no longer than people read."""
    line = "".join(character for character in text if character.isprintable()).strip()
    return line if len(line) <= 80 else f"{line[:77]}..."


RULES: tuple[Rule, ...] = (
    Rule("link-broken", Severity.ERROR, _broken_links),
    Rule("title-missing", Severity.ERROR, _title),
    Rule("language-missing", Severity.WARNING, _language),
    Rule("alt-missing", Severity.WARNING, _alternative_text),
    Rule("heading-order", Severity.NOTICE, _heading_order),
    Rule("description-missing", Severity.NOTICE, _description),
    Rule("page-too-large", Severity.WARNING, _size),
    Rule("answer-slow", Severity.WARNING, _slowness),
)
