"""``postroom jobs backfill order | list | pause | resume | cancel``: periods of the past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from dispatcher.cli.filters import actor as who
from dispatcher.cli.job_errors import needed, told_clearly
from dispatcher.cli.options import Json, configuration
from dispatcher.cli.output import Column, plain, say, say_json, say_note, say_table
from dispatcher.cli.verbs import Actor, Reason, Yes
from dispatcher.cli.words import instant, plural, span

if TYPE_CHECKING:
    from datetime import timedelta

    from dispatcher.backfill_verbs import Seen
    from outbox.jobs.backfill import Prospect
    from outbox.jobs.decide_backfill import Wanted
    from outbox.records_backfills import Backfill

backfill_app = typer.Typer(
    help="Run past periods: look first, order, pause, cancel.",
    rich_markup_mode=None,
    add_completion=False,
)

_Id: TypeAlias = Annotated[int, typer.Argument(metavar="ID", help="Its number.")]
_Why: TypeAlias = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")
]


@backfill_app.command()
def order(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job by name.")],
    *,
    first: Annotated[
        str,
        typer.Option("--from", metavar="PERIOD", help="The first period: a label, or a local date."),
    ],
    last: Annotated[
        str, typer.Option("--to", metavar="PERIOD", help="The last one, inclusive.")
    ],
    subject: Annotated[
        list[str] | None,
        typer.Option(metavar="SUBJECT", help="Only of this subject; may be repeated."),
    ] = None,
    runs_per_hour: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Start no more than N in an hour.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="N", help="Work on no more than N at once.")
    ] = 1,
    deliveries: Annotated[
        bool, typer.Option("--deliveries", help="Also send what its runs enqueue; else it is left out.")
    ] = False,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Order a range of past periods to be run; without --yes, only show what that would do.

    Periods that have succeeded are left out. Its runs have keys of their own, start after
    live ones, and never more at once than were ordered.
    """
    from dispatcher import backfill_verbs
    from outbox.jobs.decide_backfill import Wanted

    wanted = Wanted(job, first, last, tuple(subject or ()), runs_per_hour, concurrency, deliveries)
    note = needed(reason) if yes else ""
    config = configuration(context)
    id_: int | None = None
    with told_clearly():
        if yes:
            done = backfill_verbs.order(config, wanted, actor=who(actor), note=note)
            id_, found = done.id, done.prospect
        else:
            found = backfill_verbs.look(config, wanted)
    if as_json:
        say_json({"id": id_, "wanted": wanted, **_seconds(found)})
    else:
        _print(wanted, found)
        say(_end(id_, found, yes=yes), style="bold")
    return 0


@backfill_app.command("list")
def list_(
    context: typer.Context,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are done or cancelled.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="How many at most.")
    ] = 50,
    as_json: Json = False,
) -> int:
    """List backfills, newest first: how far, how fast, and why one is paused.

    Exit code 1 if one is paused because its job has changed.
    """
    from dispatcher import backfill_verbs

    at, found = backfill_verbs.listed(configuration(context), everything=everything, limit=limit)
    if as_json:
        say_json({"at": at, "backfills": [_json(each) for each in found]})
    elif not found:
        say_note("there are no backfills" if everything else "no backfill is active or paused")
    else:
        _table(found)
    return 1 if any(each.needs_a_person for each in found) else 0


