"""Who gets how much of a round, and what a round says of its accounts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from outbox.records import AccountReport, Gate, Lane, Settlement, Standing


def shares(
    lanes: Sequence[Lane],
    gates: Mapping[str, Gate],
    *,
    want: int,
    turn: int,
    probed: Collection[str] = (),
) -> list[Lane]:
    """Accounts whose gate is open, each with its share of ``want``, so that none starves another.

    ``turn`` rotates who is first; ``probed`` have their one probe already.
    """
    open_ = [
        lane
        for lane in lanes
        if gates[lane.account].most != 0
        and not (gates[lane.account].most == 1 and lane.account in probed)
    ]
    if not open_:
        return []
    first = turn % len(open_)
    ordered = open_[first:] + open_[:first]
    found = []
    for index, lane in enumerate(ordered):
        share = -(-want // (len(ordered) - index))
        most = gates[lane.account].most
        share = share if most is None else min(share, most)
        found.append(replace(lane, limit=share))
        want -= share
    return [lane for lane in found if lane.limit > 0]


def reports(settlements: Sequence[Settlement]) -> list[AccountReport]:
    """What the answers of one round say of each account."""
    by_account: dict[str, list[Settlement]] = defaultdict(list)
    for each in settlements:
        if each.standing is not Standing.SILENT:
            by_account[each.attempt.account].append(each)
    return [
        AccountReport(
            account,
            worked=sum(each.standing is Standing.WORKS for each in said),
            troubled=sum(each.standing is Standing.TROUBLED for each in said),
            words=said[-1].last_error or "",
        )
        for account, said in by_account.items()
    ]
