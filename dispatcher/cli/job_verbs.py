"""``postroom jobs retry | cancel``: what people do to one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dispatcher.cli.filters import actor as who
from dispatcher.cli.job_errors import needed, told_clearly
from dispatcher.cli.options import Json, configuration
from dispatcher.cli.output import say, say_json
from dispatcher.cli.verbs import Actor

if TYPE_CHECKING:
    from dispatcher.run_verbs import Done

_Job: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="A job by name.")]
_Subject: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="What the run is about.")
]
_Period: TypeAlias = Annotated[
    str, typer.Argument(metavar="PERIOD", help="The label of its period.")
]
_Reason: TypeAlias = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")
]


def retry(
    context: typer.Context,
    job: _Job,
    subject: _Subject,
    period: _Period,
    *,
    reason: _Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Try a run again that failed for good, was skipped or cancelled, under the same key.

    It has all its attempts anew, and is not too late. Exit code 1 if it is in another state.
    """
    from dispatcher import run_verbs

    note = needed(reason)
    with told_clearly():
        done = run_verbs.retry(
            configuration(context), job, subject, period, actor=who(actor), note=note
        )
    return _tell(done, "the next look of a worker starts it", as_json=as_json)


def cancel(
    context: typer.Context,
    job: _Job,
    subject: _Subject,
    period: _Period,
    *,
    reason: _Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Cancel a run that is planned, running, or failed for good; then it is overdue no more.

    A worker that is at it is refused its commit. Exit code 1 if it is in another state.
    """
    from dispatcher import run_verbs

    note = needed(reason)
    with told_clearly():
        done = run_verbs.cancel(
            configuration(context), job, subject, period, actor=who(actor), note=note
        )
    return _tell(done, "nobody does it", as_json=as_json)


def _tell(done: Done, then: str, *, as_json: bool) -> int:
    if as_json:
        say_json(done)
    elif done.changed:
        say(f"{done.key}: {done.was.value} → {done.is_now.value}; {then}")
    else:
        say(f"{done.key} is {done.was.value}; that is left as it is")
    return 0 if done.changed else 1
