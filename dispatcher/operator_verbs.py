"""The operators' verbs, as functions that return data. No printing.

:func:`preview` reads and says what would happen, group by group; :func:`act` reads again,
under lock, decides again, and writes. So a row that has changed since the preview is judged
by what it is now. Both are harmless to repeat: a verb takes the rows that still qualify, and
what it has done to a row makes that row no longer qualify.

A filter is worked through in pages, newest first, each in a transaction of its own: a second
sending is a newer row and is never met, and what was done stays done if the rest cannot be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from dispatcher.config import Config
from dispatcher.operator import outbox_engine
from dispatcher.verb_facts import subject_of
from dispatcher.verb_report import Gathering, Group, Judged, Report, filter_words
from dispatcher.verb_subjects import Act, Subject, Wish
from dispatcher.verb_words import SUGGESTED
from dispatcher.verbs import SCOPE, Decision, Doing, Left, Refused, Why, decide
from outbox import migrations
from outbox.database import reading
from outbox.errors import RetryTransaction
from outbox.records_verbs import Made
from outbox.reports import Filter, Summary
from outbox.store import audit, queries, stories, verb_writes, verbs
from outbox.store.reads import database_now

__all__ = [
    "Group",
    "Report",
    "Suggestion",
    "Unclear",
    "act",
    "preview",
    "suggestions",
]

T = TypeVar("T")
Target: TypeAlias = str | Filter
"""One delivery (key, id, public id, Message-ID, or the provider's id), or a filter."""

TRIES = 20
"""How often a page whose rows are locked is tried, half a second each, before it is given up."""
_LOCKED = "deliveries stay locked by another transaction; what was done is done: run it again"
_BUSY = frozenset({"55P03", "40P01", "40001"})
"""SQLSTATE: lock not available, deadlock, serialization
(postgresql.org/docs/current/errcodes-appendix.html)."""


class Unclear(ValueError):
    """What was named is no delivery, or more than one; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What may be typed next about one delivery; ``until``: only from then on."""

    act: Act
    until: datetime | None


def preview(config: Config, wish: Wish, target: Target) -> Report:
    """What ``wish`` would do, and what it would not and why. Nothing is written.

    Raises :class:`Unclear`, and what :func:`dispatcher.operator.outbox_engine` raises,
    SchemaTooOld or SchemaTooNew.
    """
    with outbox_engine(config) as engine, reading(engine) as connection:
        migrations.check(connection)
        at = database_now(connection)
        seen = Gathering(config.defaults.account)
        named = target if isinstance(target, str) else filter_words(target)
        for page in _pages(connection, target, wish.act):
            judged = _judged(connection, config, wish, page, at=at, locked=False)
            seen.add(judged)
            if isinstance(target, str):
                named = judged[0].subject.key
    return _report(wish, named, seen, at)


def act(config: Config, wish: Wish, target: Target, *, actor: str, note: str) -> Report:
    """Do it. ``actor`` and ``note`` (the reason) go into the audit trail.

    Raises as :func:`preview`, and RetryTransaction when rows stay locked by others; what was
    done until then is done.
    """
    with outbox_engine(config) as engine:
        with reading(engine) as connection:
            migrations.check(connection)
        if isinstance(target, str):
            return _act_on_one(config, engine, wish, target, actor=actor, note=note)
        return _act_on_all(config, engine, wish, target, actor=actor, note=note)


def suggestions(config: Config, id_: int) -> tuple[Suggestion, ...]:
    """The verbs that apply to one delivery, in the order in which to think of them."""
    with outbox_engine(config) as engine, reading(engine) as connection:
        at = database_now(connection)
        rows = verbs.subjects(connection, [id_], at=at, locked=False)
    found: list[Suggestion] = []
    for subject in (subject_of(row, config, at) for row in rows):
        for each in SUGGESTED[subject.situation]:
            decision = decide(Wish(each), subject, at)
            if isinstance(decision, Doing):
                found.append(Suggestion(each, None))
            elif isinstance(decision, Refused) and decision.until is not None:
                found.append(Suggestion(each, decision.until))
    return tuple(found)


# --------------------------------------------------------------------------- #
# Acting
# --------------------------------------------------------------------------- #


def _act_on_one(
    config: Config, engine: Engine, wish: Wish, reference: str, *, actor: str, note: str
) -> Report:
    def work(connection: Connection) -> Report:
        [ids] = _pages(connection, reference, wish.act)
        at = database_now(connection)
        judged = _judged(connection, config, wish, ids, at=at, locked=True)
        judged, made = _applied(connection, wish, judged, actor=actor, note=note, at=at)
        seen = Gathering(config.defaults.account)
        seen.add(judged)
        return _report(wish, judged[0].subject.key, seen, at, made=made, acted=True)

    return _patiently(engine, work)


def _act_on_all(
    config: Config, engine: Engine, wish: Wish, wanted: Filter, *, actor: str, note: str
) -> Report:
    scope = _scoped(wanted, wish.act)
    seen = Gathering(config.defaults.account)
    made: list[Made] = []
    before: int | None = None
    at: datetime | None = None

    def work(connection: Connection) -> tuple[list[Judged], Sequence[Made], int | None, datetime]:
        now = database_now(connection)
        page = queries.deliveries(connection, scope, limit=verbs.BATCH, before=before)
        found = _judged(connection, config, wish, page, at=now, locked=True)
        found, second = _applied(connection, wish, found, actor=actor, note=note, at=now)
        if done := sum(isinstance(each.decision, Doing) for each in found):
            counts = {"deliveries": done}
            entry = audit.Entry(wish.act.value, filter_words(scope), {"matched": len(page)}, counts)
            audit.write(connection, [entry], actor=actor, note=note, at=now)
        return found, second, page[-1].id if page else None, now

    while True:
        found, second, before, now = _patiently(engine, work)
        at = at or now
        seen.add(found)
        made += second
        if before is None:
            return _report(wish, filter_words(wanted), seen, at, made=made, acted=True)


def _applied(
    connection: Connection,
    wish: Wish,
    judged: Sequence[Judged],
    *,
    actor: str,
    note: str,
    at: datetime,
) -> tuple[list[Judged], Sequence[Made]]:
    """Write what was decided; a row whose guard did not hold was left alone."""
    changes = [each.decision.change for each in judged if isinstance(each.decision, Doing)]
    if not changes:
        return list(judged), ()
    done = verb_writes.apply(
        connection, changes, action=wish.act.value, actor=actor, note=note, at=at
    )
    left = [
        each
        if not isinstance(each.decision, Doing) or each.subject.id in done.changed
        else replace(each, decision=Left(Why.CHANGED))
        for each in judged
    ]
    return left, done.made


def _patiently(engine: Engine, work: Callable[[Connection], T]) -> T:
    """One transaction; again when its rows were locked by somebody else for too long."""
    for tries_left in reversed(range(TRIES)):
        try:
            with engine.begin() as connection:
                verbs.patient(connection)
                return work(connection)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _BUSY:
                raise
            if not tries_left:
                raise RetryTransaction(_LOCKED) from None
            time.sleep(0.1)
    raise AssertionError("unreachable")


# --------------------------------------------------------------------------- #
# Judging
# --------------------------------------------------------------------------- #

Page: TypeAlias = "Sequence[Summary] | Sequence[int]"


def _pages(connection: Connection, target: Target, wanted: Act) -> Iterator[Page]:
    if isinstance(target, str):
        yield [_one(connection, target)]
        return
    scope, before = _scoped(target, wanted), None
    while page := queries.deliveries(connection, scope, limit=verbs.BATCH, before=before):
        yield page
        before = page[-1].id


def _one(connection: Connection, reference: str) -> int:
    ids = queries.matching(connection, reference)
    if len(ids) > 1:
        raise Unclear(f"{reference} names {len(ids)} deliveries; name one of them by its key")
    if ids:
        return ids[0]
    if (buried := stories.buried(connection, reference)) is not None:
        raise Unclear(f"{reference} was {buried.state} and is cleaned up; nothing can be done")
    raise Unclear(f"no delivery has the key, id, Message-ID or provider's id {reference}")


def _scoped(wanted: Filter, verb: Act) -> Filter:
    return wanted if wanted.states else replace(wanted, states=SCOPE[verb])


def _judged(
    connection: Connection, config: Config, wish: Wish, page: Page, *, at: datetime, locked: bool
) -> list[Judged]:
    """The decision about each row of a page. A row that is no longer what the filter found
    is left alone: nobody was shown that it would be meant."""
    seen = {each.id: each for each in page if isinstance(each, Summary)}
    ids = [each.id if isinstance(each, Summary) else each for each in page]
    found: list[Judged] = []
    for row in verbs.subjects(connection, ids, at=at, locked=locked):
        subject = subject_of(row, config, at, wish.send_before)
        known = seen.get(subject.id)
        decision: Decision
        if known is not None and _differs(known, subject):
            decision = Left(Why.CHANGED)
        else:
            decision = decide(wish, subject, at)
        found.append(Judged(subject, decision))
    return found


def _differs(seen: Summary, now: Subject) -> bool:
    return (seen.state, seen.reason, seen.account) != (now.state, now.reason, now.account)


def _report(
    wish: Wish,
    subject: str,
    seen: Gathering,
    at: datetime,
    *,
    made: Sequence[Made] = (),
    acted: bool = False,
) -> Report:
    return Report(
        at=at,
        act=wish.act,
        subject=subject,
        acted=acted,
        groups=seen.groups,
        risk=seen.risk,
        made=tuple(made),
    )
