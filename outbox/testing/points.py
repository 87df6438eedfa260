"""Where a run can be killed. Pure.

A crash is only interesting for what is in the database when it comes, and that changes with
statements. So a point lies before a statement, or behind the last one: between any two of
them, whoever runs them, on whatever connection. ``COMMIT`` and ``BEGIN`` are statements too.
Some points have a name as well, because people think of them by name.

Which statement is which is read from its text. The three that are told apart are ours:
only a claim inserts an attempt, only the guard of ``run.finish`` sets nothing but
``updated_at``, and only the completion of a run sets its ``duration``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

AFTER_CLAIM: Final = "after-claim"
BEFORE_FINISH: Final = "before-finish"
BEFORE_COMMIT: Final = "before-commit"
AFTER_COMMIT: Final = "after-commit"
END: Final = "end"

NAMES: Final = {
    AFTER_CLAIM: "the run is claimed, and nothing else has happened",
    BEFORE_FINISH: "the work is done, and nothing of its results is written",
    BEFORE_COMMIT: "everything is written, and nothing is committed",
    AFTER_COMMIT: "everything is committed, and nothing more has happened",
    END: "everything is over, but the process has not ended",
}
"""The points that have a name, in the order in which a run comes to them."""

STATEMENT: Final = re.compile(r"statement:([1-9]\d{0,5})")
SHOWN_CHARACTERS: Final = 70

_WORD: Final = re.compile(r"(?:\s+|--[^\n]*\n|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)
_CLAIM: Final = re.compile(r"INSERT INTO outbox_run_attempts\b")
_GUARD: Final = re.compile(r"UPDATE outbox_runs SET updated_at=")
_COMPLETE: Final = re.compile(r"UPDATE outbox_runs SET .*\bduration=", re.DOTALL)
_SHORT: Final = (
    re.compile(r"(?is)(INSERT (?:OR \w+ )?INTO \S+?)[\s(]"),
    re.compile(r"(?is)(UPDATE (?:OR \w+ )?\S+)\s"),
    re.compile(r"(?is)(DELETE FROM \S+)"),
)
_SELECT: Final = re.compile(r"(?is)SELECT\b.*?\bFROM\s+([\w\".]+)")


class Kind(Enum):
    """What a statement is to a run."""

    CLAIM = "claim"
    GUARD = "guard"
    COMPLETE = "complete"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SETTING = "setting"
    OTHER = "other"


def kind_of(text: str) -> Kind:
    """What a statement is to a run, from its text."""
    match first_word(text):
        case "COMMIT" | "END":
            return Kind.COMMIT
        case "ROLLBACK" if " TO " not in f" {' '.join(text.upper().split())} ":
            return Kind.ROLLBACK
        case "PRAGMA":
            return Kind.SETTING
        case "INSERT" if _CLAIM.match(text):
            return Kind.CLAIM
        case "UPDATE" if _GUARD.match(text):
            return Kind.GUARD
        case "UPDATE" if _COMPLETE.match(text):
            return Kind.COMPLETE
        case _:
            return Kind.OTHER


def first_word(text: str) -> str:
    """The first word of a statement in capitals; comments are no words."""
    found = _WORD.match(text)
    return found[1].upper() if found else ""


def shown(text: str) -> str:
    """A statement in a few words, for people: what it does to which table."""
    line = " ".join(text.split())
    for form in _SHORT:
        if found := form.match(f"{line} "):
            return found[1]
    if (found := _SELECT.match(line)) is not None:
        return f"SELECT … FROM {found[1]}"  # noqa: S608  (it is shown, and never run)
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True, repr=False)
class CrashPoint:
    """A point of a run at which it can be killed; ``crash_at`` takes it as it is.

    number: from 1; it lies before the statement of that number.
    before: that statement in a few words.
    names: what else it is called (``before-commit``), usually nothing.
    """

    number: int
    before: str
    names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``statement:12``."""
        return f"statement:{self.number}"

    def is_called(self, name: str) -> bool:
        """Whether ``name`` means this point."""
        return name == self.name or name in self.names

    def __str__(self) -> str:
        also = f" ({', '.join(self.names)})" if self.names else ""
        return f"{self.name}{also}, before {self.before}"

    __repr__ = __str__


class Route:
    """The statements of one run, one after the other, and what each point is called."""

    def __init__(self) -> None:
        self.points: list[CrashPoint] = []
        self._claiming: set[int] = set()
        self._completing: set[int] = set()
        self._next: tuple[str, ...] = ()

    def before(self, connection: int, text: str) -> CrashPoint:
        """The point before this statement on this connection."""
        names, self._next = self._next, ()
        match kind_of(text):
            case Kind.CLAIM:
                self._claiming.add(connection)
            case Kind.COMPLETE:
                self._completing.add(connection)
            case Kind.GUARD:
                names += (BEFORE_FINISH,)
            case Kind.COMMIT:
                names += self._commit(connection)
            case _:
                pass
        return self._point(shown(text), names)

    def _commit(self, connection: int) -> tuple[str, ...]:
        names: tuple[str, ...] = ()
        if connection in self._claiming:
            self._next = (AFTER_CLAIM,)
        if connection in self._completing:
            names, self._next = (BEFORE_COMMIT,), (AFTER_COMMIT,)
        self.rolled_back(connection)
        return names

    def rolled_back(self, connection: int) -> None:
        """What this connection had not committed is gone."""
        self._claiming.discard(connection)
        self._completing.discard(connection)

    def end(self) -> CrashPoint:
        """The point behind the last statement."""
        names, self._next = (*self._next, END), ()
        return self._point("the process ends", names)

    def _point(self, before: str, names: tuple[str, ...]) -> CrashPoint:
        point = CrashPoint(len(self.points) + 1, before, names)
        self.points.append(point)
        return point


def target(crash_at: CrashPoint | str) -> str:
    """The name that is meant. Raises ValueError for what is no point of any run."""
    name = crash_at.name if isinstance(crash_at, CrashPoint) else crash_at
    if name in NAMES or STATEMENT.fullmatch(name):
        return name
    raise ValueError(
        f'crash_at: {name!r} is no point of a run; use {", ".join(NAMES)}, or "statement:N"'
    )


def never_reached(name: str, points: list[CrashPoint]) -> str:
    """Why a run was not killed where it was to be: a text that names where it could have been."""
    lines = "\n".join(f"  {point}" for point in points)
    return f"crash_at={name!r} was never reached; the points of this run were\n{lines}"
