"""What must hold in every state that can be reached, and of every step. One function each.

A function gets the state before a step, what the step did, and the state after it. It returns
None, or one line that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dispatcher.wishes import LookUpEnd
from outbox.states import FINAL, RecipientResult, State, fold
from providers.contract import Accepted, Found, Result
from tests.explorer.clock import seconds
from tests.explorer.machine import Seen
from tests.explorer.world import World


@dataclass(frozen=True, slots=True)
class Moment:
    """One step."""

    before: World
    seen: Seen
    after: World


Invariant: TypeAlias = Callable[[Moment], str | None]

_CLOSED = {State.CANCELLED, State.EXPIRED, State.FAILED, State.UNRESOLVED, State.HELD}
_NOT_TAKEN = {
    RecipientResult.PENDING,
    RecipientResult.FAILED,
    RecipientResult.EXPIRED,
    RecipientResult.CANCELLED,
}


def nothing_disappears(moment: Moment) -> str | None:
    """1: the delivery and its recipients stay; a row that is being sent has an open attempt."""
    before, after = moment.before.rows, moment.after.rows
    if len(after.of("deliveries")) != 1:
        return "the delivery is gone"
    if len(after.of("recipients")) != len(before.of("recipients")):
        return "a recipient is gone"
    row = after.delivery
    if row["state"] != State.SENDING:
        return None
    numbers = [a["number"] for a in after.of("attempts") if a["phase"] != "settled"]
    return None if row["last_attempt"] in numbers else "a row is being sent without an open attempt"


def nobody_gets_it_twice(moment: Moment) -> str | None:
    """3: no recipient's message is taken twice, unless the row says who took the risk."""
    extra = moment.after.rows.delivery["extra_transmission"]
    for recipient in moment.after.rows.of("recipients"):
        copies = len(moment.after.truth.of(recipient["position"]))
        if copies > 1 + (extra is not None):
            return (
                f"{recipient['address']} got {copies} copies; the row records {extra or 'no risk'}"
            )
    return None


def second_acceptances_are_marked(moment: Moment) -> str | None:
    """3: a second acceptance that an answer has named is counted in ``copies``."""
    world = moment.after
    for recipient in world.rows.of("recipients"):
        known = [c for c in world.truth.of(recipient["position"]) if c.id in world.told]
        if len(known) > max(1, world.rows.delivery["copies"]):
            return (
                f"{len(known)} acceptances are known and copies is {world.rows.delivery['copies']}"
            )
    return None


def no_proof_is_false(moment: Moment) -> str | None:
    """3: outside an attempt, "not taken" is said only of what was not taken (and cannot be)."""
    world = moment.after
    if world.rows.delivery["state"] == State.SENDING:
        return None
    for recipient in world.rows.of("recipients"):
        if recipient["result"] not in _NOT_TAKEN:
            continue
        if world.truth.of(recipient["position"]):
            return f"{recipient['address']} is {recipient['result']}, and the provider took it"
        if any(recipient["position"] in flying.positions for flying in world.truth.flying):
            return f"{recipient['address']} is {recipient['result']}, and its message is on its way"
    return None


def proof_is_kept(moment: Moment) -> str | None:
    """3: once an acceptance was reported, whenever that was, the recipient is accepted."""
    world = moment.after
    for recipient in world.rows.of("recipients"):
        known = any(c.id in world.told for c in world.truth.of(recipient["position"]))
        if known and recipient["result"] != RecipientResult.ACCEPTED:
            return (
                f"{recipient['address']} is {recipient['result']} in spite of proof of acceptance"
            )
    return None


def acceptance_is_monotone(moment: Moment) -> str | None:
    """What is accepted stays accepted, and ``copies`` never falls."""
    before, after = moment.before.rows, moment.after.rows
    if before.delivery["state"] == State.ACCEPTED != after.delivery["state"]:
        return f"an accepted delivery became {after.delivery['state']}"
    if after.delivery["copies"] < before.delivery["copies"]:
        return "copies fell"
    was = {r["position"]: r["result"] for r in before.of("recipients")}
    for recipient in after.of("recipients"):
        if was[recipient["position"]] == RecipientResult.ACCEPTED != recipient["result"]:
            return f"{recipient['address']} was accepted and became {recipient['result']}"
    return None


def final_is_final(moment: Moment) -> str | None:
    """A final state is left for ``accepted`` alone, unless a person says otherwise."""
    was, now = moment.before.rows.delivery["state"], moment.after.rows.delivery["state"]
    if was in FINAL and now not in {was, State.ACCEPTED} and not moment.seen.typed:
        return f"a delivery that was {was} became {now}"
    return None


def stale_writes_change_nothing(moment: Moment) -> str | None:
    """4: without owner and token, a settle changes no state and no schedule, and its evidence
    is kept."""
    stale = [task for task in moment.seen.settled if not moment.before.holds(task)]
    if not stale or len(stale) < len(moment.seen.settled) or moment.seen.mixed:
        return None  # what another write of the same round changed is told apart no more
    for task in stale:
        if _kept(moment, task.claimed.attempt) is None:
            return f"nothing is kept of the late answer of attempt {task.claimed.attempt}"
    if any(_proves(task.end) for task in stale):
        return None
    for table in ("deliveries", "recipients"):
        for old, new in zip(moment.before.rows.of(table), moment.after.rows.of(table), strict=True):
            changed = [name for name in old if old[name] != new[name] and name != "updated_at"]
            if changed:
                return f"a stale write changed {', '.join(changed)}"
    return None


