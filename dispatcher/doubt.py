"""What to do next about a delivery in doubt. Pure: the order of evidence, with ``now`` given.

A delivery is in doubt when some attempt that may have transmitted has no
verdict. Three means can settle it, and each has a window in which it proves
something:

*Replay* sends the kept request under the same key. It is safe only while the
provider still knows the key, so it must **end** before first transmission +
retention - margin. A replay that starts inside and ends outside may be a new
message.

*Look-up* asks the provider. "Found" counts whenever the row is really ours.
"Not found" counts only if the question was asked after everything that could
still transmit was over, plus the provider's index lag, plus a margin for bytes
that a dead process left in a socket; and before the provider forgets.

*Events* come by themselves. That none came proves nothing; so there is a wait,
and after it the policy decides (``when_unsure``).

Which means there are, and in which order, is the adapter's data. An account
whose identity has changed since the transmission has none of its own left: the
key, and whatever a look-up finds, belong to somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias, assert_never

from outbox.states import HeldReason, WhenUnsure
from providers.contract import Capabilities, MeansName

DRAIN_MARGIN = timedelta(seconds=60)
"""How long bytes of a process that was killed may still be on their way to the provider."""
LOOK_UP_EVERY = timedelta(seconds=15)
"""The first distance between two look-ups; it doubles with each."""


@dataclass(frozen=True, slots=True)
class Doubted:
    """One attempt without a verdict. ``over_at``: nothing of it can still leave after this
    (its end was seen, its lease lapsed, its send deadline passed). ``key_taken``: the provider
    said that it has the key, which a further replay would only hear again."""

    number: int
    identity: str
    over_at: datetime
    key_taken: bool = False


@dataclass(frozen=True, slots=True)
class Doubt:
    """Everything the decision depends on, as read under lock. ``attempts`` is never empty."""

    attempts: tuple[Doubted, ...]
    first_transmitted_at: datetime
    send_before: datetime | None
    request_kept: bool
    budget_left: bool
    when_unsure: WhenUnsure
    extra_used: bool
    look_ups: int
    looked_up_at: datetime | None

    @property
    def over_at(self) -> datetime:
        """When nothing of any attempt can still leave."""
        return max(attempt.over_at for attempt in self.attempts)


@dataclass(frozen=True, slots=True)
class Means:
    """What one account offers to settle doubt."""

    identity: str
    capabilities: Capabilities
    longest_send: timedelta
    replay_margin: timedelta
    evidence_wait: timedelta
    assume_absent_after: timedelta | None = None

    @property
    def counts_absent_after(self) -> timedelta | None:
        """After the end of everything, how long until "not found" counts; None: never."""
        lag = self.capabilities.index_lag
        if lag is not None:
            return timedelta(seconds=lag) + DRAIN_MARGIN
        return self.assume_absent_after


@dataclass(frozen=True, slots=True)
class ReplayNow:
    """Send the kept request again, under the same key."""


@dataclass(frozen=True, slots=True)
class LookUpNow:
    """Ask the provider."""


@dataclass(frozen=True, slots=True)
class SendExtra:
    """Policy: take the risk of a second copy, once."""


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing can be done before ``at``."""

    at: datetime


@dataclass(frozen=True, slots=True)
class HoldAs:
    """A person has to decide."""

    reason: HeldReason


Step: TypeAlias = ReplayNow | LookUpNow | SendExtra | WaitUntil | HoldAs


def next_step(doubt: Doubt, means: Means, now: datetime) -> Step:
    """The next thing to do about ``doubt``; total, so that no row can be forgotten."""
    if any(attempt.identity != means.identity for attempt in doubt.attempts):
        return _without_means(doubt, means, now, HeldReason.ACCOUNT_CHANGED)
    later: list[datetime] = []
    for name in means.capabilities.means:
        step = _by(name, doubt, means, now)
        if isinstance(step, ReplayNow | LookUpNow):
            return step
        if step is not None:
            later.append(step.at)
    if later:
        return WaitUntil(min(later))
    reason = HeldReason.NO_EVIDENCE if doubt.budget_left else HeldReason.EXHAUSTED_IN_DOUBT
    return _without_means(doubt, means, now, reason)


def replay_open(doubt: Doubt, means: Means, now: datetime) -> bool:
    """Whether a replay that starts now ends while the provider still knows the key."""
    if means.capabilities.replay == "none" or not doubt.request_kept:
        return False
    if any(attempt.key_taken for attempt in doubt.attempts):
        return False
    retention = timedelta(seconds=means.capabilities.key_retention)
    end = doubt.first_transmitted_at + retention - means.replay_margin
    return now + means.longest_send < end and not _past(doubt.send_before, now)


def absence_counts(doubt: Doubt, means: Means, begun_at: datetime) -> bool:
    """Whether "not found", asked at ``begun_at``, proves that nothing was taken."""
    after = means.counts_absent_after
    if after is None or begun_at < doubt.over_at + after:
        return False
    forgets = means.capabilities.look_up_retention
    return forgets is None or begun_at < doubt.first_transmitted_at + timedelta(seconds=forgets)


def _by(
    name: MeansName, doubt: Doubt, means: Means, now: datetime
) -> ReplayNow | LookUpNow | WaitUntil | None:
    """What one means can do; None when its window is over."""
    match name:
        case "replay":
            return ReplayNow() if doubt.budget_left and replay_open(doubt, means, now) else None
        case "look_up":
            return _look_up(doubt, means, now)
        case _:
            assert_never(name)


def _look_up(doubt: Doubt, means: Means, now: datetime) -> LookUpNow | WaitUntil | None:
    capabilities = means.capabilities
    forgets = capabilities.look_up_retention
    if capabilities.look_up in {"none", "heuristic"}:
        return None
    if forgets is not None and now >= doubt.first_transmitted_at + timedelta(seconds=forgets):
        return None
    conclusive = means.counts_absent_after
    last = doubt.over_at + (conclusive or means.evidence_wait)
    if doubt.looked_up_at is None:
        return LookUpNow()
    if doubt.looked_up_at >= last:
        return None  # asked when it would have counted, and still not known
    wait = LOOK_UP_EVERY * 2 ** min(doubt.look_ups, 12)
    at = min(doubt.looked_up_at + wait, max(last, doubt.looked_up_at))
    return LookUpNow() if now >= at else WaitUntil(at)


def _without_means(doubt: Doubt, means: Means, now: datetime, reason: HeldReason) -> Step:
    """Events may still come; after the wait for them, the policy decides."""
    hopes = means.capabilities.events or reason is HeldReason.ACCOUNT_CHANGED
    if hopes and now < doubt.over_at + means.evidence_wait:
        return WaitUntil(doubt.over_at + means.evidence_wait)
    may = doubt.when_unsure is WhenUnsure.SEND_AGAIN and not doubt.extra_used
    if not may or reason is HeldReason.ACCOUNT_CHANGED or _past(doubt.send_before, now):
        return HoldAs(reason)
    calm = doubt.over_at + max(DRAIN_MARGIN, means.evidence_wait)
    return SendExtra() if now >= calm else WaitUntil(calm)


def _past(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and now >= instant
