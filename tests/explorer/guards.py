"""The guards, and how to take each out: by replacing one function or one condition of a statement.

Each names the invariant that breaks without it, and the steps after which a short search finds
that. A guard that another one backs up is taken out together with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.schema import Column

from dispatcher import decide, doubt, permit, reconcile, rounds, verbs
from dispatcher.doubt import Doubt
from dispatcher.rounds import Rounds
from dispatcher.verb_subjects import Act
from outbox.records import OpenAttempt
from outbox.states import Phase, RecipientResult, WhenUnsure
from outbox.store import late, marks, settle, sweep
from providers.contract import Capabilities
from tests.explorer.world import KINDS, Setting

Removal = Callable[[], AbstractContextManager[object]]

_HOLD, _AGAIN = WhenUnsure.HOLD, WhenUnsure.SEND_AGAIN
_MARKED = ("A claims", "A, attempt 1 marks")
_SENT = (*_MARKED, "A, attempt 1 sends; the provider takes it")
_IN_DOUBT = (*_SENT, "A, attempt 1 gets no answer")
_LAPSED = ("60 s pass: the lease's end", "B sweeps")


@dataclass(frozen=True, slots=True)
class Guard:
    """``removed`` takes it out; then ``breaks`` does not hold, ``depth`` steps after ``via``.

    ``believed`` is taken out by what an adapter says of its provider instead.
    """

    name: str
    removed: Removal
    breaks: str
    setting: Setting
    via: tuple[str, ...]
    depth: int = 2
    believed: Capabilities | None = None


def _named(condition: ColumnElement[Any]) -> set[str]:
    return {part.name for part in visitors.iterate(condition) if isinstance(part, Column)}


def without(statement: Any, *columns: str) -> Any:
    """A statement without those of its conditions that name one of ``columns``."""
    weaker = statement._generate()
    kept = [c for c in statement._where_criteria if not _named(c) & set(columns)]
    assert len(kept) < len(statement._where_criteria), f"nothing asks for {columns}"
    weaker._where_criteria = tuple(kept)
    return weaker


def _weaker(module: Any, name: str, *columns: str) -> Removal:
    """Take conditions out of a statement that a function of its dialect makes."""
    build = getattr(module, name)
    return lambda: patch.object(module, name, lambda dialect: without(build(dialect), *columns))


def _replaced(module: Any, name: str, other: Any) -> Removal:
    return lambda: patch.object(module, name, other)


def _both(*removals: Removal) -> Removal:
    @contextmanager
    def removed() -> Iterator[None]:
        with ExitStack() as stack:
            for removal in removals:
                stack.enter_context(removal())
            yield

    return removed


def _lapsed_whatever_the_phase(attempt: OpenAttempt) -> Any:
    return _LAPSED_RULE(replace(attempt, phase=Phase.CLAIMED))


def _recipient_without_history(recipient: Any, outcome: Any) -> Any:
    return _RECIPIENT_RULE(replace(recipient, result=RecipientResult.PENDING), outcome)


def _never_extra(*arguments: Any) -> Any:
    return replace(_DOUBT_OF(*arguments), extra_used=False)


def _mark_without_record(connection: Any, wanted: Any, **more: Any) -> Any:
    return _MARK(connection, [replace(each, extra=False) for each in wanted], **more)


def _late_without_counting(*arguments: Any) -> Any:
    return {**_LATE_ROW(*arguments), "copies": 0}


def _unbounded_permit(self: Any, *arguments: Any, **more: Any) -> None:
    _PERMIT(self, *arguments, **{**more, "latest_end": None})


def _forgetful_check(self: Any) -> None:
    self._latest = None
    _CHECK(self)


def _whenever_it_is_kept(doubt: Doubt, *_: Any) -> bool:
    return doubt.request_kept


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _for_ever(*_: Any) -> float:
    return float("inf")


def _of_any_claim(self: Any, claimed: Any) -> float:
    return self._open[claimed.id].deadline if claimed.id in self._open else 0.0


def _all_at_once(wishes: Any) -> Any:
    return list(wishes), []


_LAPSED_RULE, _RECIPIENT_RULE, _DOUBT_OF = decide.lapsed, decide._recipient, reconcile.doubt_of
_MARK = marks.mark
_LATE_ROW: Any = late._row
_PERMIT, _CHECK = permit.SendPermit.__init__, permit.SendPermit.check

_REPLAY_AT_ANY_TIME = _replaced(doubt, "replay_open", _whenever_it_is_kept)
_PERMIT_WITHOUT_WINDOW = _replaced(permit.SendPermit, "__init__", _unbounded_permit)
_PERMIT_WITHOUT_TIMES = _replaced(permit.SendPermit, "check", _forgetful_check)
_MARK_WITHOUT_SEND_BEFORE = _weaker(marks, "_mark", "send_before")
_EVERYTHING_IS_SWEPT = _both(
    _replaced(sweep, "_LAPSED", without(sweep._LAPSED, "lease_expires_at")),
    _replaced(sweep, "anything", _yes),
)
_NOT_ACCEPTED_AT_ONCE = {
    **verbs.TABLE,
    Act.SETTLE_NOT_ACCEPTED: {
        situation: replace(cell, needs=()) if isinstance(cell, verbs.Do) else cell
        for situation, cell in verbs.TABLE[Act.SETTLE_NOT_ACCEPTED].items()
    },
}
_FORGETFUL = replace(KINDS["look-up"], look_up_retention=None)
_SHORT = Setting("neither", _HOLD, send_before=50.0)
_RENEWED = ("24 s pass: when A has to renew", "A renews its lease")

GUARDS: tuple[Guard, ...] = (
    Guard(
        "settle: owner and token",
        _both(
            _weaker(settle, "_settle", "state", "lease_owner", "lease_token"),
            _replaced(OpenAttempt, "ours", property(_yes)),
        ),
        "stale_writes_change_nothing",
        Setting("neither", _HOLD),
        ("A claims", *_LAPSED, "B claims"),
    ),
    Guard(
        "mark: a lease that runs",
        _weaker(marks, "_mark", "lease_expires_at"),
        "marks_obey_the_row",
        Setting("neither", _HOLD),
        ("A claims", _LAPSED[0]),
    ),
    Guard(
        "mark: nobody asked to stop",
        _weaker(marks, "_mark", "stop_requested"),
        "marks_obey_the_row",
        Setting("neither", _HOLD),
        ("A claims", "the producer cancels"),
    ),
    Guard(
        "mark: send_before",
        _MARK_WITHOUT_SEND_BEFORE,
        "marks_obey_the_row",
        _SHORT,
        ("A claims", "50 s pass: send_before"),
    ),
    Guard(
        "permit: send_before, just before the first byte",
        _PERMIT_WITHOUT_TIMES,
        "nothing_leaves_too_late",
        _SHORT,
        (*_MARKED, "50 s pass: send_before"),
    ),
    Guard(
        "permit: the lease, just before the first byte",
        _replaced(Rounds, "lease_deadline", _for_ever),
        "nothing_leaves_without_a_lease",
        Setting("neither", _HOLD),
        (*_MARKED, _LAPSED[0]),
    ),
    Guard(
        "permit: its own claim's lease, not a later one's",
        _replaced(Rounds, "lease_deadline", _of_any_claim),
        "nothing_leaves_without_a_lease",
        Setting("key", _HOLD),
        (*_MARKED, *_LAPSED, "A claims"),
    ),
    Guard(
        "round: one wish of each delivery",
        _replaced(rounds, "one_each", _all_at_once),
        "no_round_fails",
        Setting("neither", _HOLD),
        (
            "A claims",
            *_LAPSED,
            "A claims",
            "A, attempt 1 marks; the commit's answer is lost",
        ),
    ),
    Guard(
        "sweep: only leases that have lapsed",
        _EVERYTHING_IS_SWEPT,
        "nothing_leaves_without_a_lease",
        Setting("neither", _HOLD),
        _MARKED,
    ),
    Guard(
        "sweep: the phase says what a lapsed lease means",
        _replaced(decide, "lapsed", _lapsed_whatever_the_phase),
        "no_proof_is_false",
        Setting("key", _HOLD),
        (*_SENT, _LAPSED[0]),
    ),
    Guard(
        "an outcome settles only its own attempt",
        _replaced(decide, "_recipient", _recipient_without_history),
        "no_proof_is_false",
        Setting("key", _HOLD),
        (*_IN_DOUBT, "A claims"),
    ),
    Guard(
        "replay: inside the key's retention, when it is claimed and when it leaves",
        _both(_REPLAY_AT_ANY_TIME, _PERMIT_WITHOUT_WINDOW),
        "nobody_gets_it_twice",
        Setting("key", _HOLD),
        (
            *_IN_DOUBT,
            "400 s pass: when the provider forgets the key",
        ),
        3,
    ),
    Guard(
        "replay: inside the key's retention, when it leaves",
        _PERMIT_WITHOUT_WINDOW,
        "nobody_gets_it_twice",
        Setting("key", _HOLD),
        (
            *_IN_DOUBT,
            "A claims",
            *(_RENEWED * 16),
            "A, attempt 2 marks",
            "16 s pass: when the provider forgets the key",
        ),
        1,
    ),
    Guard(
        "look-up: absence counts only when nothing can arrive any more",
        _replaced(reconcile, "absence_counts", _yes),
        "no_proof_is_false",
        Setting("look-up", _HOLD),
        (
            *_MARKED,
            "A, attempt 1 sends; the provider will get it late",
            "A, attempt 1 gets no answer",
            "A claims",
            "A, attempt 2 asks: Absent",
        ),
        1,
    ),
    Guard(
        "look-up: bytes of a dead process still arrive",
        _replaced(doubt, "DRAIN_MARGIN", timedelta()),
        "no_proof_is_false",
        Setting("look-up", _HOLD),
        (
            *_MARKED,
            "A, attempt 1 sends; the provider will get it late",
            "A, attempt 1 gets no answer",
        ),
        5,
    ),
    Guard(
        "look-up: before the provider forgets the message",
        _both(),
        "no_proof_is_false",
        Setting("look-up", _HOLD),
        (*_IN_DOUBT, "700 s pass: when look-ups forget"),
        3,
        _FORGETFUL,
    ),
    Guard(
        "send_again: once",
        _replaced(reconcile, "doubt_of", _never_extra),
        "nobody_gets_it_twice",
        Setting("neither", _AGAIN, send_before=None),
        (
            *_IN_DOUBT, "A claims", "60 s pass", "A claims",
            "A, attempt 2 marks", "A, attempt 2 sends; the provider takes it",
            "A, attempt 2 gets no answer",
        ),
        5,
    ),
    Guard(
        "send_again: the row records who took the risk",
        _replaced(marks, "mark", _mark_without_record),
        "nobody_gets_it_twice",
        Setting("neither", _AGAIN),
        (*_IN_DOUBT, "A claims", "60 s pass", "A claims", "A, attempt 2 marks"),
    ),
    Guard(
        "late proof of acceptance counts, whoever brings it",
        _replaced(late, "apply", lambda *_, **__: None),
        "proof_is_kept",
        Setting("neither", _HOLD),
        (*_SENT, *_LAPSED),
    ),
    Guard(
        "a second acceptance is counted",
        _replaced(late, "_row", _late_without_counting),
        "second_acceptances_are_marked",
        Setting("neither", _AGAIN),
        (
            *_SENT, *_LAPSED, "B claims", "60 s pass", "B claims", "B, attempt 2 marks",
            "B, attempt 2 sends; the provider takes it", "B, attempt 2 gets Accepted",
        ),
    ),
    Guard(
        "settle --as not-accepted: only when everything that could transmit has ended",
        _replaced(verbs, "TABLE", _NOT_ACCEPTED_AT_ONCE),
        "no_proof_is_false",
        Setting("neither", _HOLD, people=True),
        (
            *_MARKED,
            "A, attempt 1 sends; the provider will get it late",
            "A, attempt 1 gets no answer",
        ),
    ),
    Guard(
        "what was asked of a row in flight is carried out",
        _replaced(decide, "_stopped", lambda decided: decided),
        "requests_are_carried_out",
        Setting("neither", _HOLD),
        ("A claims", "the producer cancels"),
    ),
)  # fmt: skip
