"""The fence of a run, as steps for any connection: first and last statement of its commit.

The first locks the run's row and asks for two things only: the state is ``running``, and the
token is ours. It does not ask for the lease. A lease that has lapsed while nobody took the
run over is harmless, and reading it in an older snapshot would refuse a healthy job. From
there on nobody can take the run over until the transaction ends.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, String, Text, bindparam, null, select

from outbox import schema_jobs
from outbox.columns import now
from outbox.connections import Query, Rows, Steps
from outbox.records_runs import Result

_R = schema_jobs.runs

_ours = (
    (_R.c.run_key == bindparam("of_key", type_=String()))
    & (_R.c.state == "running")
    & (_R.c.token == bindparam("of_token", type_=BigInteger()))
)
_guard = _R.update().where(_ours).values(updated_at=now()).returning(_R.c.id)
_complete = (
    _R.update()
    .where(_ours)
    .values(
        state="succeeded",
        finished_at=now(),
        updated_at=now(),
        last_error=null(),
        duration=bindparam("seconds", type_=Float()),
        records=bindparam("how_many", type_=BigInteger()),
        output=bindparam("where_to", type_=Text()),
        output_summary=bindparam("what", type_=Text()),
    )
    .returning(_R.c.id)
)
_standing = select(_R.c.state, _R.c.token, _R.c.last_attempt).where(
    _R.c.run_key == bindparam("of_key", type_=String())
)


def guard(dialect: str, key: str, token: int) -> Steps[bool]:
    """Whether the run is ours; then nobody takes it over before this transaction ends."""
    del dialect
    rows = yield Query(_guard, {"of_key": key, "of_token": token})
    return bool(rows)


def complete(dialect: str, key: str, token: int, result: Result) -> Steps[bool]:
    """Make the run ``succeeded``; False if it is not ours."""
    del dialect
    rows = yield Query(
        _complete,
        {
            "of_key": key,
            "of_token": token,
            "seconds": result.seconds,
            "how_many": result.records,
            "where_to": result.output,
            "what": result.summary,
        },
    )
    return bool(rows)


def standing(dialect: str, key: str) -> Steps[Rows]:
    """State, token and newest attempt of a run; nothing if it is not in this database."""
    del dialect
    return (yield Query(_standing, {"of_key": key}))
