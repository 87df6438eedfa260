"""``postroom config check`` and ``config show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.cli.options import Json, configuration, given_file
from dispatcher.cli.output import Column, say, say_json, say_note, say_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispatcher.config_file import Problem

config_app = typer.Typer(
    help="Check and show the configuration.", rich_markup_mode=None, add_completion=False
)


@config_app.command()
def check(
    context: typer.Context,
    production: Annotated[
        bool,
        typer.Option("--production", help="Refuse a default account that delivers to nobody."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Say every problem at once, or "ok". Secrets are read, and never printed."""
    from dispatcher import config_report
    from dispatcher.config import ConfigError, load

    warnings: Sequence[Problem] = ()
    try:
        config = load(given_file(context))
    except ConfigError as error:
        problems = list(error.problems)
    else:
        problems = [*config_report.unreadable(config), *config_report.unreadable_web(config)]
        if production:
            problems += config_report.unfit_for_production(config)
        warnings = config_report.warnings(config)
    if as_json:
        say_json({"ok": not problems, "problems": problems, "warnings": warnings})
    else:
        for problem in problems:
            say(str(problem))
        for warning in warnings:
            say(f"warning: {warning}")
        if not problems:
            say("ok")
    return 2 if problems else 0


@config_app.command()
def show(context: typer.Context, as_json: Json = False) -> int:
    """Show every effective value and where it came from; secrets as references only."""
    from dispatcher.config_report import sources

    config = configuration(context)
    found = sources(config)
    if as_json:
        say_json({"file": config.file, "settings": found})
        return 0
    if config.file is None:
        say_note("no postroom.toml here: these are the defaults and the environment")
    say_table(
        [Column("KEY"), Column("VALUE", folds=True), Column("FROM", folds=True)],
        [(setting.key, _value(setting.value), setting.source) for setting in found],
    )
    return 0


def _value(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case list():
            return ", ".join(map(_value, value))
        case _:
            return str(value)
