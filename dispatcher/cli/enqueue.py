"""``postroom enqueue``: one delivery from a shell script or another language."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import typer

from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.output import say, say_json, say_note
from dispatcher.cli.words import parse_instant

_SendAfter: TypeAlias = Annotated[
    str | None, typer.Option(metavar="T", help="Not before: 2h, or 2026-11-29T03:00:00Z.")
]
_SendBefore: TypeAlias = Annotated[
    str | None, typer.Option(metavar="T", help="Never after: 3d, or 2026-12-01T00:00:00Z.")
]
_WhenUnsure: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="P", help="hold or send_again, when nothing proves what happened."),
]


def enqueue(
    context: typer.Context,
    *,
    key: Annotated[
        str, typer.Option(metavar="KEY", help="The stable business identity of this delivery.")
    ],
    account: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The account to send by; else the default one."),
    ] = None,
    send_after: _SendAfter = None,
    send_before: _SendBefore = None,
    priority: Annotated[int, typer.Option(metavar="N", help="-100 to 100; higher goes first.")] = 0,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Whose mail it is.")] = None,
    when_unsure: _WhenUnsure = None,
    as_json: Json = False,
) -> int:
    """Write one delivery, with the message as JSON on standard input.

    postroom enqueue --key invoice:7:owner < message.json
    """
    import outbox
    from dispatcher.operator import outbox_engine
    from outbox import migrations

    times = {
        name: None if text is None else _instant(f"--{name.replace('_', '-')}", text)
        for name, text in (("send_after", send_after), ("send_before", send_before))
    }
    config = configuration(context)
    message = outbox.Email.from_json(_standard_input())
    if account is not None and account not in config.accounts:
        say_note(f"no account named {account} is configured here; a dispatcher must know it")
    options: dict[str, Any] = {
        "account": account,
        "priority": priority,
        "tenant": tenant,
        "when_unsure": when_unsure,
        **times,
    }
    with outbox_engine(config) as engine, engine.begin() as connection:
        migrations.check(connection)
        done = outbox.enqueue(connection, message, key=key, **options)
    if as_json:
        say_json(done)
    else:
        say(f"{'created' if done.created else 'known'}  id {done.id}  {done.state}  {done.key}")
    return 0


def _instant(option: str, text: str) -> datetime:
    try:
        return parse_instant(text, now=datetime.now(UTC), ahead=True)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from None


def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise WrongUsage(
            "the message is read from standard input: postroom enqueue --key K < message.json"
        )
    return sys.stdin.buffer.read()
