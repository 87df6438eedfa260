"""``postroom deliveries list`` and ``deliveries show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.output import Column, plain, say, say_json, say_note, say_table, terminal_width
from dispatcher.cli.selection import known_reason, known_states
from dispatcher.cli.selection import since as instant_since
from dispatcher.cli.words import ago, instant

if TYPE_CHECKING:
    from dispatcher.operator import Listed, Page
    from outbox.reports import Group

deliveries_app = typer.Typer(
    help="List deliveries, tell the story of one, and put right what is stuck.",
    rich_markup_mode=None,
    add_completion=False,
)


_State: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="STATE", help="pending, sending, held …; may be repeated."),
]
_Account: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Those that go by this account.")
]
_Key: TypeAlias = Annotated[
    str | None, typer.Option(metavar="PREFIX", help="Those whose key begins so.")
]
_To: TypeAlias = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Those to this address.")
]
_Reason: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--reason",
        "--state-reason",
        metavar="REASON",
        help="Why it is held, failed or cancelled.",
    ),
]
_Tag: TypeAlias = Annotated[str | None, typer.Option(metavar="TAG", help="Those with this tag.")]
_Tenant: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TENANT", help="Those of this tenant.")
]
_RunKey: TypeAlias = Annotated[str | None, typer.Option(metavar="KEY", help="Those of this run.")]
_Since: TypeAlias = Annotated[
    str | None, typer.Option(metavar="T", help="Changed since: 2h, or 2026-11-29T03:00:00Z.")
]
_Limit: TypeAlias = Annotated[
    int, typer.Option(min=1, max=10_000, metavar="N", help="How many at most.")
]
_Before: TypeAlias = Annotated[
    int | None, typer.Option(metavar="ID", help="The page after the one that ended with ID.")
]
_GroupBy: TypeAlias = Annotated[
    str | None, typer.Option(metavar="reason", help="Count them by account, state and reason.")
]


@deliveries_app.command("list")
def list_(
    context: typer.Context,
    *,
    state: _State = None,
    account: _Account = None,
    key: _Key = None,
    to: _To = None,
    reason: _Reason = None,
    tag: _Tag = None,
    tenant: _Tenant = None,
    run_key: _RunKey = None,
    since: _Since = None,
    limit: _Limit = 50,
    before: _Before = None,
    group_by: _GroupBy = None,
    as_json: Json = False,
) -> int:
    """List deliveries, newest first."""
    from dispatcher import operator
    from outbox.reports import Filter

    if group_by not in {None, "reason"}:
        raise WrongUsage(f'--group-by: "{group_by}" is not "reason"')
    wanted = Filter(
        states=known_states(state or []),
        key_prefix=key,
        to=to,
        reason=known_reason(reason, "--reason"),
        tag=tag,
        tenant=tenant,
        run_key=run_key,
        changed_since=instant_since(since),
    )
    config = configuration(context)
    wanted = operator.by_account(config, wanted, account)
    if group_by is not None:
        _print_groups(operator.groups(config, wanted), as_json=as_json)
        return 0
    page = operator.deliveries(config, wanted, limit=limit, before=before)
    _print_page(page, as_json=as_json)
    return 0


@deliveries_app.command()
def show(
    context: typer.Context,
    reference: Annotated[
        str,
        typer.Argument(metavar="KEY", help="Its key, id, public id, Message-ID, or provider's id."),
    ],
    show_bcc: Annotated[
        bool, typer.Option("--show-bcc", help="Show blind recipients, too.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Tell the whole story of one delivery."""
    from dispatcher import operator, operator_verbs
    from dispatcher.cli import story
    from outbox.reports import Buried

    config = configuration(context)
    found = operator.delivery(config, reference, show_bcc=show_bcc)
    if found is None:
        raise WrongUsage(f"no delivery has the key, id, Message-ID or provider's id {reference}")
    if isinstance(found, operator.Several):
        keys = ", ".join(row.key for row in found.rows)
        raise WrongUsage(f"{reference} names {len(found.rows)} deliveries: {keys}")
    if isinstance(found, Buried):
        if as_json:
            say_json({"key": reference, "cleaned_up": True, **plain(found)})
        else:
            say(f"{reference} was {found.state} at {instant(found.finished_at)}; it was cleaned up")
    elif as_json:
        say_json(story.as_json(found))
    else:
        id_ = found.story.summary.id
        story.tell(found)
        story.then_one_of(id_, operator_verbs.suggestions(config, id_))
    return 0


# --------------------------------------------------------------------------- #
# Printing
# --------------------------------------------------------------------------- #


def _print_page(page: Page, *, as_json: bool) -> None:
    if as_json:
        listed = [_json(row) for row in page.rows]
        say_json({"at": page.at, "deliveries": listed, "next_before": page.next_before})
        return
    if not page.rows:
        say_note("no delivery matches")
        return
    relative = terminal_width() is not None
    columns = [
        Column("ID", right=True),
        Column("STATE"),
        Column("ACCOUNT"),
        Column("CHANGED", right=relative),
        Column("TO", folds=True, spare=True),
        Column("KEY", folds=True),
    ]
    rows = [
        (
            str(row.summary.id),
            _state(row),
            row.summary.account,
            ago(row.summary.updated_at, page.at) if relative else instant(row.summary.updated_at),
            _to(row),
            row.summary.key,
        )
        for row in page.rows
    ]
    say_table(columns, rows)
    if page.next_before is not None:
        say_note(f"there are more: --before {page.next_before}")


def _state(row: Listed) -> str:
    detail = row.waiting_for or row.summary.reason
    return f"{row.summary.state}: {detail}" if detail else row.summary.state.value


def _to(row: Listed) -> str:
    people = row.summary.recipients
    if not people:
        return "-"
    more = f" +{len(people) - 1}" if len(people) > 1 else ""
    return people[0].address + more


def _json(row: Listed) -> dict[str, object]:
    found = plain(row.summary)
    return {**found, "waiting_for": plain(row.waiting_for)}


def _print_groups(groups: tuple[Group, ...], *, as_json: bool) -> None:
    if as_json:
        say_json({"groups": groups})
        return
    if not groups:
        say_note("no delivery matches")
        return
    say_table(
        [
            Column("COUNT", right=True),
            Column("STATE"),
            Column("REASON"),
            Column("ACCOUNT", folds=True),
            Column("OLDEST"),
        ],
        [
            (
                f"{group.rows:,}",
                group.state.value,
                group.reason or "-",
                group.account,
                instant(group.oldest),
            )
            for group in groups
        ],
    )
