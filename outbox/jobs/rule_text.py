"""A rule as one line of text: ``weekly first=sun at=08:00 timezone=Europe/Berlin``.

The kind, for cron the five fields, and then every value that is not the default, in a
fixed order. So a rule has one text, which can be stored, compared and hashed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time, timedelta
from typing import Final

from outbox.jobs.errors import InvalidRule
from outbox.jobs.rule_values import as_text
from outbox.shapes import kind as kind_of
from outbox.shapes import shown

_COUNT: Final = ("every", "anchor")
_DUE: Final = ("at", "due", "repeated", "timezone")

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "hourly": ("minute", *_COUNT, "due", "timezone"),
    "daily": ("starts", *_COUNT, *_DUE),
    "weekly": ("first", "starts", *_COUNT, *_DUE),
    "monthly": ("day", "short_months", "starts", *_COUNT, *_DUE),
    "quarterly": ("month", "day", "short_months", "starts", *_COUNT, *_DUE),
    "yearly": ("month", "day", "short_months", "starts", *_COUNT, *_DUE),
    "cron": ("repeated", "timezone"),
}
"""The kinds of rule, and the values of each in the order of its text."""

DEFAULTS: Final[Mapping[str, object]] = {
    "anchor": None,
    "at": None,
    "day": 1,
    "due": timedelta(),
    "every": 1,
    "first": "mon",
    "minute": 0,
    "month": 1,
    "repeated": "first",
    "short_months": "last",
    "starts": time(),
    "timezone": None,
}
"""What is left out of a text."""


def written(kind: str, rule: object) -> str:
    """The text of a rule whose values are attributes of ``rule``."""
    words = [kind]
    if kind == "cron":
        words.append(getattr(rule, "expression"))  # noqa: B009  (any rule's attributes)
    for key in KEYS[kind]:
        value = getattr(rule, key)
        if value != DEFAULTS[key]:
            words.append(f"{key}={as_text(value)}")
    return " ".join(words)


def read(text: str) -> tuple[str, str, dict[str, str]]:
    """Kind, cron expression ("" for other kinds) and values of a text.

    Raises InvalidRule for an unknown kind, or words that are no ``name=value``.
    """
    if not isinstance(text, str):
        raise InvalidRule(f"a rule is text, not {kind_of(text)}")
    kind, *words = text.split() or [""]
    check_kind(kind)
    fields = 0
    if kind == "cron":
        fields = next((n for n, word in enumerate(words) if "=" in word), len(words))
    values: dict[str, str] = {}
    for word in words[fields:]:
        name, equals, value = word.partition("=")
        if not equals or name in values:
            raise InvalidRule(f"rule {shown(text)}: {shown(word)} is no new name=value")
        values[name] = value
    return kind, " ".join(words[:fields]), values


def check_kind(kind: str) -> None:
    """Raises InvalidRule for a kind that does not exist."""
    if kind not in KEYS:
        raise InvalidRule(f"period: {shown(kind)} is none of {', '.join(KEYS)}")


def check_names(kind: str, values: Mapping[str, object]) -> None:
    """Raises InvalidRule for values that a kind of rule does not have."""
    for name in values:
        if name not in KEYS[kind]:
            raise InvalidRule(
                f"{name}: a rule that is {kind} has no such value; it has {', '.join(KEYS[kind])}"
            )
