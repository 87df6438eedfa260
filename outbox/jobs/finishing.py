"""The one transaction of a run: its results, its deliveries, and that it is complete.

    with run.finish(connection) as tx:
        connection.execute(…)
        tx.enqueue(message, name="owner")

The transaction begins here (``BEGIN IMMEDIATE`` on SQLite), and its first statement is the
guard: the run is ``running``, and the token is ours. From then on nobody can take the run
over before the transaction ends. Its last statement makes the run ``succeeded``. If either
finds nothing to change, somebody newer owns the run, and everything is rolled back.

It touches one row of the outbox besides the deliveries: the run's. The attempt, where lease
and beat are, is ended after the commit by a transaction of our own; if the process dies in
between, the next rescue ends it.

Whatever happens here can happen again: an exception rolls back and leaves the run ours, so
that ``run.finish`` may be entered once more after a RetryTransaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from sqlalchemy import Engine
from sqlalchemy.orm import Session, scoped_session

from outbox import connections
from outbox.connections import Rows, Work
from outbox.deliveries import Enqueued
from outbox.errors import InvalidDatabase, LeaseLost, NotInTransaction
from outbox.jobs.run_keys import delivery_key
from outbox.message import Email
from outbox.options import options as chosen
from outbox.producer import writing
from outbox.records_runs import Result, RunClaim
from outbox.states import State
from outbox.states_jobs import RunState
from outbox.store import run_commits


class Finishable(Protocol):
    """What the transaction needs of a run."""

    key: str
    deliveries: bool
    _engine: Engine

    @property
    def attempt(self) -> int | None: ...

    def _claimed(self) -> RunClaim: ...

    def _result(self) -> Result: ...

    def _completed(self, enqueued: Iterable[Enqueued]) -> None: ...


class RunTransaction:
    """What a job has inside ``with run.finish(connection) as tx``."""

    def __init__(self, run: Finishable, connection: Any) -> None:
        self.run = run
        self.connection = connection
        self.enqueued: dict[str, Enqueued] = {}
        self._open = True

    @property
    def session(self) -> Session:
        """The SQLAlchemy session of this transaction. Raises TypeError if it has none."""
        if isinstance(self.connection, scoped_session):
            session: Session = self.connection()
            return session
        if isinstance(self.connection, Session):
            return self.connection
        raise TypeError(
            "this transaction is on the connection that was given to run.finish, which is no "
            "SQLAlchemy Session; use that"
        )

    def enqueue(self, message: Email, *, name: str | int, **options: Any) -> Enqueued:
        """Write a delivery of this run, in this transaction.

        name: what it is within the run; its key is the run's key, ``:`` and the name.
        options: those of :func:`outbox.enqueue` but ``key`` and ``own_transaction``.

        A run without deliveries (a backfill that was not asked for them) writes nothing; then
        ``id`` is 0 and ``state`` is ``cancelled``. Raises what :func:`outbox.enqueue` raises.
        """
        work, key = self._work(message, name, options)
        if work is None:
            return _left_out(key)
        return self._keep(connections.run(self.connection, work))

    def _work(
        self, message: Email, name: str | int, options: dict[str, Any]
    ) -> tuple[Work[Enqueued] | None, str]:
        if not self._open:
            raise NotInTransaction(
                f"the transaction of {self.run.key} has ended; enqueue inside the block of run.finish"
            )
        key = delivery_key(self.run.key, name)
        given = replace(chosen(**options), run_key=self.run.key)
        work = writing(message, key, given)
        return (work if self.run.deliveries else None), key

    def _keep(self, done: Enqueued) -> Enqueued:
        self.enqueued.setdefault(done.key, done)
        return done

    def _end(self) -> None:
        self._open = False


class AsyncRunTransaction(RunTransaction):
    """The same inside ``async with run.finish(connection) as tx``."""

    async def enqueue(  # type: ignore[override]
        self, message: Email, *, name: str | int, **options: Any
    ) -> Enqueued:
        """Write a delivery of this run, in this transaction; see :class:`RunTransaction`."""
        work, key = self._work(message, name, options)
        if work is None:
            return _left_out(key)
        return self._keep(await connections.run_async(self.connection, work))


def _left_out(key: str) -> Enqueued:
    return Enqueued(0, key, created=False, state=State.CANCELLED)


class Finish:
    """What ``run.finish(connection)`` returns: to be entered with ``with`` or ``async with``."""

    def __init__(self, run: Finishable, connection: Any) -> None:
        self._run = run
        self._connection = connection
        self._sync: AbstractContextManager[RunTransaction] | None = None
        self._async: AbstractAsyncContextManager[AsyncRunTransaction] | None = None

    def __enter__(self) -> RunTransaction:
        self._sync = _finishing(self._run, self._connection)
        return self._sync.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sync is not None:
            self._sync.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncRunTransaction:
        self._async = _finishing_async(self._run, self._connection)
        return await self._async.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._async is not None:
            await self._async.__aexit__(kind, error, trace)


@contextmanager
def _finishing(run: Finishable, connection: Any) -> Iterator[RunTransaction]:
    if connection is None:
        with Session(run._engine) as session, _finishing(run, session) as tx:
            yield tx
        return
    claim = run._claimed()
    tx = RunTransaction(run, connection)
    with connections.opened(connection, "run.finish", nested=False):
        if not connections.run(connection, lambda d: run_commits.guard(d, claim.key, claim.token)):
            raise _refused(run, connections.run(connection, _standing(run), writes=False))
        try:
            yield tx
        finally:
            tx._end()
        result = run._result()
        done = connections.run(
            connection, lambda d: run_commits.complete(d, claim.key, claim.token, result)
        )
        if not done:
            raise _refused(run, connections.run(connection, _standing(run), writes=False))
    run._completed(tx.enqueued.values())


@asynccontextmanager
async def _finishing_async(run: Finishable, connection: Any) -> AsyncIterator[AsyncRunTransaction]:
    claim = run._claimed()
    tx = AsyncRunTransaction(run, connection)
    do = connections.run_async
    async with connections.opened_async(connection, "run.finish"):
        if not await do(connection, lambda d: run_commits.guard(d, claim.key, claim.token)):
            raise _refused(run, await do(connection, _standing(run), writes=False))
        try:
            yield tx
        finally:
            tx._end()
        result = run._result()
        if not await do(
            connection, lambda d: run_commits.complete(d, claim.key, claim.token, result)
        ):
            raise _refused(run, await do(connection, _standing(run), writes=False))
    await asyncio.to_thread(run._completed, tx.enqueued.values())


def _standing(run: Finishable) -> Work[Rows]:
    return lambda dialect: run_commits.standing(dialect, run.key)


def _refused(run: Finishable, rows: Rows) -> Exception:
    """Why the guard changed nothing."""
    if not rows:
        return InvalidDatabase(
            f"{run.key} is not in the database of this connection: give run.finish one to the "
            "database in which the run was opened (open_run(…, database=…))"
        )
    state, _, newest = rows[0]
    if state == RunState.RUNNING:
        why = f"attempt {newest} has taken it over"
    else:
        why = f"it is {state} by now"
    return LeaseLost(
        f"{run.key}: attempt {run.attempt} does not own this run any more, {why}; nothing of this "
        "transaction is written"
    )
