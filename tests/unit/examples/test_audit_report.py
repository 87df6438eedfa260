"""The report of a website audit: what is mailed, byte for byte the same for the same findings."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from examples.website_audit.customers import Customer
from examples.website_audit.findings import Finding, Severity
from examples.website_audit.report import (
    MAX_LISTED,
    Report,
    csv_file,
    email,
    html_body,
    plural,
    text_body,
)

CUSTOMER = Customer("site-42", "Mill & Lane <Bakery>", "/pages", "ana@example.org", "Europe/Lisbon")
FINDINGS = (
    Finding("/about.html", "link-broken", Severity.ERROR, 'The link to <b>&"x" is broken.'),
    Finding("/about.html", "language-missing", Severity.WARNING, "No language."),
    Finding("/index.html", "alt-missing", Severity.WARNING, "Kein Alternativtext: Bäckerei."),
)
REPORT = Report(CUSTOMER, CUSTOMER.weeks.period("2026-W48"), 8, FINDINGS)

PROGRAM = """
import hashlib
from examples.website_audit.customers import examples
from examples.website_audit.fetch import collect
from examples.website_audit.findings import find
from examples.website_audit.report import Report, csv_file, html_body, text_body
for customer in examples():
    site = collect(customer.site)
    audited = customer.weeks.period("2026-W48")
    report = Report(customer, audited, len(site.pages), find(site))
    bodies = text_body(report).encode() + html_body(report).encode() + csv_file(report)
    print(hashlib.sha256(bodies).hexdigest())
"""


class Reader(HTMLParser):
    """What a mail client shows: the text, and what it would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.loads: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [tag] * (tag in ("b", "img", "link", "script", "style"))
        self.loads += [name for name, _ in attrs if name in ("src", "href", "background")]


def test_the_mail_names_week_site_and_count() -> None:
    """Subject and address say at once what this is and for whom."""
    mail = email(REPORT)
    assert mail.subject == "Website audit 2026-W48: 3 findings at Mill & Lane <Bakery>"
    assert "3 findings: 1 error, 2 warnings." in text_body(REPORT)
    assert "23 to 29 November 2026" in text_body(REPORT)


def test_the_text_lists_findings_under_their_page() -> None:
    """A page is named once, in order, with its findings indented below it."""
    lines = text_body(REPORT).splitlines()
    start = lines.index("/about.html")
    assert lines[start + 1 : start + 5] == [
        '  error    The link to <b>&"x" is broken.',
        "  warning  No language.",
        "",
        "/index.html",
    ]


def test_the_html_says_the_same_and_loads_nothing() -> None:
    """Text from a website is shown as text, and no picture, script or style comes from outside."""
    reader = Reader(html_body(REPORT))
    assert reader.loads == []
    for finding in FINDINGS:
        assert finding.sentence in reader.text
    assert "Mill & Lane <Bakery>" in reader.text


def test_the_csv_holds_every_finding_exactly() -> None:
    """The attached file reads back to the findings, however many the mail shows."""
    many = replace(REPORT, findings=FINDINGS * 40)
    rows = list(csv.reader(io.StringIO(csv_file(many).decode("utf-8-sig"))))
    assert rows[0] == ["page", "rule", "severity", "finding"]
    assert [(row[0], row[1], row[3]) for row in rows[1:]] == [
        (finding.page, finding.rule, finding.sentence) for finding in many.findings
    ]


def test_a_long_list_is_cut_in_the_mail_and_says_so() -> None:
    """The mail stays readable; it says how many more findings the file has."""
    many = replace(REPORT, findings=FINDINGS[:1] * (MAX_LISTED + 2))
    for body in (text_body(many), html_body(many)):
        assert body.count("is broken.") == MAX_LISTED
        assert "2 more than this list" in body


def test_a_site_without_findings_gets_a_mail_too() -> None:
    """Silence could mean that nothing ran, so a clean site is told that it is clean."""
    clean = replace(REPORT, findings=())
    assert email(clean).subject.startswith("Website audit 2026-W48: nothing to mend")
    assert "all 8 checks passed" in text_body(clean)


def test_what_was_left_out_is_said() -> None:
    """A report about a part of a site does not pass as one about the whole."""
    assert "Left out" not in text_body(REPORT)
    assert "1 address." in text_body(replace(REPORT, left_out=1))
    assert "9 addresses." in text_body(replace(REPORT, left_out=9))


@pytest.mark.parametrize(
    ("label", "days"),
    [
        ("2026-W48", "23 to 29 November 2026"),
        ("2026-W49", "30 November to 6 December 2026"),
        ("2026-W53", "28 December 2026 to 3 January 2027"),
    ],
)
def test_the_days_are_named_as_often_as_needed(label: str, days: str) -> None:
    """Month and year appear once where both days share them."""
    assert days in text_body(replace(REPORT, week=CUSTOMER.weeks.period(label)))


@pytest.mark.parametrize(
    ("count", "thing", "text"),
    [(1, "page", "1 page"), (0, "delivery", "0 deliveries"), (1200, "address", "1,200 addresses")],
)
def test_counts_read_as_english(count: int, thing: str, text: str) -> None:
    """One thing, two things."""
    assert plural(count, thing) == text


def test_another_process_writes_the_same_bytes() -> None:
    """Neither hash seeds, locale nor time zone of a process change the report of a site."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **settings},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for settings in (
            {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
            {"PYTHONHASHSEED": "2", "TZ": "Pacific/Auckland", "LC_ALL": "C"},
        )
    }
    assert len(outputs) == 1
