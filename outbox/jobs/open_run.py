"""``open_run``: the beginning and the end of working on a run, for both colours.

The database is asked in short calls that block. ``async with`` makes them in a thread, so
that the event loop goes on; there is no second implementation.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal

from sqlalchemy import Engine

from outbox.jobs.opening import engine_for, open_one
from outbox.jobs.requests import Revision, RunRequest, request
from outbox.jobs.rules import Period
from outbox.jobs.run import Run
from outbox.jobs.run_keys import EVERYTHING


def open_run(
    job: str,
    *,
    subject: str | int = EVERYTHING,
    period: Period | str,
    inputs: Mapping[str, Any] | None = None,
    input_version: str | None = None,
    database: str | None = None,
    revision: Revision = None,
    again: bool = False,
    useful_for: timedelta | None = None,
    overdue_after: timedelta | None = None,
    overlap: Literal["wait", "skip", "allow"] = "wait",
    lease: timedelta = timedelta(seconds=60),
    attempts: int | None = 10,
    permanent: tuple[type[BaseException], ...] = (),
    expects: Mapping[str, Any] | None = None,
) -> OpenRun:
    """Work on a run, if it is to be worked on: ``with outbox.open_run(…) as run``.

    job, subject, period: what the run is, and all that it is. A period is a
      ``Period``, or a label of your own where there is no calendar (a checksum).
    inputs, input_version: what the result depends on: plain JSON values, and a version of
      what is too large for them. They are stored: no secrets.
    database: a URL; left out, the configured one (``POSTROOM_DATABASE__URL`` or
      ``postroom.toml``). Lease and beat have connections of their own to it.
    revision: ``"new"`` makes one more revision if the run has succeeded from other inputs;
      a number names one.
    again: start it also if it has failed for good, was skipped or cancelled, or is too late.
    useful_for: how long after its due instant it may start; later it is skipped.
    overdue_after: how long after its due instant it is overdue if it is not complete.
    overlap: what to do while another run of this job and subject is running: not now
      (``wait``), not at all (``skip``), or at the same time (``allow``).
    lease: how long the run stays ours without a sign of life; renewed every third of it.
    attempts: how many the run has before it has failed for good; None: any number.
    permanent: classes of errors that no repetition mends.
    expects: ``{"records": 1, "output": True}``: with less, finishing is refused.

    Entering raises InputChanged if the run has succeeded from other inputs, KeyConflict
    if its label is known with other bounds, InvalidDatabase, SchemaTooOld, SchemaTooNew or
    RetryTransaction. The call itself raises InvalidKey, InvalidMessage or ValueError for an
    argument. An error that leaves the block is written down with its traceback, and goes on;
    leaving it without ``run.finish`` raises RunNotFinished.
    """
    wanted = request(
        job,
        subject=subject,
        period=period,
        inputs=inputs,
        input_version=input_version,
        revision=revision,
        again=again,
        useful_for=useful_for,
        overdue_after=overdue_after,
        overlap=overlap,
        lease=lease,
        attempts=attempts,
        permanent=permanent,
        expects=expects,
    )
    return OpenRun(wanted, lambda: engine_for(database), dispose=True)


class OpenRun:
    """What ``open_run`` returns: to be entered once, with ``with`` or ``async with``.

    ``dispose``: whether the engine is this object's own.
    """

    def __init__(self, request: RunRequest, engine: Callable[[], Engine], *, dispose: bool) -> None:
        self._request = request
        self._make_engine = engine
        self._dispose = dispose
        self._engine: Engine | None = None
        self._run: Run | None = None

    def __enter__(self) -> Run:
        engine = self._engine = self._make_engine()
        try:
            opened = open_one(engine, self._request, owner())
            self._run = Run(engine, self._request, opened)
        except BaseException:
            self._end_engine()
            raise
        return self._run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._run is not None:
                self._run._left(error)
        finally:
            self._end_engine()

    async def __aenter__(self) -> Run:
        entering = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError as cancelled:
            # The thread goes on, and may have claimed the run: nobody would ever give it back.
            with suppress(Exception):
                await entering
                await asyncio.to_thread(self.__exit__, None, cancelled, None)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))

    def _end_engine(self) -> None:
        if self._dispose and self._engine is not None:
            self._engine.dispose()


def owner() -> str:
    """A name for the holder of a lease: host and process for people, and what nobody else has."""
    return f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(8)}"
