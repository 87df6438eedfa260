"""What a verb would do, or has done, on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.cli.output import Column, plain, say, say_json, say_table
from dispatcher.cli.words import instant, plural

if TYPE_CHECKING:
    from dispatcher.verb_report import Group, Report

NAMED = 10
"""Second sendings that are named before the rest is only counted."""


def print_report(report: Report, *, as_json: bool) -> int:
    """Print it, and return the exit code: 1 where something was refused, which needs a person."""
    from dispatcher.verb_report import Kind

    if as_json:
        say_json(_json(report))
    elif not report.groups:
        say(f"no delivery matches {report.subject}")
    else:
        _print(report)
    return 1 if report.rows(Kind.REFUSED) else 0


def _json(report: Report) -> dict[str, object]:
    from dispatcher.verb_report import Kind

    return {
        "at": report.at,
        "verb": report.act.value,
        "subject": report.subject,
        "acted": report.acted,
        **{kind.value: report.rows(kind) for kind in Kind},
        "risk": report.risk,
        "groups": [plain(group) for group in report.groups],
        "made": [{"key": each.key, "id": each.id, "resend_of": each.of} for each in report.made],
    }


def _print(report: Report) -> None:
    from dispatcher.verb_report import Kind

    total = sum(group.rows for group in report.groups)
    say(f"{plural(total, 'delivery', 'deliveries')}: {report.subject}", style="bold")
    say()
    say_table(
        [
            Column("COUNT", right=True),
            Column("STATE"),
            Column("ACCOUNT"),
            Column("WHAT WE KNOW", folds=True, spare=True),
            Column("WHAT HAPPENS", folds=True),
        ],
        [_row(group) for group in report.groups],
    )
    say()
    done = report.rows(Kind.DONE)
    if done:
        say(report.risk or "Nobody gets a second copy by this.")
    for each in report.made[:NAMED]:
        say(f"new delivery: {each.key} (id {each.id})")
    if len(report.made) > NAMED:
        say(f"and {len(report.made) - NAMED:,} more")
    say(_end(report, done), style="bold")


def _end(report: Report, done: int) -> str:
    if report.acted:
        return f"Done: {plural(done, 'delivery', 'deliveries')}." if done else "Nothing was done."
    if not done:
        return "Nothing was changed, and there is nothing that this could do."
    return 'Nothing was changed. Add --yes --reason "…" to do it.'


def _row(group: Group) -> tuple[str, ...]:
    from dispatcher.verb_words import KNOWN

    state = f"{group.state}: {group.reason}" if group.reason else group.state.value
    return f"{group.rows:,}", state, group.account, KNOWN[group.situation], _happens(group)


def _happens(group: Group) -> str:
    from dispatcher.verb_words import WHY, WILL

    if group.effect is not None:
        return WILL[group.effect]
    if group.why is None:
        return ""
    if group.kind == "left_alone":
        return f"left alone: {WHY[group.why]}"
    text = f"refused: {WHY[group.why]}"
    if group.instead:
        text += f" → {', or '.join(group.instead)}"
    if group.until is not None:
        text += f"; or this, from {instant(group.until)} on"
    return text
