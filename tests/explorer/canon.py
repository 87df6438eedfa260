"""What makes two states the same: everything a decision, a guard or the provider can tell apart.

Times are relative to now. What lies in the past counts only as far as some window still looks
back at it. Ids, tokens and owners count only as far as they are equal to each other. The two
dispatchers may change places.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from outbox.states import FINAL, AttemptKind
from outbox.store.doubts import DOUBTFUL
from tests.explorer.clock import seconds
from tests.explorer.world import RETENTION, Process, Setting, Task, World

_MANY = 3
"""Counts beyond this are alike."""


def canonical(world: World, setting: Setting) -> Hashable:
    """A value that is equal for equal states."""
    return (
        _delivery(world, setting),
        tuple((r["position"], r["result"]) for r in world.rows.of("recipients")),
        _history(world, setting),
        _account(world),
        _truth(world, setting),
        tuple(sorted(repr(_process(world, p)) for p in world.processes)),
        world.stopped,
        _told(world),
    )


def _ahead(world: World, at: float | None) -> float | None:
    return None if at is None else max(0.0, at - world.now)


def _age(world: World, at: float | None, limit: float) -> float | None:
    return None if at is None else min(limit, world.now - at)


def _horizon(setting: Setting) -> float:
    """How far back anything looks."""
    capabilities = setting.capabilities
    return max(
        capabilities.key_retention if capabilities.replay != "none" else 0.0,
        capabilities.look_up_retention or 0.0,
    )


def _delivery(world: World, setting: Setting) -> Hashable:
    row = world.rows.delivery
    if row["state"] in FINAL and not setting.people:
        return (row["state"], row["reason"], min(row["copies"], _MANY), row["extra_transmission"])
    waits = row["state"] in {"pending", "in_doubt", "sending"}
    return (
        row["state"],
        row["claimed_from"],
        row["held_from"],
        row["stop_requested"],
        row["reason"],
        _ahead(world, seconds(row["due_at"])) if waits else None,
        _ahead(world, seconds(row["send_before"])),
        _ahead(world, seconds(row["lease_expires_at"])),
        _age(world, seconds(row["first_transmitted_at"]), _horizon(setting)),
        row["attempts"],
        min(row["crashes"], _MANY),
        min(row["crashes_alone"], _MANY),
        min(row["copies"], _MANY),
        row["extra_transmission"],
    )


def _history(world: World, setting: Setting) -> Hashable:
    """Attempts that are open or in doubt, with every verdict about them; look-ups by number."""
    idle = not any(process.tasks for process in world.processes)
    if idle and world.rows.delivery["state"] in FINAL and not setting.people:
        return None
    verdicts = world.rows.of("evidence")
    refuted = max(
        (v["attempt"] for v in verdicts if (v["kind"], v["verdict"]) == ("look_up", "not_taken")),
        default=0,
    )
    kept = {request["digest"] for request in world.rows.of("requests")}
    found: list[Hashable] = []
    asked: list[float] = []
    for attempt in world.rows.of("attempts"):
        number = attempt["number"]
        if attempt["kind"] == AttemptKind.LOOK_UP and attempt["started_at"] is not None:
            asked.append(seconds(attempt["started_at"]) or 0.0)
        if attempt["outcome"] is not None and attempt["outcome"] not in DOUBTFUL:
            continue
        about = sorted({(v["kind"], v["verdict"]) for v in verdicts if v["attempt"] == number})
        ends = [attempt["transmitting_at"], attempt["finished_at"]]
        if attempt["outcome"] == "lost":
            ends.append(attempt["deadline_at"])
        over = max((seconds(each) or 0.0 for each in ends if each is not None), default=None)
        found.append(
            (
                attempt["kind"],
                attempt["phase"],
                attempt["outcome"],
                attempt["recipients"],
                attempt["idempotency_key"],
                attempt["request_digest"] in kept,
                _age(world, over, RETENTION),
                number <= refuted,
                tuple(about),
                number == world.rows.delivery["last_attempt"],
            )
        )
    return (tuple(found), len(asked), _age(world, max(asked, default=None), RETENTION))


def _account(world: World) -> Hashable:
    return tuple(
        (
            account["scope"],
            _ahead(world, seconds(account["paused_until"])),
            account["pause_reason"],
            _ahead(world, seconds(account["probe_until"])),
            min(account["failures"], _MANY),
            min(account["consecutive"], _MANY),
        )
        for account in world.rows.of("accounts")
    )


def _truth(world: World, setting: Setting) -> Hashable:
    horizon = _horizon(setting)
    copies = tuple(
        (copy.positions, copy.key, _age(world, copy.at, horizon)) for copy in world.truth.copies
    )
    flying = tuple((f.positions, f.key, f.until - world.now) for f in world.truth.flying)
    return copies, flying


def _told(world: World) -> Hashable:
    return tuple(copy.id in world.told for copy in world.truth.copies)


def _process(world: World, process: Process) -> Hashable:
    lease = process.lease
    known = None
    if lease is not None:
        known = (lease.claimed.token, _ahead(world, lease.deadline))
    newest = world.rows.delivery["lease_token"]
    return (
        tuple(_task(world, task) for task in process.tasks),
        None if known is None else (newest - known[0], known[1]),
        process.suspicious,
        process.quarantined,
        None if process.gate is None else process.gate.unclean,
        world.rows.delivery["lease_owner"] == process.owner,
    )


def _task(world: World, task: Task) -> Hashable:
    claimed: Any = task.claimed
    return (
        world.rows.delivery["lease_token"] - claimed.token,
        claimed.kind,
        claimed.carried,
        claimed.extra,
        claimed.absence_counts,
        task.stage,
        task.latest is not None and _ahead(world, task.latest),
        task.mark is not None and task.mark.recipients,
        repr(task.end),
    )
