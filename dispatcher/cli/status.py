"""``postroom status``: does anything need me, and which command do I type next."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

from dispatcher.cli.options import Json, configuration
from dispatcher.cli.output import Column, cleaned, paired, say, say_json, say_table, terminal_width
from dispatcher.cli.words import ago, instant, plural, seconds, span

if TYPE_CHECKING:
    from dispatcher.status_records import AccountLine, Notice, Status


def status(context: typer.Context, as_json: Json = False) -> int:
    """Does anything need a person? Exit code 1 if something does."""
    from dispatcher import operator
    from dispatcher.cli.output import plain

    found = operator.status(configuration(context))
    if as_json:
        say_json({"needs_a_person": found.needs_a_person, **plain(found)})
    else:
        _print(found)
    return 1 if found.needs_a_person else 0


def _print(found: Status) -> None:
    current = "current" if found.current else "not current"
    parts = (
        f"postroom {found.version}",
        found.server,
        found.database,
        f"schema {found.revision} ({current})",
        instant(found.at),
    )
    say(" · ".join(parts))
    say()
    if found.needs:
        say("NEEDS YOU", style="bold red")
        _notices(found.needs, found)
    else:
        say("Nothing needs you.", style="bold green")
    if found.notes:
        say()
        say("NOTE", style="bold")
        _notices(found.notes, found)
    say()
    _accounts(found.accounts)
    say()
    _last_hour(found)
    _dispatchers(found)


def _notices(notices: Iterable[Notice], found: Status) -> None:
    for each in notices:
        label = f"{each.count:>5,} {each.what}"
        who = f"{each.account} ({each.provider})" if each.provider else each.account
        text = f"{who}: {each.detail}" if who else each.detail
        if each.since is not None:
            text += f"; since {span(found.at - each.since)}"
        for line in paired(cleaned(label), cleaned(text), 24, 0, terminal_width()):
            say(line)
        if each.command:
            say(" " * 24 + each.command, style="dim")


_COLUMNS = (
    Column("ACCOUNT", folds=True),
    Column("PROVIDER"),
    Column("a slot", right=True),
    Column("retry", right=True),
    Column("account", right=True),
    Column("its time", right=True),
    Column("sending", right=True),
    Column("in doubt", right=True),
    Column("held", right=True),
)


def _accounts(lines: Iterable[AccountLine]) -> None:
    from outbox.states import WaitingFor

    words = (WaitingFor.SLOT, WaitingFor.RETRY, WaitingFor.ACCOUNT, WaitingFor.SCHEDULE)
    rows = [
        (
            line.account,
            line.provider or "not configured",
            *(f"{line.waiting_for[word]:,}" for word in words),
            f"{line.sending:,}",
            f"{line.in_doubt:,}",
            f"{line.held:,}",
        )
        for line in lines
    ]
    say_table(_COLUMNS, rows, group=(2, 5, "pending, waiting for"))


def _last_hour(found: Status) -> None:
    hour = found.last_hour
    text = (
        f"Last hour: {hour.accepted:,} accepted, {hour.failed:,} failed, {hour.expired:,} expired."
    )
    if hour.median_seconds is not None:
        text += (
            f"  Due to accepted: median {seconds(hour.median_seconds)}, "
            f"p99 {seconds(hour.p99_seconds)}."
        )
    if hour.oldest_slot_seconds is not None:
        text += f"  Oldest waiting for a slot: {span(timedelta(seconds=hour.oldest_slot_seconds))}."
    _wrapped(text)


def _dispatchers(found: Status) -> None:
    alive = found.dispatchers
    if not alive:
        say("Dispatchers: none alive.")
        return
    shown = "; ".join(
        f"{each.host}:{each.pid} seen {ago(each.seen_at, found.at)}, "
        f"{each.slots_used} of {plural(each.slots, 'slot')}"
        for each in alive[:10]
    )
    more = f"; and {len(alive) - 10} more" if len(alive) > 10 else ""
    _wrapped(f"Dispatchers: {len(alive)} alive ({shown}{more}).")


def _wrapped(text: str) -> None:
    for line in paired("", cleaned(text), 0, 0, terminal_width()):
        say(line)
