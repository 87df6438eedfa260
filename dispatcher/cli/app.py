"""The commands of ``postroom``, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli import version
from dispatcher.cli.accounts import accounts_app
from dispatcher.cli.audit import audit
from dispatcher.cli.config import config_app
from dispatcher.cli.deliveries import deliveries_app
from dispatcher.cli.dispatch import dispatch
from dispatcher.cli.enqueue import enqueue
from dispatcher.cli.init import init
from dispatcher.cli.jobs import jobs_app
from dispatcher.cli.migrate import migrate
from dispatcher.cli.rehearse import rehearse
from dispatcher.cli.schema import schema_app
from dispatcher.cli.status import status
from dispatcher.cli.verbs import add_verbs
from dispatcher.cli.web import web

EXIT_CODES = "Exit codes: 0 fine, 1 something needs a person, 2 wrong usage, 3 cannot tell."

app = typer.Typer(
    name="postroom",
    help="Transactional outbox and delivery dispatcher.",
    epilog=EXIT_CODES + " --config and --debug may stand behind any command.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"postroom {version()}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def postroom(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The configuration file; else POSTROOM_CONFIG, else postroom.toml."
        ),
    ] = None,
    debug: Annotated[  # noqa: ARG001 - read by run(), which shows the traceback
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
    show_version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> int:
    context.obj = config
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return 2
    return 0


app.command()(init)
app.command()(migrate)
app.command()(dispatch)
app.command()(rehearse)
app.command()(status)
add_verbs(deliveries_app)
app.add_typer(deliveries_app, name="deliveries")
app.add_typer(accounts_app, name="accounts")
app.add_typer(jobs_app, name="jobs")
app.command()(web)
app.command()(audit)
app.command()(enqueue)
app.add_typer(config_app, name="config")
app.add_typer(schema_app, name="schema")
