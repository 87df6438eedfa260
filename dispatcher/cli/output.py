"""Printing: tables that fit, text that cannot harm a terminal, JSON that does not change.

On a terminal a table fits its width: the columns that may be long are folded,
never cut, since a key is there to be copied. Piped, every row is one line,
nothing is folded, and there is no colour.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]).*?(?:\x07|\x1b\\|\x9c)"  # OSC, DCS: titles, clipboard
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 and C1, what reorders text, and what no encoder takes."""

_NARROWEST = 16
"""Cells below which a folded column is no longer readable."""


@dataclass(frozen=True, slots=True)
class Column:
    """``right`` aligned for numbers; ``folds`` over several lines where there is no room;
    ``spare`` columns are left out on a terminal too narrow for the folded ones."""

    title: str
    right: bool = False
    folds: bool = False
    spare: bool = False


def cleaned(text: str) -> str:
    """``text`` without anything that a terminal would obey."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _SEQUENCE.sub("", text))


def terminal_width() -> int | None:
    """The width of the terminal, None when the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str = "", *, style: str = "") -> None:
    """Print one line; ``style`` (rich's words) is used on a terminal only."""
    line = cleaned(text)
    if not style or not sys.stdout.isatty():
        print(line)
        return
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False, soft_wrap=True).print(Text(line, style=style))


def say_note(text: str) -> None:
    """Print one line beside the output, where it is in nobody's way."""
    sys.stderr.write(f"postroom: {cleaned(text)}\n")


def say_json(value: Any) -> None:
    """Print ``value`` as JSON, in ASCII: a control character cannot leave its escape."""
    print(json.dumps(plain(value), indent=2))


def plain(value: Any) -> Any:
    """Frozen data as JSON values: instants as fixed-width UTC text, members by their names."""
    from outbox.instants import format_instant

    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return str(value)
        case datetime():
            return format_instant(value)
        case Mapping():
            return {str(plain(key)): plain(each) for key, each in value.items()}
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case _:
            return str(value)


# --------------------------------------------------------------------------- #
# Tables
# --------------------------------------------------------------------------- #


def say_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    group: tuple[int, int, str] | None = None,
) -> None:
    """Print a table; ``group`` (first column, last column, title) puts one title over several."""
    clean = [list(map(cleaned, row)) for row in rows]
    width = terminal_width()
    if group is not None:
        widths = _widths(columns, clean, width)
        say(_over(widths, *group, rule="─" if width is not None else " "), style="dim")
    head, *lines = layout(columns, clean, width)
    say(head, style="bold")
    for line in lines:
        print(line)


def _over(widths: Sequence[int], first: int, last: int, title: str, *, rule: str) -> str:
    start = sum(widths[:first]) + 2 * first
    size = sum(widths[first : last + 1]) + 2 * (last - first)
    return " " * start + f" {title} ".center(size, rule).rstrip()


def layout(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None
) -> list[str]:
    """The lines of a table, its head first. ``width`` in cells; None: as wide as it is."""
    if width is not None and any(column.spare for column in columns):
        kept = [i for i, column in enumerate(columns) if not column.spare]
        if not _comfortable(columns, rows, width):
            columns = [columns[i] for i in kept]
            rows = [[row[i] for i in kept] for row in rows]
    widths = _widths(columns, rows, width)
    head = _lines([column.title for column in columns], columns, widths)
    return head + [line for row in rows for line in _lines(row, columns, widths)]


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [
        max([cell_len(column.title), *(cell_len(row[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]


def _comfortable(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether there is room for the spare columns beside readable other ones."""
    natural = _natural(columns, rows)
    least = [
        min(n, _NARROWEST if column.spare else 2 * _NARROWEST) if column.folds else n
        for n, column in zip(natural, columns, strict=True)
    ]
    return sum(least) + 2 * (len(columns) - 1) <= width


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None
) -> list[int]:
    """Natural widths; where that is too much, the folded columns share what is left: first
    what is spare gives way, then the widest."""
    widths = _natural(columns, rows)
    if width is None:
        return widths
    folds = [i for i, column in enumerate(columns) if column.folds]
    left = width - 2 * (len(columns) - 1) - sum(widths) + sum(widths[i] for i in folds)
    others = [i for i in folds if not columns[i].spare]
    for i in (i for i in folds if columns[i].spare):
        widths[i] = min(widths[i], max(_NARROWEST, left - sum(widths[j] for j in others)))
        left -= widths[i]
    for done, i in enumerate(sorted(others, key=widths.__getitem__)):
        widths[i] = min(widths[i], max(_NARROWEST, left // (len(others) - done)))
        left -= widths[i]
    return widths


def _lines(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    cells = [_fold(text, width) for text, width in zip(row, widths, strict=True)]
    height = max(len(cell) for cell in cells)
    lines = []
    for line in range(height):
        parts = [
            _pad(cell[line] if line < len(cell) else "", width, right=column.right)
            for cell, column, width in zip(cells, columns, widths, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def _pad(text: str, width: int, *, right: bool) -> str:
    from rich.cells import cell_len

    space = " " * max(0, width - cell_len(text))
    return space + text if right else text + space


def _fold(text: str, width: int) -> list[str]:
    """``text`` in pieces of at most ``width`` cells, broken anywhere: nothing is added
    or lost, so that what was folded can be copied together again."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return [text]
    pieces, piece, size = [], "", 0
    for character in text:
        cells = cell_len(character)
        if size + cells > width and piece:
            pieces.append(piece)
            piece, size = "", 0
        piece += character
        size += cells
    return [*pieces, piece]


# --------------------------------------------------------------------------- #
# Labelled text
# --------------------------------------------------------------------------- #


def say_pairs(pairs: Iterable[tuple[str, str]], *, label_width: int, indent: int = 0) -> None:
    """Print labels with text beside them; on a terminal the text is wrapped beneath itself."""
    for label, text in pairs:
        for line in paired(cleaned(label), cleaned(text), label_width, indent, terminal_width()):
            print(line)


def paired(label: str, text: str, label_width: int, indent: int, width: int | None) -> list[str]:
    """The lines of one label and its text."""
    import textwrap

    start = " " * indent + (label.ljust(label_width - 1) + " " if label_width else "")
    if width is None:
        return [(start + text).rstrip()]
    room = max(20, width - len(start))
    wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    gap = " " * len(start)
    return [((start if i == 0 else gap) + line).rstrip() for i, line in enumerate(wrapped)]
