"""CHECK constraints made from the closed lists and from the stored form of instants."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint

from outbox import states
from outbox.columns import INSTANT_FORM


def one_of(column: str, words: type[StrEnum]) -> str:
    return f"{column} IN ({', '.join(repr(word.value) for word in words)})"


def check_words(name: str, column: str, words: type[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IS NULL OR {one_of(column, words)}", name=name)


def reasons(of: Mapping[Any, tuple[str, ...]] | None = None) -> str:
    """Each state with its own reasons; ``of`` left out, those of deliveries."""
    table = states.REASONS if of is None else of
    closed = " OR ".join(
        f"(state = '{state}' AND reason IN ({', '.join(repr(str(r)) for r in reasons)}))"
        for state, reasons in table.items()
    )
    without = ", ".join(repr(str(state)) for state in table)
    # A CHECK passes on NULL too, so a missing reason has to be asked for by itself.
    return f"(state IN ({without})) = (reason IS NOT NULL) AND (reason IS NULL OR {closed})"


def forms(*columns: str) -> list[CheckConstraint]:
    """The fixed form, and a day that the calendar has: date() moves any other."""
    return [
        CheckConstraint(
            f"{c} IS NULL OR ({c} GLOB '{INSTANT_FORM}' AND date({c}, '+0 days') IS substr({c}, 1, 10))",
            name=f"{c}_form",
        ).ddl_if(dialect="sqlite")
        for c in columns
    ]


def ranges(*columns: str) -> list[CheckConstraint]:
    """PostgreSQL knows infinity and years that no Python datetime has."""
    return [
        CheckConstraint(
            f"{c} BETWEEN '1000-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'", name=f"{c}_form"
        ).ddl_if(dialect="postgresql")
        for c in columns
    ]
