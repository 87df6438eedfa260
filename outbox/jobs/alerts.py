"""Telling people about runs, by deliveries of the outbox itself: once for each run and cause.

The key of such a delivery is the run's, ``:alert:`` and the cause, so that any number of
processes may find out the same thing. What was told is found by its key; nothing is kept in
memory. "Recovered" follows only what was told before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, Engine

from outbox.errors import OutboxError
from outbox.jobs.events import Alerted, Listener, Trouble
from outbox.jobs.opening import writing
from outbox.jobs.overdue import Overdue, overdue
from outbox.message import Email
from outbox.producer import enqueue
from outbox.states_jobs import RunState
from outbox.store import lateness
from outbox.store.lateness import LateRun
from outbox.store.reads import database_now

FAILED_ONCE: Final = ":alert:failed-once"
OVERDUE: Final = ":alert:overdue"
FAILED: Final = ":alert:failed"
RECOVERED: Final = ":alert:recovered"
"""What the keys of these deliveries end in, behind the key of the run."""

WINDOW: Final = timedelta(days=7)
"""What ended longer ago is nothing to wake anybody for."""

MOST: Final = 100
"""Alerts of a kind that one look writes."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Something to tell. ``command`` is what to type next, for people."""

    key: str
    subject: str
    text: str


def tell(engine: Engine, to: Sequence[str], emit: Listener) -> None:
    """Enqueue what people in ``to`` were not told yet; nothing without addresses.

    Raises RetryTransaction, or the driver's error.
    """
    if not to:
        return
    told = []
    with writing(engine) as connection:
        for alert in _due(connection, database_now(connection)):
            try:
                done = enqueue(
                    connection,
                    Email(to=list(to), subject=alert.subject, text=alert.text),
                    key=alert.key,
                    if_exists="keep",
                )
            except OutboxError as error:
                emit(Trouble(alert.key, str(error)))
                continue
            if done.created:
                told.append(alert.key)
    for key in told:
        emit(Alerted(key))


def _due(connection: Connection, at: datetime) -> Iterator[Alert]:
    since = at - WINDOW
    for run in lateness.failed_once(connection, told=FAILED_ONCE, limit=MOST):
        yield _alert(run, FAILED_ONCE, "failed, and will be tried again")
    for run in lateness.failed(connection, since=since, told=FAILED, limit=MOST):
        words = "failed for good" if run.state is RunState.FAILED else "failed, and is skipped"
        yield _alert(run, FAILED, f"{words} ({run.reason})")
    for late in overdue(connection, at=at, limit=MOST):
        if late.state != RunState.FAILED:
            yield _late(late)
    alarms = (FAILED_ONCE, OVERDUE, FAILED)
    for run in lateness.recovered(
        connection, since=since, alarms=alarms, told=RECOVERED, limit=MOST
    ):
        yield _alert(run, RECOVERED, "is complete now")


def _alert(run: LateRun, ending: str, what: str) -> Alert:
    lines = [f"{run.key} {what}."]
    if run.last_error:
        lines.append(f"Attempt {run.attempts}: {run.last_error}")
    return _written(run, ending, what, lines)


def _late(run: Overdue) -> Alert:
    state = run.state or "nothing has planned it"
    lines = [
        f"{run.key} is overdue since {run.overdue_at:%Y-%m-%d %H:%M:%SZ}: {state}.",
        f"It was due at {run.due_at:%Y-%m-%d %H:%M:%SZ}.",
    ]
    if run.more:
        lines.append(f"{run.more} periods before it are overdue, too.")
    return _written(run, OVERDUE, "is overdue", lines)


def _written(run: LateRun | Overdue, ending: str, what: str, lines: list[str]) -> Alert:
    name = f"{run.job} {run.subject} {run.label}"
    text = "\n".join([*lines, "", f"postroom jobs explain {name}", ""])
    return Alert(run.key + ending, f"{name} {what}"[:300], text)
