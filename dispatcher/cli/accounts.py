"""``postroom accounts list | show | pause | resume | test``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dispatcher.cli.filters import actor as who
from dispatcher.cli.options import Json, WrongUsage, configuration
from dispatcher.cli.output import Column, say, say_json, say_pairs, say_table
from dispatcher.cli.verbs import Actor
from dispatcher.cli.words import instant, next_clock_time, parse_instant, seconds, span

if TYPE_CHECKING:
    from dispatcher.account_verbs import Paused, Seen

accounts_app = typer.Typer(
    help="See, stop, start and test the accounts that mail goes out by.",
    rich_markup_mode=None,
    add_completion=False,
)

_Names: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Accounts by name.")
]
_All: TypeAlias = Annotated[bool, typer.Option("--all", help="Every account that is known.")]
_Reason: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why, for the audit trail.")
]


@accounts_app.command("list")
def list_(context: typer.Context, as_json: Json = False) -> int:
    """List the accounts: which are paused, why, and what waits for them."""
    from dispatcher import account_verbs

    at, found = account_verbs.seen(configuration(context))
    if as_json:
        say_json({"at": at, "accounts": found})
        return 0
    columns = [
        Column("ACCOUNT", folds=True),
        Column("PROVIDER"),
        Column("pending", right=True),
        Column("sending", right=True),
        Column("in doubt", right=True),
        Column("held", right=True),
        Column("STATE", folds=True),
    ]
    say_table(columns, [_row(each) for each in found])
    return 0


@accounts_app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    as_json: Json = False,
) -> int:
    """Show one account: why it does not send, what it promises."""
    from dispatcher import account_verbs

    at, found = account_verbs.seen(configuration(context))
    account = next((each for each in found if each.account == name), None)
    if account is None:
        known = ", ".join(each.account for each in found)
        raise WrongUsage(f"there is no account {name}; known: {known}")
    if as_json:
        say_json({"at": at, "account": account})
    else:
        _print(account, at)
    return 0


@accounts_app.command()
def pause(
    context: typer.Context,
    names: _Names = None,
    *,
    everything: _All = False,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="T", help="Until: 2h, 06:00 (UTC), or an instant; else until it is resumed."
        ),
    ] = None,
    reason: _Reason = None,
    actor: Actor = None,
) -> int:
    """Stop accounts, for every dispatcher, at once.

    Nothing more of theirs is claimed. What is in flight is finished; what waits stays pending
    and loses no attempt, and its retry window stands still. send_before keeps running.
    """
    from dispatcher import account_verbs

    note = _needed(reason)
    end = None if until is None else _until(until)
    try:
        done = account_verbs.pause(
            configuration(context),
            _named(names, everything),
            until=end,
            actor=who(actor),
            note=note,
        )
    except account_verbs.UnknownAccounts as error:
        raise WrongUsage(str(error)) from None
    words = f"until {instant(end)}" if end else 'until "postroom accounts resume"'
    say(f"paused {words}: {', '.join(done)}")
    return 0


@accounts_app.command()
def resume(
    context: typer.Context,
    names: _Names = None,
    *,
    everything: _All = False,
    reason: _Reason = None,
    actor: Actor = None,
) -> int:
    """End any pause of accounts, whoever made it.

    Their failures start anew. An account that its provider still refuses is paused again by
    the first answer.
    """
    from dispatcher import account_verbs

    note = _needed(reason)
    try:
        done = account_verbs.resume(
            configuration(context), _named(names, everything), actor=who(actor), note=note
        )
    except account_verbs.UnknownAccounts as error:
        raise WrongUsage(str(error)) from None
    say(f"resumed: {', '.join(done)}" if done else "nothing was paused")
    return 0


@accounts_app.command("test")
def send_one(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    to: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to send one mail.")],
    *,
    sender: Annotated[
        str | None, typer.Option("--from", metavar="ADDRESS", help="Else [defaults] from.")
    ] = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    """Send one real mail by an account, and see.

    It is a delivery of its own and is tried once, also while the account is paused. Exit code
    0: the provider took it; 1: it did not, or nobody knows.
    """
    import asyncio

    from dispatcher import trial

    config = configuration(context)
    if name not in config.accounts:
        raise WrongUsage(
            f"there is no [accounts.{name}]; configured: {', '.join(sorted(config.accounts))}"
        )
    try:
        tried = asyncio.run(trial.trial(config, name, to=to, sender=sender, actor=who(actor)))
    except trial.NoTrial as error:
        raise WrongUsage(str(error)) from None
    if as_json:
        say_json(tried)
        return 0 if tried.taken else 1
    answer = ", ".join(
        str(part)
        for part in (tried.status_code, tried.reason, tried.detail, tried.provider_message_id)
        if part
    )
    words = "took it" if tried.taken else "did not take it"
    if tried.state == "in_doubt":
        words = "may have taken it"
    say(f"{name} ({tried.provider}) {words} after {seconds(tried.seconds)}", style="bold")
    say_pairs(
        [("answer", f"{tried.outcome}: {answer}" if answer else tried.outcome)], label_width=10
    )
    say_pairs([("more", f"postroom deliveries show {tried.id}")], label_width=10)
    return 0 if tried.taken else 1


# --------------------------------------------------------------------------- #
# Options
# --------------------------------------------------------------------------- #


def _named(names: list[str] | None, everything: bool) -> list[str] | None:
    if bool(names) is everything:
        raise WrongUsage("name accounts, or say --all")
    return names or None


def _needed(reason: str | None) -> str:
    if reason and reason.strip():
        return reason
    raise WrongUsage("--reason is missing: say why; it goes into the audit trail")


def _until(text: str) -> datetime:
    now = datetime.now(UTC)
    try:
        end = next_clock_time(text, now) or parse_instant(text, now=now, ahead=True)
    except ValueError as error:
        raise WrongUsage(f"--until: {error}") from None
    if end <= now:
        raise WrongUsage(f"--until: {text} has passed")
    return end


# --------------------------------------------------------------------------- #
# Printing
# --------------------------------------------------------------------------- #


def _row(each: Seen) -> tuple[str, ...]:
    numbers = ("0", "0", "0", "0")
    if each.line is not None:
        pending = sum(each.line.waiting_for.values())
        counts = (pending, each.line.sending, each.line.in_doubt, each.line.held)
        numbers = tuple(f"{count:,}" for count in counts)  # type: ignore[assignment]
    return each.account, each.provider or "not configured", *numbers, _state(each)


def _state(each: Seen) -> str:
    if each.pauses:
        return "; ".join(_pause(pause) for pause in each.pauses)
    return "" if each.configured else "not configured here"


def _pause(pause: Paused) -> str:
    from dispatcher.wording import PAUSED

    where = f" for {pause.scope}" if pause.scope else ""
    end = f"until {instant(pause.until)}" if pause.until else "until it is resumed"
    detail = f" ({pause.detail})" if pause.detail else ""
    return f"paused{where} {end}: {PAUSED[pause.reason]}{detail}"


def _print(each: Seen, at: datetime) -> None:
    kind = each.provider or "not configured"
    say(
        f"{each.account} ({kind})" + (", the default account" if each.default else ""), style="bold"
    )
    say()
    pairs = [("State", _state(each) or "open")]
    pairs += [("Paused by", _by(pause, at)) for pause in each.pauses]
    if each.failures:
        pairs.append(("Pauses in a row", f"{each.failures}"))
    if each.line is not None:
        waits = ", ".join(
            f"{count:,} for {word}" for word, count in each.line.waiting_for.items() if count
        )
        pairs.append(("Waiting", waits or "nothing"))
        line = each.line
        pairs.append(
            ("Open", f"{line.sending:,} sending, {line.in_doubt:,} in doubt, {line.held:,} held")
        )
    pairs += [("If in doubt", text) for text in [_means(each)] if text]
    pairs.append(("Identity", each.identity or "not published yet"))
    say_pairs(pairs, label_width=18)
    say()
    say("Then one of", style="bold")
    verb = "resume" if each.pauses else "pause"
    say(f'  postroom accounts {verb} {each.account} --reason "…"')
    if each.configured:
        say(f"  postroom accounts test {each.account} --to ADDRESS")
    say(f"  postroom deliveries list --account {each.account} --group-by reason")


def _by(pause: Paused, at: datetime) -> str:
    since = f", {span(at - pause.since)} ago" if pause.since else ""
    return f"{pause.by or 'unknown'}{since}"


def _means(each: Seen) -> str:
    """What the provider offers to settle doubt, in one line."""
    offers = each.capabilities
    if offers is None:
        return ""
    words = []
    for name in offers.means:
        if name == "replay":
            words.append(f"asked again under the same key, within {_time(offers.key_retention)}")
        else:
            lag = "" if offers.index_lag is None else f", sure after {_time(offers.index_lag)}"
            words.append(f"looked up ({offers.look_up}{lag})")
    if offers.events:
        words.append("events")
    return "; ".join(words) or "nothing proves what was taken: a person decides"


def _time(value: float) -> str:
    return span(timedelta(seconds=value))
