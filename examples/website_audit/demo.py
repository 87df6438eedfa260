"""What ``make demo`` shows: a first run, a second run, and a crash just before COMMIT.

Every step is a process of its own, as in real life, and what it did is counted
in the database and in the mail folder afterwards. The demo ends with exit code
1, and one line that says why, as soon as something is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from examples.website_audit import customers
from examples.website_audit.ledger import Books, Counts
from examples.website_audit.report import plural
from examples.website_audit.stage import REPOSITORY, DemoFailed, Stage, check, shown

WEEK = "2026-W48"
SCRATCH_LEASE = 2
"""Seconds: on the scratch database nobody should have to wait a minute for a dead process."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when everything held, 1 when something did not."""
    parser = argparse.ArgumentParser(prog="python -m examples.website_audit.demo")
    parser.add_argument("--var", type=Path, default=REPOSITORY / "var", help="kept between runs")
    parser.add_argument(
        "--site",
        default=os.environ.get("SITE"),
        help="audit this folder or URL instead of the three examples (default: $SITE)",
    )
    given = parser.parse_args(arguments)
    who = (customers.for_site(given.site),) if given.site else customers.examples()
    stage = Stage(given.var.resolve() / "demo", WEEK, who, site=given.site or None)
    print(f"A weekly website audit: {plural(len(who), 'site')}, week {WEEK}, one mail for each.")
    try:
        first_run(stage)
        second_run(stage)
        with tempfile.TemporaryDirectory(prefix="postroom-demo-") as scratch:
            crash(Stage(Path(scratch), WEEK, customers.examples(), lease=SCRATCH_LEASE))
        what_next(stage)
    except DemoFailed as problem:
        print(f"\nFAILED: {problem}", flush=True)
        return 1
    return 0


def first_run(stage: Stage) -> None:
    """Write the reports with their deliveries, then let the dispatcher deliver."""
    _heading("1. First run: report and mail are written in one transaction, then delivered")
    stage.prepare()
    before = stage.books()
    stage.run_job()
    written = stage.books()
    _check_complete(stage, written)
    check(written.mails == before.mails, "the job sent mail itself; only the dispatcher may")
    runs = written.counts.runs - before.counts.runs
    if runs:
        rows = written.counts.rows - before.counts.rows
        deliveries = written.counts.deliveries - before.counts.deliveries
        _say(f"Written: {plural(rows, 'report row')}, {plural(deliveries, 'pending delivery')}.")
    else:
        _say("Everything is there already, from an earlier demo. Nothing was written.")
    stage.dispatch()
    after = stage.books()
    _check_delivered(stage, after)
    sent = len(after.mails) - len(before.mails)
    _say(f"Delivered: {plural(sent, 'mail')}." if sent else "Nothing was sent a second time.")


def second_run(stage: Stage) -> None:
    """The same again changes nothing at all."""
    _heading("2. Second run: the same week again")
    before = stage.books()
    stage.run_job()
    stage.dispatch()
    check(stage.books() == before, "the second run changed the database or sent mail")
    rows, mails = plural(before.counts.rows, "report row"), plural(len(before.mails), "mail")
    _say(f"Nothing was written and nothing was sent again: still {rows} and {mails}.")


def crash(stage: Stage) -> None:
    """Kill the job between its last write and COMMIT, and look what is left."""
    _heading("3. A crash just before COMMIT, on a scratch database")
    stage.prepare()
    ended = stage.run_job(module="examples.website_audit.crash", expect=-signal.SIGKILL)
    check(
        " 1 run," in ended and " 1 delivery" in ended and " 0 report rows" not in ended,
        f"the job was killed before it had written everything: {ended!r}",
    )
    _say("The job was killed (SIGKILL) with all that written and not committed.")
    stage.dispatch()
    left = stage.books()
    check(left.counts == Counts(), f"the crash left something behind: {left.counts.describe()}")
    check(not left.mails, "mail was sent for a transaction that was never committed")
    _say(f"Left behind: {left.counts.describe()}, 0 mails.")
    _say(
        f"The run stays the dead process's for {SCRATCH_LEASE} s; its lease is not renewed any more."
    )
    time.sleep(SCRATCH_LEASE)
    stage.run_job()
    stage.dispatch()
    after = stage.books()
    _check_complete(stage, after)
    _check_delivered(stage, after)
    _say(f"The next run did it all: {after.counts.describe()}, {plural(len(after.mails), 'mail')}.")


def what_next(stage: Stage) -> None:
    """Where the mails are, and what to type next."""
    _heading("4. Look around")
    for mail in stage.books().mails:
        print(f"   {shown(stage.mail_folder / mail)}")
    config = shown(stage.config)
    for command in (
        "status",
        "deliveries list",
        f"deliveries show {stage.keys[0]}",
    ):
        print(f"   .venv/bin/postroom {command} --config {config}")
    print("   SITE=folder-or-URL make demo        audits a site of your own")


def _check_complete(stage: Stage, books: Books) -> None:
    for key in stage.keys:
        check(key in books.states, f"{key} is not in the outbox")
    counts = books.counts
    check(
        counts.rows == counts.findings,
        f"{counts.findings} findings are promised, but {counts.rows} report rows are there",
    )
    check(
        counts.runs == counts.deliveries,
        f"{counts.runs} runs are complete, but there are {counts.deliveries} deliveries",
    )


def _check_delivered(stage: Stage, books: Books) -> None:
    for key, state in books.states.items():
        check(state == "accepted", f"{key} is {state}, not accepted")
    accepted, mails = books.counts.accepted, len(books.mails)
    folder = shown(stage.mail_folder)
    check(
        accepted == mails,
        f"{plural(accepted, 'delivery')} accepted, but {folder} holds {plural(mails, 'mail')}; "
        f"if you removed some, remove {shown(stage.folder)} as well to start afresh",
    )


def _heading(text: str) -> None:
    print(f"\n{text}", flush=True)


def _say(text: str) -> None:
    print(f"   => {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
