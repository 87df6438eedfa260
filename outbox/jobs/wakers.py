"""Planning and running what is due: once (``tick``), or on and on (``work``).

Whoever wakes us is only a hint. A tick at the wrong moment finds nothing; two at once share
the work; one that never comes is made up for by the next, as each job's policy says. So cron,
timers, a scheduler in the cloud and a loop of our own may all wake us, and all at once.

A tick works on what was due when it began. It ends when all of that is done, is waiting for a
time that has not come, or is in the hands of somebody else.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from outbox import migrations
from outbox.database import reading
from outbox.errors import RetryTransaction
from outbox.jobs import alerts, plan
from outbox.jobs.backfill_rounds import plan_round
from outbox.jobs.catalog import Catalog
from outbox.jobs.crew import Crew
from outbox.jobs.events import Event, Listener, RunEnded, RunRescued, Trouble
from outbox.jobs.open_run import owner
from outbox.jobs.opening import writing
from outbox.states_jobs import RunState
from outbox.store import run_rescues
from outbox.store.reads import database_now

NOTICE = timedelta(seconds=60)
"""How often a loop asks the code for its subjects, and notices changed rules and zones."""

LOOK_AROUND = timedelta(seconds=10)
"""How often a loop rescues runs, and sees whether people have to be told."""

SAY_AGAIN = timedelta(minutes=10)
"""How often a loop tells of a trouble that is still there."""

_HOUR = 3600.0

LANE = timedelta(seconds=45)
"""For how long a tick without a budget starts runs of backfills. The next tick goes on, and may
find live runs that have come due meanwhile."""

LONGEST_PAUSE = 30.0
"""Seconds between two tries at most, while the database is away."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a process works on jobs. ``alerts_to``: addresses that are told what goes wrong."""

    concurrency: int = 4
    poll_interval: timedelta = timedelta(seconds=1)
    shutdown_grace: timedelta = timedelta(seconds=30)
    alerts_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a tick did. ``skipped`` counts periods. ``retry``: failed, to be tried again;
    ``failed``: for good. ``troubles``: what a person has to put right, a schedule or a job's
    subjects."""

    at: datetime
    planned: int = 0
    skipped: int = 0
    succeeded: int = 0
    retry: int = 0
    failed: int = 0
    given_back: int = 0
    troubles: int = 0

    @property
    def needs_a_person(self) -> bool:
        """Whether a run failed for good, or something has to be put right."""
        return self.failed > 0 or self.troubles > 0


class Stop:
    """Asks a tick or a loop to end. ``set`` may be called by a signal handler."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._then: list[Callable[[], None]] = []

    def set(self) -> None:
        """Stop."""
        self._event.set()
        for each in self._then:
            each()

    def also(self, then: Callable[[], None]) -> None:
        """Call this, too."""
        self._then.append(then)

    @property
    def asked(self) -> bool:
        """Whether it was."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it is asked; whether it was."""
        return self._event.wait(seconds)


@dataclass(slots=True)
class _Tally:
    """Counts what is emitted, and passes it on; the same trouble once."""

    emit: Listener
    ended: Counter[str] = field(default_factory=Counter)
    troubles: set[Trouble] = field(default_factory=set)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Trouble):
            if event in self.troubles:
                return
            self.troubles.add(event)
        if isinstance(event, RunRescued) and event.state is RunState.FAILED:
            self.ended["failed"] += 1
        self.emit(event)

    def count(self, ended: Sequence[RunEnded]) -> None:
        words = {RunState.SUCCEEDED: "succeeded", RunState.FAILED: "failed"}
        self.ended.update(words.get(each.state, "retry") for each in ended)


