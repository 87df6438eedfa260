"""Pairs of times that cannot be safe together, or that do not do what somebody expects. Pure.

Each value alone is allowed; it is the pair that is wrong. Four ends are easily confused:

*The lease* says for how long a dispatcher may rely on a row. It is renewed while a send runs,
so it need not be as long as a send, but it must outlast several looks at the clock.

*The retry window* bounds how long we try; *the key retention* bounds how long the provider
recognises a second request as the first. Whichever ends first decides what becomes of doubt.

*The wait for evidence* says when we stop hoping and the policy decides. A policy that sends
again before the evidence can be there makes second copies of what was taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from dispatcher.doubt import DRAIN_MARGIN
from outbox.states import WhenUnsure
from providers.contract import Capabilities

RENEWALS = 3
"""How often a dispatcher should be able to look after a lease before it lapses."""
EVENTS_WITHIN = timedelta(minutes=5)
"""How long the first event about a message may reasonably take: Resend's webhooks are tried
again after 5 s and then after 5 min, and Brevo's batched ones gather for 5 min."""


@dataclass(frozen=True, slots=True)
class LoopTimes:
    """The times of a dispatcher."""

    lease: timedelta
    poll_interval: timedelta
    shutdown_grace: timedelta


@dataclass(frozen=True, slots=True)
class AccountTimes:
    """The times of one account, and what its provider offers.

    longest_send: from the mark until the last byte has left or the answer is given up.
    longest_answer: how long the provider may take once it has the whole message; None where
      the account has no such time-out.
    """

    name: str
    capabilities: Capabilities
    retry_attempts: int
    retry_window: timedelta
    replay_margin: timedelta
    evidence_wait: timedelta
    assume_absent_after: timedelta | None
    when_unsure: WhenUnsure
    longest_send: timedelta
    longest_answer: timedelta | None

    @property
    def replays_end(self) -> timedelta:
        """After the first transmission, until when a replay may still begin."""
        retention = timedelta(seconds=self.capabilities.key_retention)
        return retention - self.replay_margin - self.longest_send


@dataclass(frozen=True, slots=True)
class Finding:
    """One pair. ``key`` is the path of the value to change; ``unsafe``: no dispatcher can make
    it good. Otherwise it works, and may surprise."""

    key: str
    text: str
    unsafe: bool


def findings(loop: LoopTimes, *accounts: AccountTimes) -> tuple[Finding, ...]:
    """What is wrong between the times of a dispatcher and of its accounts."""
    found = [*_renewals(loop)]
    for account in accounts:
        found += _grace(loop, account)
        found += _replays(account)
        found += _look_ups(account)
        found += _policy(account)
    return tuple(found)


def spelled(value: timedelta) -> str:
    """A time for people, in its two largest units: ``23 h 52 min``, ``1 min 30 s``."""
    left = round(value.total_seconds(), 3)
    if left < 60:
        return f"{left:g} s"
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if count := int(left // size):
            parts.append(f"{count} {unit}")
            left -= count * size
        elif parts:
            break
    return " ".join(parts[:2])


def _renewals(loop: LoopTimes) -> Iterator[Finding]:
    if loop.poll_interval * RENEWALS > loop.lease:
        text = (
            f"{spelled(loop.poll_interval)} leaves room for fewer than {RENEWALS} rounds in a "
            f"lease of {spelled(loop.lease)}: one slow round may lose leases"
        )
        yield Finding("dispatcher.poll_interval", text, unsafe=True)


def _grace(loop: LoopTimes, account: AccountTimes) -> Iterator[Finding]:
    longest = account.longest_answer
    if longest is not None and longest > loop.shutdown_grace:
        text = (
            f"{spelled(loop.shutdown_grace)} is shorter than the longest answer of account "
            f"{account.name} ({spelled(longest)}): a stop may cut such a send off and leave it "
            "in doubt"
        )
        yield Finding("dispatcher.shutdown_grace", text, unsafe=False)


def _replays(account: AccountTimes) -> Iterator[Finding]:
    if "replay" not in account.capabilities.means:
        return
    retention = timedelta(seconds=account.capabilities.key_retention)
    path = f"accounts.{account.name}"
    if account.replays_end <= timedelta():
        text = (
            f"{spelled(account.replay_margin)} leaves no time to replay: the provider knows a key "
            f"for {spelled(retention)}, and margin and longest send "
            f"({spelled(account.longest_send)}) use all of it, so doubt is never settled that way"
        )
        yield Finding(f"{path}.replay_margin", text, unsafe=True)
    elif account.retry_window > account.replays_end:
        text = (
            f"{spelled(account.retry_window)} is longer than replays are safe: they end first, "
            f"{spelled(account.replays_end)} after the first transmission (the provider knows a "
            f"key for {spelled(retention)}, less margin and longest send); what is in doubt then "
            f"is {_undecided(account)}"
        )
        yield Finding(f"{path}.retry.window", text, unsafe=False)
    if account.retry_attempts == 1:
        text = (
            "1 is used up by a send whose answer is lost, so that nothing is ever replayed: allow 2"
        )
        yield Finding(f"{path}.retry.attempts", text, unsafe=True)


def _look_ups(account: AccountTimes) -> Iterator[Finding]:
    path, offers = f"accounts.{account.name}", account.capabilities
    asks = "look_up" in offers.means and offers.look_up not in {"none", "heuristic"}
    lag = None if offers.index_lag is None else timedelta(seconds=offers.index_lag)
    if asks and lag is not None and account.evidence_wait < lag:
        text = (
            f"{spelled(account.evidence_wait)} is shorter than the {spelled(lag)} after which a "
            "look-up shows what was taken"
        )
        yield Finding(f"{path}.evidence_wait", text, unsafe=False)
    absent = account.assume_absent_after
    if absent is None:
        return
    if not asks or lag is not None:
        why = f"its index lag is known ({spelled(lag)})" if lag else "its provider has no look-up"
        text = f"has no effect: {why}"
        yield Finding(f"{path}.assume_absent_after", text, unsafe=False)
    elif absent < DRAIN_MARGIN:
        text = (
            f"{spelled(absent)} is too short: bytes of a process that was killed may still arrive "
            f"{spelled(DRAIN_MARGIN)} later, and would be the second copy"
        )
        yield Finding(f"{path}.assume_absent_after", text, unsafe=True)


def _policy(account: AccountTimes) -> Iterator[Finding]:
    path = f"accounts.{account.name}"
    again = account.when_unsure is WhenUnsure.SEND_AGAIN
    if account.capabilities.events and account.evidence_wait < EVENTS_WITHIN:
        text = (
            f"{spelled(account.evidence_wait)} is shorter than the {spelled(EVENTS_WITHIN)} that a "
            f"provider's event may take: what is in doubt is {_undecided(account)} before its "
            "proof can be there"
        )
        yield Finding(f"{path}.evidence_wait", text, unsafe=again)
    elif again and account.evidence_wait < DRAIN_MARGIN:
        text = (
            f"{spelled(account.evidence_wait)} is no quarantine for when_unsure = send_again: bytes "
            f"of a process that was killed may still arrive, so {spelled(DRAIN_MARGIN)} are waited"
        )
        yield Finding(f"{path}.evidence_wait", text, unsafe=False)


def _undecided(account: AccountTimes) -> str:
    return "sent again" if account.when_unsure is WhenUnsure.SEND_AGAIN else "held"
