"""What a rehearsal found, and how it is said. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dispatcher.rehearse.setup import Setup
from dispatcher.unsafe import Finding, spelled

TITLES = ("", "TRIED", "EXPECTED", "HAPPENED")
_GAP = "  "
NO_WEBHOOKS = (
    "Webhooks are not there yet: in place of an event that comes twice, a late answer that comes "
    "twice was played."
)


@dataclass(frozen=True, slots=True)
class Line:
    """One drill that was played."""

    name: str
    tried: str
    expected: tuple[str, ...]
    happened: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether what had to happen is what did."""
        return self.expected == self.happened

    @property
    def verdict(self) -> str:
        """``ok`` or ``MISS``."""
        return "ok" if self.ok else "MISS"


@dataclass(frozen=True, slots=True)
class Report:
    """A whole rehearsal. ``passed``: seconds of time that passed without being waited for."""

    database: str
    account: str
    provider: str
    setup: Setup
    lines: tuple[Line, ...]
    warnings: tuple[Finding, ...]
    passed: float
    seconds: float

    @property
    def misses(self) -> int:
        """How many drills did not go as they must."""
        return sum(not line.ok for line in self.lines)


def head(report: Report) -> str:
    """Which configuration was rehearsed, in one line."""
    return _times(report.setup, f"{report.database} · {report.account} ({report.provider})")


def _times(setup: Setup, start: str) -> str:
    parts = (
        start,
        f"lease {_spelled(setup.lease)}",
        f"poll {_spelled(setup.poll_interval)}",
        f"grace {_spelled(setup.shutdown_grace)}",
        f"{setup.retry_attempts} tries in {_spelled(setup.retry_window)}",
        f"evidence wait {_spelled(setup.evidence_wait)}",
        f"replay margin {_spelled(setup.replay_margin)}",
        f"when unsure {setup.when_unsure.value}",
    )
    return " · ".join(parts)


def tail(report: Report) -> Iterator[str]:
    """What the table does not say."""
    setup = report.setup
    yield (
        f"No drill waits: in the scratch database {_spelled(report.passed)} passed by moving its "
        f"instants. The fakes know a key for {_spelled(setup.key_retention)}; their look-up is "
        f"{_spelled(setup.index_lag)} late."
    )
    yield NO_WEBHOOKS
    for warning in report.warnings:
        yield f"warning: {warning.key}: {warning.text}"
    count = len(report.lines)
    done = f"{count - report.misses} of {count} as expected, in {report.seconds:.1f} s"
    yield f"{done}." if not report.misses else f"{done}: {report.misses} MISSED."


def as_data(report: Report) -> dict[str, Any]:
    """The report for machines; the keys do not change."""
    setup = report.setup
    return {
        "ok": not report.misses,
        "database": report.database,
        "account": report.account,
        "provider": report.provider,
        "seconds": round(report.seconds, 3),
        "times": {
            "lease": setup.lease,
            "poll_interval": setup.poll_interval,
            "shutdown_grace": setup.shutdown_grace,
            "retry_attempts": setup.retry_attempts,
            "retry_window": setup.retry_window,
            "evidence_wait": setup.evidence_wait,
            "replay_margin": setup.replay_margin,
            "when_unsure": setup.when_unsure,
            "key_retention": setup.key_retention,
            "index_lag": setup.index_lag,
            "passed_unwaited": round(report.passed, 3),
        },
        "drills": [
            {
                "name": line.name,
                "tried": line.tried,
                "expected": line.expected,
                "happened": line.happened,
                "ok": line.ok,
                "seconds": round(line.seconds, 3),
            }
            for line in report.lines
        ],
        "warnings": [{"key": each.key, "text": each.text} for each in report.warnings],
        "notes": [NO_WEBHOOKS],
    }


def table(report: Report, width: int | None) -> list[str]:
    """The table, its head first; folded between words where ``width`` cells are too few.

    None: one line for each drill, however long.
    """
    rows = [TITLES, *((line.verdict, line.tried, *_both(line)) for line in report.lines)]
    widths = _widths(rows, width)
    lines = []
    for row in rows:
        cells = [textwrap.wrap(text, size) or [""] for text, size in zip(row, widths, strict=True)]
        for index in range(max(map(len, cells))):
            parts = (cell[index] if index < len(cell) else "" for cell in cells)
            padded = (part.ljust(size) for part, size in zip(parts, widths, strict=True))
            lines.append(_GAP.join(padded).rstrip())
    return lines


def _both(line: Line) -> tuple[str, str]:
    return "; ".join(line.expected), "; ".join(line.happened)


def _widths(rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    natural = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    if width is None or sum(natural) + 3 * len(_GAP) <= width:
        return natural
    first = natural[0]
    room = max(30, width - first - 3 * len(_GAP))
    tried = min(natural[1], room // 3)
    rest = (room - tried) // 2
    return [first, tried, rest, room - tried - rest]


def _spelled(seconds: float) -> str:
    return spelled(timedelta(seconds=seconds))
