"""What a drill is, and the few words in which expectation and outcome are compared. Pure.

Both are said in the same words, phrase by phrase, and compared as text: what a person reads in
the table is exactly what was checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dispatcher.rehearse.stage import Stage
from dispatcher.rehearse.tables import Row
from outbox.states import State, WhenUnsure

_TIMES = ("never", "once", "twice")


@dataclass(frozen=True, slots=True)
class Played:
    """What had to happen, and what did, phrase by phrase."""

    expected: tuple[str, ...]
    happened: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill. ``name`` is what it is asked for by; ``tried`` says what is done to it;
    ``children``: how many processes it needs."""

    name: str
    tried: str
    play: Play
    children: int = 0


Play: TypeAlias = Callable[[Stage], Awaitable[Played]]


def played(*pairs: tuple[str, str]) -> Played:
    """From pairs of (expected, happened)."""
    return Played(tuple(e for e, _ in pairs), tuple(h for _, h in pairs))


def state(row: Row) -> str:
    """A delivery's state for people."""
    return spoken([row.state])


def spoken(states: Iterable[State]) -> str:
    """One word for equal states, else all of them."""
    words = [each.value.replace("_", " ") for each in states]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


def times(verb: str, count: int) -> str:
    """``taken never``, ``taken once``, ``taken 3 times``."""
    return f"{verb} {_TIMES[count]}" if count < len(_TIMES) else f"{verb} {count} times"


def undecided(stage: Stage) -> str:
    """What becomes of doubt that nothing can settle, by the account's ``when_unsure``."""
    return "accepted" if _again(stage) else "held"


def risked(stage: Stage, *, before: int) -> int:
    """How often a message is sent that was sent ``before`` times and is in doubt for good."""
    return before + 1 if _again(stage) else before


def _again(stage: Stage) -> bool:
    return stage.setup.when_unsure is WhenUnsure.SEND_AGAIN
