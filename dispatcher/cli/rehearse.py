"""``postroom rehearse``: the failure drill, before anything real depends on it."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.output import cleaned, paired, say, say_json, say_note, terminal_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispatcher.config import Account, Config
    from dispatcher.rehearse.drill import Drill
    from dispatcher.rehearse.report import Line, Report
    from dispatcher.rehearse.runner import Progress


def rehearse(
    context: typer.Context,
    *,
    account: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose times are rehearsed; else the default account."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="DRILL", help="Play only this drill; may stand several times."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Also send one real mail through the account, to --to."),
    ] = False,
    to: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Who gets the real mail of --live.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Play what goes wrong, with your configuration, in a scratch database.

    Nothing real is touched and nothing is sent (but for --live). Exit code 1 if anything went
    otherwise than it must.
    """
    from dispatcher.rehearse import report as reports
    from dispatcher.rehearse.runner import DRILLS, rehearse

    config = configuration(context)
    chosen = _account(config, account)
    drills = _chosen(DRILLS, only)
    if live or to is not None:
        drills = [*drills, _live(config, chosen, live=live, to=to)]
    for library in ("psycopg", "sqlalchemy"):
        # What is cut and killed on purpose is no news; without a handler it would be on stderr.
        logging.getLogger(library).addHandler(logging.NullHandler())
    on_terminal = terminal_width() is not None and not as_json
    try:
        report = rehearse(config, chosen, drills, _progress(on_terminal=on_terminal))
    except KeyboardInterrupt:
        say_note("interrupted: the scratch database is gone, and nothing was told")
        return 3
    if as_json:
        say_json(reports.as_data(report))
    else:
        _print(report)
    return 1 if report.misses else 0


def _account(config: Config, name: str | None) -> Account:
    wanted = name or config.defaults.account
    if wanted not in config.accounts:
        known = ", ".join(sorted(config.accounts))
        raise WrongUsage(f'there is no account "{wanted}"; configured: {known}')
    return config.accounts[wanted]


def _chosen(drills: Sequence[Drill], only: list[str] | None) -> list[Drill]:
    names = [drill.name for drill in drills]
    for name in only or ():
        if name not in names:
            raise WrongUsage(f'there is no drill "{name}"; there are {", ".join(names)}')
    return [drill for drill in drills if not only or drill.name in only]


def _live(config: Config, account: Account, *, live: bool, to: str | None) -> Drill:
    from dispatcher.config import ConfigError
    from dispatcher.config_report import unreadable
    from dispatcher.rehearse.live import drill
    from outbox.addresses import Address

    if not live:
        raise WrongUsage("--to is the address of --live: write both, or neither")
    if to is None:
        raise WrongUsage("--live sends a real mail: say to whom with --to ADDRESS")
    if not account.capabilities.delivers:
        raise WrongUsage(
            f'account "{account.name}" ({account.provider}) delivers to nobody, so there is '
            "nothing to try with --live: name one that delivers with --account"
        )
    if config.defaults.sender is None:
        raise WrongUsage('--live needs a sender: set "from" under [defaults]')
    if missing := unreadable(config):
        raise ConfigError(missing)
    return drill(account, str(Address.parse(to, "--to")))


def _progress(*, on_terminal: bool) -> Progress:
    from dispatcher.rehearse.runner import Progress

    def begins(number: int, count: int, tried: str) -> None:
        if on_terminal:
            sys.stdout.write(cleaned(f"{number:>3}/{count}  {tried} … "))
            sys.stdout.flush()

    def ends(line: Line) -> None:
        if on_terminal:
            say(line.verdict, style="green" if line.ok else "bold red")

    return Progress(begins, ends)


def _print(report: Report) -> None:
    from dispatcher.rehearse import report as reports

    width = terminal_width()
    if width is not None:
        say()
    _wrapped(reports.head(report))
    say()
    head, *lines = reports.table(report, width)
    say(head, style="bold")
    for line in lines:
        say(line, style="bold red" if line.startswith("MISS") else "")
    say()
    for text in reports.tail(report):
        _wrapped(text)


def _wrapped(text: str) -> None:
    for line in paired("", cleaned(text), 0, 0, terminal_width()):
        say(line)
