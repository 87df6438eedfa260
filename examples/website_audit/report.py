"""From findings to what is written and what is mailed. Pure: the same input gives the same bytes.

That matters beyond tidiness: a delivery key that is used again must come with
the same message, so a report must not contain the moment it was made.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from itertools import groupby
from zoneinfo import ZoneInfo

from examples.website_audit.customers import Customer
from examples.website_audit.findings import RULES, Finding, Severity
from outbox import Attachment, Email
from outbox.periods import Period

MAX_LISTED = 40
"""Findings shown in the mail itself; all of them are in the attached file."""

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)

_PLURALS = {"ry": "ries", "ss": "sses"}

_COLOURS = {
    Severity.ERROR: ("#8c1d18", "#fbe9e7"),
    Severity.WARNING: ("#7a4d00", "#fff3d6"),
    Severity.NOTICE: ("#37474f", "#eceff1"),
}
"""Text and background of a severity's label; each pair has a contrast above 7 to 1."""

_FONT = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"


@dataclass(frozen=True)
class Report:
    """One customer's audit of one week."""

    customer: Customer
    week: Period
    pages: int
    findings: tuple[Finding, ...]
    left_out: int = 0
    """Addresses that were not looked at because a limit was reached."""


def email(report: Report) -> Email:
    """The mail to the site's owner; the sender is the configured one."""
    return Email(
        to=report.customer.owner,
        subject=f"Website audit {report.week.label}: {_title(report)}",
        text=text_body(report),
        html=html_body(report),
        attachments=[Attachment("findings.csv", csv_file(report), "text/csv")],
        auto_submitted="auto-generated",
        tags=["website-audit"],
    )


def csv_file(report: Report) -> bytes:
    """Every finding as CSV (RFC 4180), in UTF-8 with the mark that spreadsheets look for."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["page", "rule", "severity", "finding"])
    for finding in report.findings:
        writer.writerow([finding.page, finding.rule, finding.severity, finding.sentence])
    return text.getvalue().encode("utf-8-sig")


def text_body(report: Report) -> str:
    """The summary for readers of plain text."""
    lines = [f"Website audit of {report.customer.name}", _days(report), "", *_summary(report)]
    for page, findings in _by_page(report):
        lines += ["", page, *(f"  {found.severity:<8} {found.sentence}" for found in findings)]
    return "\n".join([*lines, "", *_closing(report), ""])


def html_body(report: Report) -> str:
    """The summary for everybody else: one table and inline styles, which every mail client draws.

    It loads nothing from anywhere: no picture, no font, no style sheet.
    """
    name = escape(report.customer.name)
    parts = [
        f'<h1 style="margin:0;font-size:22px;line-height:28px">{name}</h1>',
        f'<p style="margin:4px 0 20px;color:#5f6b73">Website audit, {_days(report)}</p>',
        *(f'<p style="margin:0 0 8px">{escape(line)}</p>' for line in _summary(report)),
        *(_page_section(page, findings) for page, findings in _by_page(report)),
        *(
            f'<p style="margin:24px 0 0;color:#5f6b73;font-size:13px">{escape(line)}</p>'
            for line in _closing(report)
        ),
    ]
    return _FRAME.format(
        title=escape(f"Website audit {report.week.label}"),
        font=_FONT,
        body="\n".join(parts),
    )


def plural(count: int, thing: str) -> str:
    """``1 page``, ``2 pages``, ``2 deliveries``."""
    if count == 1:
        return f"1 {thing}"
    stem, ending = next((rule for rule in _PLURALS.items() if thing.endswith(rule[0])), ("", "s"))
    return f"{count:,} {thing.removesuffix(stem)}{ending}"


def _title(report: Report) -> str:
    found = plural(len(report.findings), "finding") if report.findings else "nothing to mend"
    return f"{found} at {report.customer.name}"


def _days(report: Report) -> str:
    """``23 to 29 November 2026``, with months and years named as often as needed."""
    zone = ZoneInfo(report.customer.timezone)
    first = report.week.start.astimezone(zone).date()
    last = (report.week.end - timedelta(seconds=1)).astimezone(zone).date()
    begin = f"{first.day}"
    if first.month != last.month:
        begin = _day(first) if first.year != last.year else f"{first.day} {_month(first)}"
    return f"{begin} to {_day(last)}"


def _day(day: date) -> str:
    return f"{day.day} {_month(day)} {day.year}"


def _month(day: date) -> str:
    return _MONTHS[day.month - 1]


def _summary(report: Report) -> Iterator[str]:
    counts = Counter(finding.severity for finding in report.findings)
    kinds = ", ".join(plural(counts[kind], kind) for kind in Severity if counts[kind])
    if kinds:
        total = plural(len(report.findings), "finding")
        yield f"{plural(report.pages, 'page')} read, {total}: {kinds}."
    else:
        pages = plural(report.pages, "page")
        yield f"{pages} read, nothing to mend: all {len(RULES)} checks passed."
    if report.left_out:
        addresses = plural(report.left_out, "address")
        yield f"Left out, to keep within the limits of one audit: {addresses}."


def _closing(report: Report) -> Iterator[str]:
    more = len(report.findings) - MAX_LISTED
    if more > 0:
        yield f"The attached findings.csv has all of them, {more:,} more than this list."
    elif report.findings:
        yield "The same list is attached as findings.csv."
    yield f"Week {report.week.label}, counted in {report.customer.timezone}."


def _by_page(report: Report) -> Iterator[tuple[str, list[Finding]]]:
    listed = report.findings[:MAX_LISTED]
    for page, findings in groupby(listed, key=lambda finding: finding.page):
        yield page, list(findings)


def _page_section(page: str, findings: list[Finding]) -> str:
    rows = "\n".join(_row(finding) for finding in findings)
    return (
        f'<h2 style="margin:24px 0 8px;font-size:16px;line-height:22px">{escape(page)}</h2>\n'
        '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0" '
        f'style="border-top:1px solid #dfe3e6">\n{rows}\n</table>'
    )


def _row(finding: Finding) -> str:
    ink, paper = _COLOURS[finding.severity]
    label = (
        f'<span style="padding:2px 8px;border-radius:4px;font-size:12px;color:{ink};'
        f'background-color:{paper}">{finding.severity}</span>'
    )
    cell = "padding:8px 0;border-bottom:1px solid #dfe3e6;vertical-align:top"
    return (
        f'<tr><td width="84" style="{cell}">{label}</td>'
        f'<td style="{cell}">{escape(finding.sentence)}</td></tr>'
    )


_FRAME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
</head>
<body style="margin:0;padding:0;background-color:#f2f4f5">
<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0">
<tr><td align="center" style="padding:24px 12px">
<table role="presentation" width="600" cellpadding="0" cellspacing="0" border="0" \
style="width:100%;max-width:600px;background-color:#ffffff;border-radius:8px">
<tr><td style="padding:28px;{font};font-size:15px;line-height:22px;color:#1c2429">
{body}
</td></tr>
</table>
</td></tr>
</table>
</body>
</html>
"""
