"""``postroom deliveries retry | settle | send-again | cancel | hold | release | move``.

Each shows what it would do and changes nothing; ``--yes`` does it. What it may do, and what
to type instead where it may not, is the table of :mod:`dispatcher.verbs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dispatcher.cli.filters import Chosen, actor, choosing
from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.selection import until

if TYPE_CHECKING:
    from dispatcher.verb_subjects import Wish

Yes: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Do it; without this, only show what would be done.")
]
Reason: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Why you do it, for the audit trail; needed with --yes."),
]
Actor: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who you are; else POSTROOM_ACTOR, else user@host."),
]
_SendBefore: TypeAlias = Annotated[
    str | None, typer.Option(metavar="T", help="A new end: 3d, or 2026-12-01T00:00:00Z.")
]


@choosing()
def retry(
    context: typer.Context,
    chosen: Chosen,
    *,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="rejected", help="Also those that the provider refused for good."),
    ] = None,
    send_before: _SendBefore = None,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Try again what provably was not taken, under the same key.

    Takes what failed, expired (with a new --send-before) or is held without doubt. What is
    in doubt is only asked again, with the same key and the same bytes, while its provider
    still knows the key; that can make no second copy. Everything else is refused, with what
    to type instead. Repeating it does no harm.
    """
    from dispatcher.verb_subjects import Act, Wish
    from outbox.states import FailedReason

    for word in include or []:
        if word != FailedReason.REJECTED:
            raise WrongUsage(f'--include: "{word}" is not "rejected"')
    wish = Wish(
        Act.RETRY,
        send_before=until("--send-before", send_before),
        include=frozenset(map(FailedReason, include or [])),
    )
    return _run(context, wish, chosen, yes=yes, reason=reason, name=actor, as_json=as_json)


@choosing()
def settle(
    context: typer.Context,
    chosen: Chosen,
    *,
    as_: Annotated[
        str,
        typer.Option(
            "--as", metavar="WHAT", help="accepted, not-accepted, or unknown (nobody will know)."
        ),
    ],
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Say what became of deliveries in doubt.

    accepted: the provider has it; it is done. not-accepted: it never took it; it is sent
    again under the same key (only after everything that could still be on its way has
    ended). unknown: nobody will ever know; it is closed and never sent again by itself.
    """
    from dispatcher.verb_subjects import SETTLEMENTS, Wish

    if as_ not in SETTLEMENTS:
        raise WrongUsage(f'--as: "{as_}" is none of {", ".join(SETTLEMENTS)}')
    wish = Wish(SETTLEMENTS[as_])
    return _run(context, wish, chosen, yes=yes, reason=reason, name=actor, as_json=as_json)


@choosing()
def send_again(
    context: typer.Context,
    chosen: Chosen,
    *,
    by: Annotated[
        str | None, typer.Option(metavar="ACCOUNT", help="Send it by this account instead.")
    ] = None,
    send_before: _SendBefore = None,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Send it a second time, on purpose.

    That is a new delivery, KEY~2, linked to the first. It goes to whoever does not provably have it; where all have it, to all. Who may get a
    second copy is said before. A held delivery is closed by it as unresolved, and only after
    everything that could still be on its way has ended.
    """
    from dispatcher.verb_subjects import Act, Wish

    wish = Wish(Act.SEND_AGAIN, send_before=until("--send-before", send_before), account=by)
    return _run(context, wish, chosen, yes=yes, reason=reason, name=actor, as_json=as_json)


@choosing()
def cancel(
    context: typer.Context,
    chosen: Chosen,
    *,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Never send it.

    That is certain for what waits; what is in flight is stopped if it is not taken. What is in doubt is held instead: no more transmissions, and a person settles it.
    """
    from dispatcher.verb_subjects import Act, Wish

    wish = Wish(Act.CANCEL)
    return _run(context, wish, chosen, yes=yes, reason=reason, name=actor, as_json=as_json)


@choosing()
def hold(
    context: typer.Context,
    chosen: Chosen,
    *,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Do not send it for now.

    "release" lets it go on from where it was: pending, or in doubt. What is in flight is held
    if it is not taken.
    """
    from dispatcher.verb_subjects import Act, Wish

    wish = Wish(Act.HOLD)
    return _run(context, wish, chosen, yes=yes, reason=reason, name=actor, as_json=as_json)


@choosing()
def release(
    context: typer.Context,
    chosen: Chosen,
    *,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Let go what a person held.

    It goes back to where it was, pending or in doubt. What the rules have held is refused: that wants a decision (retry, settle, send-again).
    """
    from dispatcher.verb_subjects import Act, Wish

    wish = Wish(Act.RELEASE)
    return _run(context, wish, chosen, yes=yes, reason=reason, name=actor, as_json=as_json)


@choosing(without=("to",))
def move(
    context: typer.Context,
    chosen: Chosen,
    *,
    to: Annotated[str, typer.Option(metavar="ACCOUNT", help="The account to send it by.")],
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Send by another account what has never left.

    For a provider that is suspended or down: --from main --to backup. What has left once is
    refused: whether it was taken is one account's word, and the other would not know.
    """
    from dispatcher.verb_subjects import Act, Wish

    wish = Wish(Act.MOVE, account=to)
    return _run(context, wish, chosen, yes=yes, reason=reason, name=actor, as_json=as_json)


def add_verbs(app: typer.Typer) -> None:
    """Add the commands to ``postroom deliveries``."""
    for command in (retry, settle, send_again, cancel, hold, release, move):
        app.command()(command)


def _run(
    context: typer.Context,
    wish: Wish,
    chosen: Chosen,
    *,
    yes: bool,
    reason: str | None,
    name: str | None,
    as_json: bool,
) -> int:
    from dispatcher import operator_verbs
    from dispatcher.cli.verb_tables import print_report
    from dispatcher.verb_subjects import Act

    if yes and not (reason and reason.strip()):
        raise WrongUsage("--reason is missing: say why; it goes into the audit trail")
    config = configuration(context)
    if wish.account is not None and wish.account not in config.accounts:
        known = ", ".join(sorted(config.accounts))
        raise WrongUsage(f"there is no [accounts.{wish.account}]; configured: {known}")
    target = chosen.target(config, needs_state=wish.act is Act.SEND_AGAIN)
    try:
        if yes and reason:
            report = operator_verbs.act(config, wish, target, actor=actor(name), note=reason)
        else:
            report = operator_verbs.preview(config, wish, target)
    except operator_verbs.Unclear as error:
        raise WrongUsage(str(error)) from None
    return print_report(report, as_json=as_json)
