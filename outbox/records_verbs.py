"""Frozen rows and decisions that cross between the store and the operators' verbs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from outbox.limits import KEY_CHARACTERS
from outbox.records import DoubtRow, RecipientUpdate
from outbox.states import PauseReason, State, StopRequest, Verdict


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """A delivery as a verb finds it. ``history`` is its history of doubt, without the message.

    ``transmitted``: the positions that any attempt may have carried out of this process.
    ``dropped``: the positions that the provider took and then never sent.
    ``superseded_by``: the key of the delivery that was sent instead of it.
    ``identity``: that of its account at present, as a dispatcher last published it.
    """

    history: DoubtRow
    state: State
    held_from: State | None
    reason: str | None
    owner: str | None
    token: int
    stop_requested: StopRequest | None
    transmitted: frozenset[int]
    dropped: frozenset[int]
    superseded_by: str | None
    has_message: bool
    identity: str | None


@dataclass(frozen=True, slots=True)
class OperatorFact:
    """What a person says the provider did. ``attempt`` None: about the delivery as a whole."""

    attempt: int | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Again:
    """A second sending: a delivery of its own, to these recipients of the first."""

    recipients: tuple[int, ...]
    account: str
    send_before: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb makes of one row. ``before``, ``owner`` and ``token`` are the guard: the
    write changes nothing unless the row is still as it was when this was decided.

    ``due_at`` and ``send_before`` None: as they are. ``refreshed``: a new retry budget.
    ``stop``: only that is asked of a row in flight; nothing else of it changes.
    """

    id: int
    key: str
    before: State
    owner: str | None
    token: int
    account: str
    state: State
    reason: str | None = None
    held_from: State | None = None
    recipients: tuple[RecipientUpdate, ...] = ()
    due_at: datetime | None = None
    send_before: datetime | None = None
    refreshed: bool = False
    stop: StopRequest | None = None
    facts: tuple[OperatorFact, ...] = ()
    again: Again | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A second sending that was made: ``of`` is the first delivery's id."""

    of: int
    id: int
    key: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What was really written. ``changed``: the ids whose guard held."""

    changed: frozenset[int]
    made: tuple[Made, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited:
    """Who did what, why. ``before`` and ``after`` are small JSON objects as text."""

    at: datetime
    actor: str
    action: str
    subject: str
    note: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One account, or one scope of it, with all that is kept of it at run time.

    ``paused_until`` is in the future, or the pause is over.
    """

    account: str
    scope: str
    provider: str
    identity: str | None
    limits: str
    paused_since: datetime | None
    paused_until: datetime | None
    pause_reason: PauseReason | None
    pause_detail: str | None
    paused_by: str | None
    failures: int


def successor_key(key: str, step: int = 1) -> str | None:
    """The key of the next sending of ``key``: ``K~2``, of that ``K~3``; ``step`` further ones
    skip numbers that are taken. None when the key is too long to carry a number."""
    root, _, number = key.partition("~")
    following = f"{root}~{(int(number) if number.isascii() and number.isdigit() else 1) + step}"
    return following if len(following) <= KEY_CHARACTERS else None
