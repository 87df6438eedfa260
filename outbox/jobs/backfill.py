"""Backfills as people order them: looked at first, ordered, paused, resumed, cancelled.

An order is worked on by whoever works on jobs: :mod:`outbox.jobs.backfill_rounds` makes its
runs, and :mod:`outbox.jobs.backfill_lane` starts them. What is decided is decided in
:mod:`outbox.jobs.decide_backfill`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from sqlalchemy import Connection, Engine

from outbox import migrations
from outbox.database import reading
from outbox.jobs.backfill_periods import chosen, rules_of, subjects_now, track, verdicts
from outbox.jobs.catalog import Catalog
from outbox.jobs.decide_backfill import (
    LOOK,
    MOST,
    Candidate,
    InvalidBackfill,
    Verdict,
    Wanted,
    candidates,
    drift,
    estimate,
    hash_of,
)
from outbox.jobs.job import Job
from outbox.jobs.opening import writing
from outbox.records_backfills import Backfill
from outbox.states_jobs import BackfillPause, BackfillState
from outbox.store import audit, backfills
from outbox.store.audit import Entry
from outbox.store.reads import database_now


@dataclass(frozen=True, slots=True)
class Prospect:
    """What an order would do. ``runs``: to be made; ``succeeded``, ``under_way``: periods that
    are left out, since a run has done them, or is to. ``takes``: how long, if that can be told.
    ``newest``, ``oldest``: labels of the first and the last run, with their subjects."""

    job: str
    at: datetime
    subjects: int
    range_start: datetime
    range_end: datetime
    runs: int
    succeeded: int
    under_way: int
    takes: timedelta | None
    oldest: str | None
    newest: str | None


@dataclass(frozen=True, slots=True)
class Ordered:
    """What was ordered. ``id`` None: nothing was, since there is nothing to run."""

    id: int | None
    prospect: Prospect


@dataclass(slots=True)
class _Counted:
    """What was found while looking through a range."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    oldest: str | None = None
    newest: str | None = None


def look(engine: Engine, catalog: Catalog, wanted: Wanted) -> Prospect:
    """What an order would do; nothing is changed.

    Raises InvalidJob for an unknown job, InvalidBackfill for a range or subjects that cannot
    be, SchemaTooOld, SchemaTooNew, or the driver's error.
    """
    job = catalog.named(wanted.job)
    with reading(engine) as connection:
        migrations.check(connection)
        return _looked(connection, job, wanted)[0]


def order(engine: Engine, catalog: Catalog, wanted: Wanted, *, actor: str, note: str) -> Ordered:
    """Store an order, with its line in the audit trail. Its runs are made by whoever works on
    jobs. Raises as :func:`look`, and RetryTransaction.
    """
    job = catalog.named(wanted.job)
    with reading(engine) as connection:
        migrations.check(connection)
        prospect, rules = _looked(connection, job, wanted)
    if not prospect.runs:
        return Ordered(None, prospect)
    with writing(engine) as connection:
        id_ = backfills.add(
            connection,
            {
                "job": job.name,
                "subjects": backfills.subjects_text(wanted.subjects),
                "range_start": prospect.range_start,
                "range_end": prospect.range_end,
                "runs_per_hour": wanted.runs_per_hour,
                "concurrency": wanted.concurrency,
                "deliveries": wanted.deliveries,
                "definition_version": job.definition.version,
                "parameters": backfills.parameters_text(wanted.first, wanted.last, rules),
                "parameter_hash": hash_of(rules),
                "expected_runs": prospect.runs,
                "ordered_by": actor[:255],
                "note": note,
                "created_at": prospect.at,
                "updated_at": prospect.at,
            },
        )
        said = {"job": job.name, "from": wanted.first, "to": wanted.last, "runs": prospect.runs}
        _audit(connection, "order", id_, after=said, actor=actor, note=note)
    return Ordered(id_, prospect)


def _looked(connection: Connection, job: Job, wanted: Wanted) -> tuple[Prospect, dict[str, str]]:
    at = database_now(connection)
    known = subjects_now(connection, job, at)
    subjects = chosen(job, known, wanted.subjects)
    tracks = [track(name, each, wanted.first, wanted.last, at) for name, each in subjects.items()]
    found = _counted(connection, job, candidates(tracks, None))
    count = found.verdicts
    prospect = Prospect(
        job=job.name,
        at=at,
        subjects=len(tracks),
        range_start=min(track.start for track in tracks),
        range_end=max(track.end for track in tracks),
        runs=count[Verdict.RUN],
        succeeded=count[Verdict.SUCCEEDED],
        under_way=count[Verdict.UNDER_WAY],
        takes=estimate(
            count[Verdict.RUN],
            runs_per_hour=wanted.runs_per_hour,
            concurrency=wanted.concurrency,
            seconds=backfills.usual_seconds(connection, job.name),
        ),
        oldest=found.oldest,
        newest=found.newest,
    )
    return prospect, {name: each.rule.to_text() for name, each in subjects.items()}


