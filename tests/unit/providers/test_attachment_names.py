"""The name under which an attachment travels."""

from __future__ import annotations

import pytest

from providers.attachment_names import attachment_name
from providers.encoding import InvalidField
from tests.unit.providers.test_headers import INJECTIONS


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("C:\\Users\\ana\\report.pdf", "report.pdf"),
        ("\\\\host\\share\\report.pdf", "report.pdf"),
        ("..\\..\\boot.ini", "boot.ini"),
        ('a"b\\c; d=e.pdf', 'a"b\\c; d=e.pdf'),
        ("Prüfbericht Q1 – 10%.pdf", "Prüfbericht Q1 – 10%.pdf"),
        (" report.pdf ", "report.pdf"),
        (".profile", ".profile"),
    ],
)
def test_only_the_base_name_travels(name: str, base: str) -> None:
    """B14: folders are taken off, everything else of the name stays."""
    assert attachment_name(name, 0, "application/pdf") == base


@pytest.mark.parametrize("name", ["", " ", "/", "a/", "..", "a/..", "C:\\"])
def test_no_name_is_made_up_from_the_type(name: str) -> None:
    """B14: an attachment without a name gets one with its number and a fitting ending."""
    assert attachment_name(name, 0, "application/pdf") == "attachment-1.pdf"
    assert attachment_name(name, 2, "TEXT/CSV") == "attachment-3.csv"
    assert attachment_name(name, 1, "application/x-unknown") == "attachment-2.bin"


@pytest.mark.parametrize("name", [*INJECTIONS, "x.pdf\r\nX-Evil: 1", "a\r\n/passwd"])
def test_names_with_line_breaks_are_refused(name: str) -> None:
    """B09, B14: a name that no header may carry is refused, and the attachment is named."""
    with pytest.raises(InvalidField, match=r"^attachments\[3\]\.filename: holds U\+"):
        attachment_name(name, 3, "application/pdf")
