"""What somebody typed to select deliveries, checked against the closed lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dispatcher.cli.options import WrongUsage
from dispatcher.cli.words import parse_instant

if TYPE_CHECKING:
    from outbox.states import State


def known_states(words: Sequence[str]) -> tuple[State, ...]:
    """States by name. Raises WrongUsage that lists them."""
    from outbox.states import State

    known = [state.value for state in State]
    for word in words:
        if word not in known:
            raise WrongUsage(f'--state: "{word}" is none of {", ".join(known)}')
    return tuple(State(word) for word in words)


def known_reason(word: str | None, option: str) -> str | None:
    """A reason of the closed lists. Raises WrongUsage that lists them."""
    from outbox.states import REASONS

    known = sorted({reason for reasons in REASONS.values() for reason in reasons})
    if word is not None and word not in known:
        raise WrongUsage(f'{option}: "{word}" is none of {", ".join(known)}')
    return word


def since(text: str | None) -> datetime | None:
    """An instant in the past, or a duration back from now."""
    return _instant("--since", text, ahead=False)


def until(option: str, text: str | None) -> datetime | None:
    """An instant to come, or a duration from now."""
    return _instant(option, text, ahead=True)


def _instant(option: str, text: str | None, *, ahead: bool) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_instant(text, now=datetime.now(UTC), ahead=ahead)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from None
