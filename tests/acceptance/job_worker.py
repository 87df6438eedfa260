"""A job as a process of its own: it can wait, be killed before any statement, or come in crowds.

    python -m tests.acceptance.job_worker work URL LABEL [--lease SECONDS] [--wait] [--stop]
    python -m tests.acceptance.job_worker crowd URL LABEL COUNT
    python -m tests.acceptance.job_worker killed URL

``work`` opens the run, computes one row, and commits it with one delivery. With ``--wait`` it
reads from its standard input what to do next (``check``, ``finish``) once its results are
ready. With ``--stop`` it stops itself (SIGSTOP) before the first statement of its commit.

``crowd`` forks that many of them, which begin at the same moment.

``killed`` forks one after the other, the n-th killed before its n-th statement or commit, then
lets the lease of the dead lapse and starts the same run again; until one survives.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

import outbox
from outbox.database import open_engine
from tests.conformance.job_rig import lapse
from tests.conformance.ledger import mail, raw

JOB = "report"


def work(
    url: str,
    label: str,
    *,
    lease: float = 60,
    wait: bool = False,
    stop: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """One start of the job."""
    application = open_engine(url)
    if stop:
        _stop_before_the_commit(application)
    with outbox.open_run(
        JOB, subject="s", period=label, database=url, lease=timedelta(seconds=lease)
    ) as run:
        if not run.mine:
            say(run.explain())
            return
        result = sum(range(1000))
        say(f"ready {run.attempt}")
        for line in sys.stdin if wait else ["finish"]:
            try:
                if line.strip() == "check":
                    run.check()
                    say("still ours")
                    continue
                with Session(application) as session, run.finish(session) as tx:
                    session.execute(
                        text("INSERT INTO results (label, result) VALUES (:label, :result)"),
                        {"label": label, "result": result},
                    )
                    tx.enqueue(mail(), name="owner")
                break
            except outbox.LeaseLost as error:
                say(f"lost: {error}")
                if line.strip() == "finish":
                    raise
        say(run.explain())


def _stop_before_the_commit(engine: Engine) -> None:
    stopped = False

    @event.listens_for(engine, "before_cursor_execute")
    def stop(*arguments: Any) -> None:
        nonlocal stopped
        if not stopped and not str(arguments[2]).startswith(("PRAGMA", "SHOW", "SELECT")):
            stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)


def _kill_before(number: int) -> None:
    """SIGKILL before the ``number``-th statement or commit of any engine in this process."""
    count = 0

    def reached(*arguments: Any) -> None:
        nonlocal count
        del arguments
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", reached)
    event.listen(Engine, "commit", reached)


def _forked(child: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    except BaseException as error:  # noqa: BLE001
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)
    os._exit(0)


def _crowd(url: str, label: str, count: int) -> None:
    go, start = os.pipe()

    def child() -> None:
        os.close(start)
        os.read(go, 1)
        work(url, label, say=lambda line: print(line, flush=True))

    children = [_forked(child) for _ in range(count)]
    os.close(start)
    for pid in children:
        print("status", os.waitpid(pid, 0)[1], flush=True)


def _killed(url: str) -> None:
    number, status = 0, signal.SIGKILL.value
    while status:
        number += 1
        label = f"n{number}"

        def dying(number: int = number, label: str = label) -> None:
            _kill_before(number)
            work(url, label, say=lambda _: None)

        def again(label: str = label) -> None:
            work(url, label, say=lambda _: None)

        _, status = os.waitpid(_forked(dying), 0)
        rows, mails, state = _standing(url, label)
        print(number, "killed" if status else "survived", rows, mails, state, flush=True)
        lapse(url)
        _, ended = os.waitpid(_forked(again), 0)
        print(number, "again" if not ended else "failed", *_standing(url, label), flush=True)


def _standing(url: str, label: str) -> tuple[int, int, str]:
    with raw(url) as connection:
        return tuple(
            connection.execute(
                f"SELECT (SELECT count(*) FROM results WHERE label = '{label}'), "
                f"(SELECT count(*) FROM outbox_deliveries WHERE run_key = '{JOB}:s:{label}'), "
                f"coalesce((SELECT state FROM outbox_runs WHERE label = '{label}'), 'none')"
            ).fetchone()
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.job_worker")
    parser.add_argument("mode", choices=["work", "crowd", "killed"])
    parser.add_argument("url")
    parser.add_argument("label", nargs="?", default="")
    parser.add_argument("count", nargs="?", type=int, default=1)
    parser.add_argument("--lease", type=float, default=60)
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--stop", action="store_true")
    given = parser.parse_args()
    if given.mode == "crowd":
        _crowd(given.url, given.label, given.count)
    elif given.mode == "killed":
        _killed(given.url)
    else:
        with suppress(outbox.LeaseLost):
            work(
                given.url,
                given.label,
                lease=given.lease,
                wait=given.wait,
                stop=given.stop,
                say=lambda line: print(line, flush=True),
            )


if __name__ == "__main__":
    main()
