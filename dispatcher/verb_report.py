"""What a verb would do, or did, put together for people: groups, counts, the risk. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dispatcher.verb_effects import Effect, second_copies
from dispatcher.verb_subjects import Act, Situation, Subject
from dispatcher.verbs import Decision, Doing, Left, Refused, Why
from outbox.instants import format_instant
from outbox.records_verbs import Made
from outbox.reports import Filter
from outbox.states import RecipientKind, State

SHOWN = 3
"""Addresses and keys that are named before the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One delivery, and what was decided about it."""

    subject: Subject
    decision: Decision


class Kind(StrEnum):
    DONE = "done"
    LEFT = "left_alone"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Group:
    """Deliveries that are in the same situation and to which the same happens.

    ``effect`` for what is done, ``why`` for what is not, and ``instead`` what to type in its
    place; ``until``: from then on none of them is refused any more. ``keys``: the first few.
    """

    kind: Kind
    rows: int
    account: str
    state: State
    reason: str | None
    situation: Situation
    effect: Effect | None
    why: Why | None
    instead: tuple[str, ...]
    until: datetime | None
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a verb does to what was named. ``acted`` False: nothing was changed.

    ``risk`` says who may get a second copy; "" where nobody can. ``made`` are the second
    sendings.
    """

    at: datetime
    act: Act
    subject: str
    acted: bool
    groups: tuple[Group, ...]
    risk: str
    made: tuple[Made, ...]

    def rows(self, kind: Kind) -> int:
        """How many deliveries are done, left alone, or refused."""
        return sum(group.rows for group in self.groups if group.kind is kind)


class Gathering:
    """Groups and the risk, gathered page by page: a filter may mean very many deliveries."""

    def __init__(self, default_account: str) -> None:
        self._default_account = default_account
        self._groups: dict[tuple[object, ...], Group] = {}
        self._named: dict[str, None] = {}
        self._people: set[str] = set()
        self._copies = 0

    def add(self, judged: Iterable[Judged]) -> None:
        """Count these deliveries, too."""
        for each in judged:
            group = _alone(each, self._default_account)
            place = (
                group.kind, group.account, group.state, group.reason, group.situation,
                group.effect, group.why, _without_key(each),
            )  # fmt: skip
            known = self._groups.get(place)
            self._groups[place] = group if known is None else _together(known, group)
            self._add_risk(each)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups, those that are done first, then the largest first."""
        order = list(Kind)
        found = self._groups.values()
        return tuple(sorted(found, key=lambda group: (order.index(group.kind), -group.rows)))

    @property
    def risk(self) -> str:
        """Who may get a second copy, in one sentence; blind recipients are counted, not named."""
        if not self._copies:
            return ""
        named, others = list(self._named), len(self._people) - len(self._named)
        shown = ", ".join(named) + (f" and {others:,} more" if others > 0 else "")
        copies = "a second copy" if self._copies == 1 else f"{self._copies:,} second copies in all"
        return f"{shown} may get {copies}."

    def _add_risk(self, each: Judged) -> None:
        if not isinstance(each.decision, Doing):
            return
        positions = second_copies(each.subject, each.decision.change)
        for recipient in each.subject.recipients:
            if recipient.position not in positions:
                continue
            self._copies += 1
            name = "(hidden)" if recipient.kind is RecipientKind.BCC else recipient.address
            self._people.add(name)
            if len(self._named) < SHOWN:
                self._named[name] = None


def filter_words(wanted: Filter) -> str:
    """A filter as the options that make it, with instants instead of durations."""
    account = next((name for name in wanted.accounts if name), None)
    since = None if wanted.changed_since is None else format_instant(wanted.changed_since)
    pairs = [
        *(("--state", state.value) for state in wanted.states),
        ("--account", account),
        ("--key", wanted.key_prefix),
        ("--to", wanted.to),
        ("--state-reason", wanted.reason),
        ("--tag", wanted.tag),
        ("--tenant", wanted.tenant),
        ("--run-key", wanted.run_key),
        ("--since", since),
    ]
    return " ".join(f"{name} {value}" for name, value in pairs if value is not None)


def _alone(each: Judged, default_account: str) -> Group:
    subject, decision = each.subject, each.decision
    kind = Kind.DONE
    effect: Effect | None = None
    why: Why | None = None
    instead: tuple[str, ...] = ()
    until: datetime | None = None
    match decision:
        case Doing(effect=which):
            effect = which
        case Left(why=which_why):
            kind, why = Kind.LEFT, which_why
        case Refused(why=which_why, instead=words, until=at):
            kind, why, instead, until = Kind.REFUSED, which_why, words, at
    return Group(
        kind=kind,
        rows=1,
        account=subject.account or default_account,
        state=subject.state,
        reason=subject.reason,
        situation=subject.situation,
        effect=effect,
        why=why,
        instead=tuple(map(str, instead)),
        until=until,
        keys=(subject.key,),
    )


def _without_key(each: Judged) -> tuple[str, ...]:
    """What to type instead tells groups apart, but not by the key that stands in it."""
    if not isinstance(each.decision, Refused) or each.decision.why is Why.SENT_AGAIN:
        return ()
    return each.decision.instead


def _together(one: Group, other: Group) -> Group:
    ends = [until for until in (one.until, other.until) if until is not None]
    return Group(
        one.kind,
        one.rows + other.rows,
        one.account,
        one.state,
        one.reason,
        one.situation,
        one.effect,
        one.why,
        one.instead if one.instead == other.instead else (f"{_act(one)} of its successor",),
        max(ends, default=None),
        (*one.keys, *other.keys)[:SHOWN],
    )


def _act(group: Group) -> str:
    """The verb of an ``instead`` that ends with a key."""
    return group.instead[0].rpartition(" ")[0] if group.instead else ""