def _counted(connection: Connection, job: Job, each: Iterator[Candidate]) -> _Counted:
    found = _Counted()
    while chunk := list(islice(each, LOOK)):
        for candidate, judged in verdicts(connection, job, chunk):
            found.verdicts[judged.verdict] += 1
            if judged.verdict is Verdict.RUN:
                found.newest = f"{candidate.subject} {candidate.period.label}"
                found.oldest = found.oldest or found.newest
        if found.verdicts[Verdict.RUN] > MOST:
            raise InvalidBackfill(
                f"these are more than {MOST:,} runs; order a shorter range, or fewer subjects"
            )
    return found


# --------------------------------------------------------------------------- #
# What people decide
# --------------------------------------------------------------------------- #


def pause(engine: Engine, id_: int, *, actor: str, note: str) -> Backfill:
    """Start nothing more of an order until it is resumed; what is running goes on.

    Raises InvalidBackfill if it is not active, RetryTransaction, or the driver's error.
    """
    with writing(engine) as connection:
        was = _locked(connection, id_, BackfillState.ACTIVE)
        backfills.pause(connection, id_, BackfillPause.OPERATOR, note)
        _audit(connection, "pause", id_, before=_state(was), actor=actor, note=note)
        return _one(connection, id_)


def resume(
    engine: Engine, catalog: Catalog, id_: int, *, accept: bool, actor: str, note: str
) -> Backfill:
    """Go on with an order that is paused.

    accept: also if its job has changed; then it goes on with the job as it is now. Runs that
      are made already keep their periods, and subjects that are gone are left out.

    Raises InvalidBackfill if it is not paused, or if its job has changed and that is not
    accepted; InvalidJob, RetryTransaction, or the driver's error.
    """
    with writing(engine) as connection:
        was = _locked(connection, id_, BackfillState.PAUSED)
        job = catalog.named(was.job)
        now_are = rules_of(subjects_now(connection, job, database_now(connection)))
        if (why := drift(was, job.definition.version, now_are)) is not None:
            if not accept:
                raise InvalidBackfill(f"{why}; add --accept-changes to go on with what is now")
            _accept(connection, was, job, now_are)
        backfills.change(connection, id_, state="active", pause_reason=None, pause_detail=None)
        after = {"state": "active", **({"accepted": why} if why else {})}
        _audit(connection, "resume", id_, before=_state(was), after=after, actor=actor, note=note)
        return _one(connection, id_)


def _accept(connection: Connection, was: Backfill, job: Job, now_are: Mapping[str, str]) -> None:
    rules = {name: now_are[name] for name in was.rules if name in now_are}
    if not rules:
        raise InvalidBackfill(
            f"none of its subjects is there any more: postroom jobs backfill cancel {was.id}"
        )
    backfills.change(
        connection,
        was.id,
        definition_version=job.definition.version,
        parameters=backfills.parameters_text(was.first, was.last, rules),
        parameter_hash=hash_of(rules),
    )


def cancel(engine: Engine, id_: int, *, actor: str, note: str) -> tuple[Backfill, int]:
    """End an order: what of it nobody works on is cancelled, what is running goes on. The
    order, and how many runs were cancelled.

    Raises InvalidBackfill if it has ended, RetryTransaction, or the driver's error.
    """
    with writing(engine) as connection:
        was = _locked(connection, id_, BackfillState.ACTIVE, BackfillState.PAUSED)
        backfills.change(
            connection,
            id_,
            state="cancelled",
            pause_reason=None,
            pause_detail=None,
            finished_at=database_now(connection),
        )
        count = backfills.cancel_planned(
            connection, id_, was.job, detail=f"backfill {id_} was cancelled: {note}"
        )
        after = {"state": "cancelled", "runs": count}
        _audit(connection, "cancel", id_, before=_state(was), after=after, actor=actor, note=note)
        return _one(connection, id_), count


def _locked(connection: Connection, id_: int, *states: BackfillState) -> Backfill:
    migrations.check(connection)
    found = backfills.one(connection, id_, lock=True)
    if found is None:
        raise InvalidBackfill(f"there is no backfill {id_}: see postroom jobs backfill list")
    if found.state not in states:
        raise InvalidBackfill(f"backfill {id_} is {found.state.value}, so there is nothing to do")
    return found


def _one(connection: Connection, id_: int) -> Backfill:
    found = backfills.one(connection, id_)
    if found is None:
        raise InvalidBackfill(f"backfill {id_} is gone")
    return found


def _state(was: Backfill) -> dict[str, str]:
    return {"state": was.state.value}


def _audit(
    connection: Connection,
    action: str,
    id_: int,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    actor: str,
    note: str,
) -> None:
    entry = Entry(f"backfill {action}", f"backfill {id_}", before or {}, after or {})
    audit.write(connection, [entry], actor=actor, note=note, at=database_now(connection))
