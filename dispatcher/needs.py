"""What needs a person, and what is only worth knowing. Pure.

A *need* does not get better by itself: rows that only a person can decide, an
account that a provider has blocked, mail that is due while nobody dispatches, a run that
is overdue.
A *note* is worth knowing and needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from dispatcher.status_records import AccountLine, Notice, Setup
from dispatcher.wording import HELD, PAUSED
from outbox.jobs.overdue import Overdue
from outbox.reports import AccountState, DispatcherState, Group, Overview
from outbox.states import HeldReason, PauseReason, State, WaitingFor

NOBODY_FOR = timedelta(minutes=1)
"""How long mail may be due without a dispatcher before somebody has to look."""

BLOCKS = frozenset(
    {
        PauseReason.CREDENTIALS,
        PauseReason.PERMISSION,
        PauseReason.SUSPENDED,
        PauseReason.QUOTA,
        PauseReason.SENDER_DOMAIN,
    }
)
"""Pauses that a provider has caused and that only a person can end for good."""


def undecided(groups: Iterable[Group], state: State, setup: Setup) -> Iterable[Notice]:
    for group in groups:
        if group.state is not state:
            continue
        account = group.account or setup.default_account
        known = setup.accounts.get(account)
        if state is State.HELD:
            detail = HELD[HeldReason(group.reason)] if group.reason else ""
        else:
            detail = "bytes may have left and no answer came back; not sent again"
        command = f"postroom deliveries list --state {state} --account {account}"
        if state is State.HELD and group.reason:
            command += f" --reason {group.reason}"
        yield Notice(
            group.rows,
            "held" if state is State.HELD else "in doubt",
            account,
            known.provider if known else "",
            detail,
            group.oldest,
            command,
        )


def paused_accounts(
    paused: Iterable[AccountState],
    lines: Mapping[str, AccountLine],
    setup: Setup,
    *,
    blocks: bool,
) -> Iterable[Notice]:
    for each in paused:
        if each.pause_reason is None or (each.pause_reason in BLOCKS) is not blocks:
            continue
        waiting = lines[each.account].waiting_for[WaitingFor.ACCOUNT]
        known = setup.accounts.get(each.account)
        what = PAUSED[each.pause_reason]
        if each.pause_detail:
            what += f": {each.pause_detail}"
        yield Notice(
            1,
            "account paused",
            each.account,
            known.provider if known else each.provider,
            f"{what}; next try {_clock(each.paused_until)}; "
            f"{waiting:,} {'delivery waits' if waiting == 1 else 'deliveries wait'}",
            each.paused_since,
            f"postroom accounts show {each.account}",
        )


def nobody(
    seen: Overview,
    slot_since: datetime | None,
    alive: Sequence[DispatcherState],
    lines: Mapping[str, AccountLine],
) -> Iterable[Notice]:
    if alive or slot_since is None or seen.at - slot_since <= NOBODY_FOR:
        return
    due = sum(line.waiting_for[WaitingFor.SLOT] for line in lines.values())
    yield Notice(
        due, "due", "", "", "no dispatcher is alive to send them", slot_since, "postroom dispatch"
    )


def late_runs(overdue: Sequence[Overdue]) -> Iterable[Notice]:
    if overdue:
        count = sum(1 + each.more for each in overdue)
        first = overdue[0]
        detail = f"{'the oldest is ' if count > 1 else ''}{first.key}"
        yield Notice(count, "overdue", "", "", detail, first.overdue_at, "postroom jobs overdue")


def nowhere(setup: Setup) -> Iterable[Notice]:
    known = setup.accounts.get(setup.default_account)
    if known is not None and not known.delivers:
        yield Notice(
            1,
            "default account",
            setup.default_account,
            known.provider,
            "delivers to nobody, so that nothing is sent by accident",
        )


def _clock(instant: datetime | None) -> str:
    return "unknown" if instant is None else f"{instant:%Y-%m-%d %H:%M:%SZ}"