def tick(
    engine: Engine,
    catalog: Catalog,
    settings: Settings,
    *,
    emit: Listener,
    stop: Stop | None = None,
    budget: timedelta | None = None,
) -> Ticked:
    """Plan what is due, and run it.

    budget: how long it may start runs; nothing: only plan; None: until all is done. What is
      under way at its end is waited for as ``shutdown_grace`` says, and then given back.

    Raises SchemaTooOld, SchemaTooNew, RetryTransaction, or the driver's error.
    """
    stop = stop or Stop()
    tally = _Tally(emit)
    crew = Crew(engine, catalog, size=settings.concurrency, owner=owner(), emit=tally)
    stop.also(crew.ask_to_stop)
    at = _begin(engine, tally)
    plan.sync(engine, catalog, tally)
    began = time.monotonic()
    end = None if budget is None else began + budget.total_seconds()
    lane = began + (LANE if budget is None else budget).total_seconds()
    planned = plan.plan_due(engine, catalog, tally, at=at, everything=True)
    planned += plan_round(engine, catalog, tally)
    while not stop.asked and (end is None or time.monotonic() < end):
        was_busy = crew.busy
        started = crew.start_ready(until=at)
        if time.monotonic() < lane:
            started += crew.start_backfills()
        ended = crew.ended(wait=settings.poll_interval.total_seconds())
        tally.count(ended)
        more = plan.plan_due(engine, catalog, tally, at=at, everything=False)
        more += plan_round(engine, catalog, tally)
        planned += more
        if not (was_busy or started or ended or more):
            break
    finished, given_back = crew.stop(settings.shutdown_grace)
    tally.count(finished)
    alerts.tell(engine, settings.alerts_to, tally)
    return Ticked(
        at=at,
        planned=planned.planned,
        skipped=planned.skipped,
        succeeded=tally.ended["succeeded"],
        retry=tally.ended["retry"],
        failed=tally.ended["failed"],
        given_back=given_back,
        troubles=len(tally.troubles),
    )


def work(
    engine: Engine,
    catalog: Catalog,
    settings: Settings,
    *,
    emit: Listener,
    stop: Stop,
) -> None:
    """Plan and run what is due, on and on, until ``stop`` is asked for.

    While the database is away it goes on trying. Raises SchemaTooOld or SchemaTooNew at its
    beginning, and the driver's error if the database is away then.
    """
    with reading(engine) as connection:
        migrations.check(connection)
    emit = _Sparingly(emit)
    crew = Crew(engine, catalog, size=settings.concurrency, owner=owner(), emit=emit)
    stop.also(crew.ask_to_stop)
    rounds = _Rounds(engine, catalog, settings, crew, emit)
    failures = 0
    while not stop.asked:
        try:
            busy = rounds.one()
        except (SQLAlchemyError, RetryTransaction) as error:
            failures += 1
            emit(Trouble("database", str(error).partition("\n")[0]))
            stop.wait(min(LONGEST_PAUSE, settings.poll_interval.total_seconds() * 2**failures))
            continue
        failures = 0
        if not busy:
            _pause(crew, stop, settings.poll_interval.total_seconds())
    crew.stop(settings.shutdown_grace)


def _pause(crew: Crew, stop: Stop, seconds: float) -> None:
    """Until the next look; sooner if an attempt ends, since something may follow it."""
    if crew.busy:
        crew.ended(wait=seconds)
    else:
        stop.wait(seconds)


class _Sparingly:
    """Passes events on, the same trouble only now and then."""

    def __init__(self, emit: Listener) -> None:
        self._emit = emit
        self._said: dict[Trouble, float] = {}

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Trouble):
            if now - self._said.get(event, float("-inf")) < SAY_AGAIN.total_seconds():
                return
            self._said = {each: at for each, at in self._said.items() if now - at < 2 * _HOUR}
            self._said[event] = now
        self._emit(event)


class _Rounds:
    """One look after the other: what is due each time, everything else now and then."""

    def __init__(
        self, engine: Engine, catalog: Catalog, settings: Settings, crew: Crew, emit: Listener
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._settings = settings
        self._crew = crew
        self._emit = emit
        self._noticed = self._looked = float("-inf")

    def one(self) -> bool:
        """Whether there is more to do at once."""
        now = time.monotonic()
        notices = now - self._noticed >= NOTICE.total_seconds()
        looks = now - self._looked >= LOOK_AROUND.total_seconds()
        if looks:
            _rescue(self._engine, self._emit)
        if notices:
            plan.sync(self._engine, self._catalog, self._emit)
            self._noticed = now
        with reading(self._engine) as connection:
            at = database_now(connection)
        done = plan.plan_due(self._engine, self._catalog, self._emit, at=at, everything=notices)
        done += plan_round(self._engine, self._catalog, self._emit)
        started = self._crew.start_ready(until=at) + self._crew.start_backfills()
        ended = self._crew.ended()
        if looks:
            alerts.tell(self._engine, self._settings.alerts_to, self._emit)
            self._looked = now
        return bool(ended or done or started)


def _begin(engine: Engine, emit: Listener) -> datetime:
    """The instant of a tick, after what others have left behind was freed."""
    with reading(engine) as connection:
        migrations.check(connection)
    _rescue(engine, emit)
    with reading(engine) as connection:
        return database_now(connection)


def _rescue(engine: Engine, emit: Listener) -> None:
    with writing(engine) as connection:
        found = run_rescues.rescue(connection)
    for each in found:
        if each.state is not RunState.SUCCEEDED:
            emit(RunRescued(each.key, each.state))
