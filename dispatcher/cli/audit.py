"""``postroom audit``: who did what, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.cli.options import Json, configuration
from dispatcher.cli.output import Column, plain, say_json, say_note, say_table
from dispatcher.cli.words import instant

if TYPE_CHECKING:
    from outbox.records_verbs import Audited


def audit(
    context: typer.Context,
    *,
    subject: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Of one delivery's key, account, or filter's text."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="How many at most.")
    ] = 50,
    as_json: Json = False,
) -> int:
    """List what people did to deliveries and accounts, newest first, with their reasons.

    Every delivery that a verb has changed has a line of its own; a verb on a filter has one
    more for each 500 deliveries, with the filter's text.
    """
    from dispatcher import account_verbs

    found = account_verbs.audited(configuration(context), subject=subject, limit=limit)
    if as_json:
        say_json({"entries": [_json(each) for each in found]})
        return 0
    if not found:
        say_note("nothing was done by a person")
        return 0
    say_table(
        [
            Column("AT"),
            Column("WHO", folds=True),
            Column("DID"),
            Column("TO", folds=True),
            Column("BEFORE → AFTER", folds=True, spare=True),
            Column("WHY", folds=True),
        ],
        [
            (instant(e.at), e.actor, e.action, e.subject, f"{_short(e.before)} → {_short(e.after)}", e.note)
            for e in found
        ],
    )  # fmt: skip
    return 0


def _json(each: Audited) -> dict[str, Any]:
    return {**plain(each), "before": _parsed(each.before), "after": _parsed(each.after)}


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _short(text: str | None) -> str:
    parsed = _parsed(text) or {}
    return ", ".join(f"{key} {value}" for key, value in parsed.items()) or "-"
