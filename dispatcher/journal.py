"""Events as lines for a person who looks at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from dispatcher.events import (
    AccountPaused,
    DatabaseAway,
    Event,
    LeaseLost,
    Listener,
    Recovered,
    RoundSplit,
    Settled,
    Started,
    Stopping,
)
from outbox.instants import format_instant
from outbox.states import State
from outbox.texts import cleaned


def log_lines(write: Callable[[str], None]) -> Listener:
    """A listener that writes one line for each event."""
    return lambda event: write(cleaned(line(event), 1000) or "")


def line(event: Event) -> str:
    """``event`` in one line."""
    match event:
        case Started(owner, accounts, slots):
            return f"dispatching for {', '.join(accounts)} as {owner}, {slots} slots"
        case Stopping(in_flight, grace):
            return f"stopping: {in_flight} in flight, at most {grace:g} s for them"
        case Settled():
            return _settled(event)
        case LeaseLost(key, attempt, outcome):
            return f"{key}: attempt {attempt} lost its lease; its answer ({outcome}) is kept"
        case Recovered(key, phase, state):
            return f"{key}: lease lapsed while {phase} -> {state}"
        case AccountPaused(account, reason, until, detail):
            return f"account {account} paused until {format_instant(until)}: {reason} {detail}".rstrip()
        case DatabaseAway(error):
            return f"the database is away, trying again: {error}"
        case RoundSplit(error):
            return f"a round failed and is done row by row: {error}"
        case _:
            assert_never(event)


def _settled(event: Settled) -> str:
    words = f"{event.key}: {event.account} attempt {event.attempt} {event.outcome} -> {event.state}"
    if event.reason:
        words += f" ({event.reason})"
    if event.detail:
        words += f": {event.detail}"
    if event.state is State.PENDING:
        words += f"; due {format_instant(event.due_at)}"
    return words
