"""``postroom schema``: what is published for other languages."""

from __future__ import annotations

import json

import typer

schema_app = typer.Typer(
    help="Published schemas.", no_args_is_help=False, rich_markup_mode=None, add_completion=False
)


@schema_app.callback()
def schemas() -> None:
    """Published schemas."""


@schema_app.command()
def message() -> int:
    """Print the JSON Schema of a message."""
    from outbox.message_schema import message_schema

    print(json.dumps(message_schema(), indent=2, ensure_ascii=False))
    return 0
