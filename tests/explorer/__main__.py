"""``python -m tests.explorer``: explore as deep as wanted, and say how much was seen."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.explorer.clock import Clock
from tests.explorer.machine import Machine, Violation
from tests.explorer.plans import MILESTONES, SETTINGS, WITH_PEOPLE
from tests.explorer.search import Search, Tally
from tests.explorer.stores import MemoryStore, migrated
from tests.explorer.world import Setting

HEAD = f"{'provider, policy':34} {'steps':>5} {'states':>9} {'transitions':>11} {'seconds':>8}"


def explore(
    setting: Setting, template: Path, depth: int, limit: int | None, via: Sequence[str]
) -> Tally | str:
    """One setting; the report of a violation, if there is one."""
    store = MemoryStore(Clock(), template)
    try:
        return Search(Machine(setting, store)).run(depth, via=via, limit=limit)
    except Violation as violation:
        return str(violation)
    finally:
        store.close()


def line(setting: Setting, tally: Tally) -> str:
    """One row of the table."""
    more = "" if not tally.complete else "  (all there is)"
    return (
        f"{setting!s:34} {tally.deepest:5} {tally.states:9,} {tally.transitions:11,} "
        f"{tally.seconds:8.1f}{more}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore; 1 if an invariant does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.explorer", description=__doc__)
    parser.add_argument("--depth", type=int, default=7, help="steps from the start")
    parser.add_argument("--limit", type=int, help="states of each setting, at most")
    parser.add_argument("--jobs", type=int, help="processes; as many as there are processors")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument(
        "--milestones", action="store_true", help="start from each milestone, not from the enqueue"
    )
    given = parser.parse_args(arguments)
    starts = [each.via for each in MILESTONES] if given.milestones else [()]
    wanted = [(s, via) for s in (*SETTINGS, *WITH_PEOPLE) for via in starts if given.only in str(s)]
    print(HEAD)
    failures = 0
    totals = Tally()
    with migrated() as template, ProcessPoolExecutor(given.jobs) as pool:
        work = partial(explore, template=template, depth=given.depth, limit=given.limit)
        found = [pool.submit(work, setting, via=via) for setting, via in wanted]
        for (setting, _), each in zip(wanted, found, strict=True):
            result = each.result()
            if isinstance(result, str):
                failures += 1
                print(f"VIOLATION {result}", flush=True)
                continue
            totals.states += result.states
            totals.transitions += result.transitions
            print(line(setting, result), flush=True)
    print(f"{totals.states:,} states and {totals.transitions:,} transitions; {failures} violations")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
