"""Reading tables and sections of Markdown pages."""

from __future__ import annotations

import re

from tests.surface.docs_check import ROOT

README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DOCS = ROOT / "docs"

_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")


def reference(name: str) -> str:
    """One page of the reference, by its name."""
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """Each heading (backquotes left out) with what stands below it, lesser headings included."""
    marks = [(m.start(), len(m[1]), m[2]) for m in re.finditer(r"^(#+) (.+)$", text, re.MULTILINE)]
    found = {}
    for index, (start, level, title) in enumerate(marks):
        later = (s for s, other, _ in marks[index + 1 :] if other <= level)
        found[title.replace("`", "")] = text[start : next(later, len(text))]
    return found


def section(text: str, title: str) -> str:
    """What stands below one heading."""
    return sections(text)[title]


def rows(text: str) -> list[list[str]]:
    """The rows of all tables in ``text``, heads left out; each cell without white space around it."""
    found: list[list[str]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        head = number + 1 < len(lines) and re.fullmatch(r"[|\s:-]+", lines[number + 1])
        if line.startswith("|") and not head and not re.fullmatch(r"[|\s:-]+", line):
            found.append([cell.strip() for cell in _CELL.split(line)[1:-1]])
    return found


def first_column(text: str) -> list[str]:
    """The first piece of code in the first cell of each row."""
    return [code[1] for row in rows(text) if (code := _CODE.match(row[0]))]


def codes(text: str) -> list[str]:
    """Every piece of code in ``text``."""
    return _CODE.findall(text)
