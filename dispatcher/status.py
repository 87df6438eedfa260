"""How the outbox is doing: what the tables say, given what is configured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from dispatcher.needs import late_runs, nobody, nowhere, paused_accounts, undecided
from dispatcher.status_records import AccountLine, LastHour, Setup, Status
from dispatcher.waiting import waiting_for
from outbox.jobs.overdue import Overdue
from outbox.reports import AccountState, Overview
from outbox.states import State, WaitingFor


def status(seen: Overview, setup: Setup, overdue: Sequence[Overdue] = ()) -> Status:
    """What ``seen`` means, given what is configured. ``overdue``: runs, oldest first."""
    paused = {
        each.account: each
        for each in seen.accounts
        if not each.scope and each.paused_until is not None and each.paused_until > seen.at
    }
    lines = _lines(seen, setup, paused)
    alive = tuple(d for d in seen.dispatchers if d.seen_at > seen.at - setup.lease)
    slot_since = _slot_since(seen, setup, paused)
    needs = [
        *undecided(seen.open, State.IN_DOUBT, setup),
        *undecided(seen.open, State.HELD, setup),
        *paused_accounts(paused.values(), lines, setup, blocks=True),
        *nobody(seen, slot_since, alive, lines),
        *late_runs(overdue),
    ]
    notes = [*paused_accounts(paused.values(), lines, setup, blocks=False), *nowhere(setup)]
    return Status(
        version=setup.version,
        server=seen.server,
        database=setup.database,
        revision=seen.revision,
        current=seen.revision == setup.schema_needed,
        at=seen.at,
        needs=tuple(needs),
        notes=tuple(notes),
        accounts=tuple(lines.values()),
        last_hour=_last_hour(seen, slot_since),
        dispatchers=alive,
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` (0 to 1) of ``values`` do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(0, rank - 1)]


# --------------------------------------------------------------------------- #
# Numbers
# --------------------------------------------------------------------------- #


def _lines(
    seen: Overview, setup: Setup, paused: Mapping[str, AccountState]
) -> dict[str, AccountLine]:
    waiting: dict[str, dict[WaitingFor, int]] = {}
    for group in seen.pending:
        account = group.account or setup.default_account
        word = waiting_for(
            due=group.due, attempted=group.attempted, account_paused=account in paused
        )
        counts = waiting.setdefault(account, dict.fromkeys(WaitingFor, 0))
        counts[word] += group.rows
    opened: dict[tuple[str, State], int] = {}
    for each in seen.open:
        place = (each.account or setup.default_account, each.state)
        opened[place] = opened.get(place, 0) + each.rows
    names = sorted({*setup.accounts, *waiting, *(account for account, _ in opened), *paused})
    providers = {each.account: each.provider for each in seen.accounts if not each.scope}
    return {
        name: AccountLine(
            account=name,
            provider=_provider(name, setup, providers),
            delivers=setup.accounts[name].delivers if name in setup.accounts else True,
            paused=paused[name].pause_reason if name in paused else None,
            paused_until=paused[name].paused_until if name in paused else None,
            waiting_for=waiting.get(name, dict.fromkeys(WaitingFor, 0)),
            sending=opened.get((name, State.SENDING), 0),
            in_doubt=opened.get((name, State.IN_DOUBT), 0),
            held=opened.get((name, State.HELD), 0),
        )
        for name in names
    }


def _provider(name: str, setup: Setup, published: Mapping[str, str]) -> str:
    if name in setup.accounts:
        return setup.accounts[name].provider
    return published.get(name, "")


def _slot_since(
    seen: Overview, setup: Setup, paused: Mapping[str, AccountState]
) -> datetime | None:
    times = [
        group.oldest
        for group in seen.pending
        if group.due and (group.account or setup.default_account) not in paused
    ]
    return min(times, default=None)


def _last_hour(seen: Overview, slot_since: datetime | None) -> LastHour:
    return LastHour(
        accepted=seen.finished.get(State.ACCEPTED, 0),
        failed=seen.finished.get(State.FAILED, 0),
        expired=seen.finished.get(State.EXPIRED, 0),
        median_seconds=percentile(seen.latencies, 0.5),
        p99_seconds=percentile(seen.latencies, 0.99),
        oldest_slot_seconds=None if slot_since is None else (seen.at - slot_since).total_seconds(),
    )