@backfill_app.command()
def pause(
    context: typer.Context,
    id_: _Id,
    *,
    reason: _Why = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Start nothing more of one until it is resumed. What is running goes on."""
    from dispatcher import backfill_verbs

    note = needed(reason)
    with told_clearly():
        done = backfill_verbs.pause(configuration(context), id_, actor=who(actor), note=note)
    return _tell(done, "paused", as_json=as_json)


@backfill_app.command()
def resume(
    context: typer.Context,
    id_: _Id,
    *,
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Also if its job has changed: go on with what is now."),
    ] = False,
    reason: _Why = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Go on with one that is paused."""
    from dispatcher import backfill_verbs

    note = needed(reason)
    with told_clearly():
        done = backfill_verbs.resume(
            configuration(context), id_, accept=accept_changes, actor=who(actor), note=note
        )
    return _tell(done, "resumed", as_json=as_json)


@backfill_app.command()
def cancel(
    context: typer.Context,
    id_: _Id,
    *,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """End one: what of it nobody works on is cancelled, what is running may finish."""
    from dispatcher import backfill_verbs
    from outbox.states_jobs import RunState

    config = configuration(context)
    with told_clearly():
        if yes:
            done, count = backfill_verbs.cancel(config, id_, actor=who(actor), note=needed(reason))
            if as_json:
                say_json({"cancelled_runs": count, "backfill": plain(done)})
            else:
                say(f"{_named(done)}: cancelled, and {plural(count, 'run')} of it")
            return 0
        seen = backfill_verbs.one(config, id_)
    if as_json:
        say_json(_json(seen))
        return 0
    running = seen.counts.of(RunState.RUNNING)
    say(f"{_named(seen.order)} is {seen.order.state.value}: {plural(seen.left, 'run')} to do")
    say(f"cancelled would be {plural(seen.left - running, 'run')}; {running} may finish")
    say('Nothing was changed. Add --yes --reason "…" to do it.', style="bold")
    return 0


# --------------------------------------------------------------------------- #
# Printing
# --------------------------------------------------------------------------- #


def _print(wanted: Wanted, found: Prospect) -> None:
    say(
        f"{wanted.job}: {wanted.first} to {wanted.last}, {plural(found.subjects, 'subject')}",
        style="bold",
    )
    say()
    mail = "their deliveries leave" if wanted.deliveries else "what they enqueue is left out"
    rows = [
        (found.runs, "failed, skipped, or never run", f"run; {mail}"),
        (found.succeeded, "succeeded", "left out"),
        (found.under_way, "planned or running already", "left out"),
    ]
    say_table(
        [
            Column("PERIODS", right=True),
            Column("WHAT WE KNOW", folds=True),
            Column("WHAT HAPPENS", folds=True),
        ],
        [(f"{count:,}", known, happens) for count, known, happens in rows if count],
    )
    say()
    if found.oldest:
        say(f"The first is {found.oldest}, the last {found.newest}.")
        say(f"{_pace(wanted)}: {_time(found.takes)}.")


def _pace(wanted: Wanted) -> str:
    limit = wanted.runs_per_hour
    rate = "without a limit" if limit is None else f"{limit:,} an hour at most"
    return f"{wanted.concurrency} at once, {rate}"


def _time(takes: timedelta | None) -> str:
    if takes is None:
        return "nobody knows how long that takes"
    return f"about {span(takes)}" if takes.total_seconds() >= 1 else "less than a second"


def _end(id_: int | None, found: Prospect, *, yes: bool) -> str:
    if id_ is not None:
        return f"Ordered: backfill {id_}. See postroom jobs backfill list"
    if yes or not found.runs:
        return "Nothing was changed, and there is nothing that this could do."
    return 'Nothing was changed. Add --yes --reason "…" to order it.'


def _table(found: tuple[Seen, ...]) -> None:
    say_table(
        [
            Column("ID", right=True),
            Column("JOB", folds=True),
            Column("FROM"),
            Column("TO"),
            Column("done", right=True),
            Column("failed", right=True),
            Column("left", right=True),
            Column("STATE", folds=True),
            Column("ORDERED BY", folds=True, spare=True),
        ],
        [_row(each) for each in found],
    )


def _row(each: Seen) -> tuple[str, ...]:
    from outbox.states_jobs import RunState

    order, counts = each.order, each.counts
    return (
        str(order.id),
        order.job,
        order.first,
        order.last,
        f"{counts.of(RunState.SUCCEEDED):,}",
        f"{counts.of(RunState.FAILED):,}",
        f"{each.left:,}",
        _state(each),
        f"{order.ordered_by}: {order.note or ''}",
    )


def _state(each: Seen) -> str:
    order = each.order
    if order.pause_reason is not None:
        return f"paused: {order.pause_detail}"
    if order.finished_at is not None:
        return f"{order.state.value} {instant(order.finished_at)}"
    mail = ", deliveries leave" if order.deliveries else ""
    return f"active, {_time(each.takes)}{mail}"


def _json(each: Seen) -> dict[str, Any]:
    takes = None if each.takes is None else each.takes.total_seconds()
    return {
        **plain(each.order),
        "runs": plain(each.counts.by_state),
        "left": each.left,
        "takes_seconds": takes,
        "needs_a_person": each.needs_a_person,
    }


def _seconds(found: Prospect) -> dict[str, Any]:
    values: dict[str, Any] = plain(found)
    values.pop("takes")
    return {**values, "takes_seconds": found.takes.total_seconds() if found.takes else None}


def _named(order: Backfill) -> str:
    return f"backfill {order.id} of {order.job}"


def _tell(done: Backfill, verb: str, *, as_json: bool) -> int:
    if as_json:
        say_json(plain(done))
    else:
        say(f"{_named(done)}: {verb}")
    return 0