def marks_obey_the_row(moment: Moment) -> str | None:
    """4, 5: a mark is granted only for the row as its attempt knows it: owner, token, a lease
    that runs, nobody asked to stop, ``send_before`` ahead."""
    row, world = moment.before.rows.delivery, moment.before
    for task in moment.seen.marked:
        own = _attempt(world, task.claimed.attempt)
        if own is not None and own["phase"] == "transmitting" and world.holds(task):
            continue  # granted before; its answer was lost
        if row["state"] != State.SENDING or not world.holds(task):
            return "a mark was granted to an attempt that does not hold the lease"
        if (seconds(row["lease_expires_at"]) or 0.0) <= world.now:
            return "a mark was granted under a lease that had lapsed"
        if row["stop_requested"] is not None:
            return f"a mark was granted although {row['stop_requested']} was asked"
        if _too_late(world):
            return "a mark was granted after send_before"
    return None


def nothing_leaves_too_late(moment: Moment) -> str | None:
    """5: nothing starts to leave after ``send_before``, or from a row that was closed or held."""
    if moment.seen.left is None:
        return None
    row = moment.before.rows.delivery
    if _too_late(moment.before):
        return "bytes left after send_before"
    return f"bytes left from a row that was {row['state']}" if row["state"] in _CLOSED else None


def nothing_leaves_without_a_lease(moment: Moment) -> str | None:
    """5, A3: what leaves does so under its own lease, unless the delivery is accepted already."""
    task, world = moment.seen.left, moment.before
    if task is None or world.rows.delivery["state"] == State.ACCEPTED:
        return None
    expires = seconds(world.rows.delivery["lease_expires_at"]) or 0.0
    if not world.holds(task):
        return "bytes left under a lease that somebody else has, or nobody"
    return "bytes left under a lease that had lapsed" if expires <= world.now else None


def the_state_is_the_fold(moment: Moment) -> str | None:
    """The delivery's state is the fold of its recipients (while it is sent: what it came from)."""
    row = moment.after.rows.delivery
    folded = fold(RecipientResult(r["result"]) for r in moment.after.rows.of("recipients"))
    state = row["claimed_from"] if row["state"] == State.SENDING else row["state"]
    return None if state == folded else f"the state is {state}, its recipients say {folded}"


def doubt_has_an_attempt(moment: Moment) -> str | None:
    """A row in doubt has an attempt that transmitted and is not settled by a verdict."""
    rows = moment.after.rows
    if rows.delivery["state"] != State.IN_DOUBT:
        return None
    transmitted = any(a["transmitting_at"] is not None for a in rows.of("attempts"))
    return None if transmitted else "a row is in doubt and nothing was ever transmitted"


def requests_are_carried_out(moment: Moment) -> str | None:
    """5, A7: a cancel that was answered "requested" or "cancelled" is never forgotten: the row
    does not wait to be sent again."""
    row, world = moment.after.rows.delivery, moment.after
    waits = row["state"] in {State.PENDING, State.IN_DOUBT}
    if world.stopped in {"Requested", "Cancelled"} and waits:
        return f"the producer was answered {world.stopped}, and the row is {row['state']}"
    return None


INVARIANTS: tuple[Invariant, ...] = (
    nothing_disappears,
    nobody_gets_it_twice,
    second_acceptances_are_marked,
    no_proof_is_false,
    proof_is_kept,
    acceptance_is_monotone,
    final_is_final,
    stale_writes_change_nothing,
    marks_obey_the_row,
    nothing_leaves_too_late,
    nothing_leaves_without_a_lease,
    the_state_is_the_fold,
    doubt_has_an_attempt,
    requests_are_carried_out,
)


def broken(moment: Moment) -> tuple[str, str] | None:
    """The first invariant that does not hold, by name, and why; None when all do."""
    for invariant in INVARIANTS:
        problem = invariant(moment)
        if problem is not None:
            return invariant.__name__, problem
    return None


def _too_late(world: World) -> bool:
    before = seconds(world.rows.delivery["send_before"])
    return before is not None and before <= world.now


def _attempt(world: World, number: int) -> dict[str, Any] | None:
    return next((a for a in world.rows.of("attempts") if a["number"] == number), None)


def _kept(moment: Moment, number: int) -> object | None:
    """The trace that the answer of an attempt has left: its own end, or a row of evidence."""
    evidence = moment.after.rows.of("evidence")
    if any(fact["attempt"] == number for fact in evidence):
        return True
    before, after = _attempt(moment.before, number), _attempt(moment.after, number)
    ended = after is not None and after["outcome"] not in {None, "lost"}
    return ended or (before != after) or None


def _proves(end: object) -> bool:
    match end:
        case Result(Accepted()) | LookUpEnd(Found()):
            return True
        case Result(_, recipients):
            return any(isinstance(each, Accepted) for each in recipients.values())
        case _:
            return False
