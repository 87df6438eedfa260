"""One delivery on the screen: what we know, what happens, and everything that happened so far."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dispatcher.cli.output import plain, say, say_pairs
from dispatcher.cli.words import instant, plural, size

if TYPE_CHECKING:
    from dispatcher.mail_summary import MailSummary
    from dispatcher.operator import Shown
    from dispatcher.operator_verbs import Suggestion
    from outbox.reports import AttemptDetail, EvidenceDetail, RecipientDetail, Story

_LABEL = 17


def as_json(shown: Shown) -> dict[str, Any]:
    """Everything that is known, with stable keys."""
    story = shown.story
    summary = plain(story.summary)
    del summary["recipients"]
    return {
        "at": plain(shown.at),
        **summary,
        "account": shown.account,
        "provider": shown.provider,
        "waiting_for": plain(shown.told.waiting_for),
        "known": shown.told.known,
        "next": shown.told.next,
        "if_sent_again": shown.told.if_sent_again,
        "public_id": story.public_id,
        "when_unsure": plain(shown.when_unsure),
        "held_from": plain(story.held_from),
        "stop_requested": plain(story.stop_requested),
        "lease_expires_at": plain(story.lease_expires_at),
        "first_transmitted_at": plain(story.first_transmitted_at),
        "message": plain(shown.mail),
        "hidden_recipients": shown.blind,
        "recipients": plain(story.recipients),
        "attempts": plain(story.attempts),
        "evidence": plain(story.evidence),
    }


def tell(shown: Shown) -> None:
    """Print the story."""
    row = shown.story.summary
    detail = shown.told.waiting_for or row.reason
    state = f"{row.state}: {detail}" if detail else row.state.value
    say(f"{row.key}   {state}", style="bold")
    say(" · ".join(_head(shown)))
    say()
    _labelled(
        ("What we know", shown.told.known),
        ("What happens", shown.told.next),
        ("If sent again", shown.told.if_sent_again),
    )
    say()
    _message(shown)
    _recipients(shown.story.recipients)
    say()
    _timeline(_moments(shown.story))


def then_one_of(id_: int, suggestions: Iterable[Suggestion]) -> None:
    """Print the commands that apply to this delivery, with what each of them means."""
    from dispatcher.verb_words import PURPOSE

    lines = [
        (
            f"postroom deliveries {_with_id(each.act.value, id_)}",
            PURPOSE[each.act]
            + (f" (from {instant(each.until)} on)" if each.until is not None else ""),
        )
        for each in suggestions
    ]
    if not lines:
        return
    say()
    say("Then one of", style="bold")
    width = max(len(command) for command, _ in lines) + 2
    for command, purpose in lines:
        say(f"  {command.ljust(width)}→ {purpose}")
    say('Each shows what it would do; --yes --reason "…" does it.', style="dim")


def _with_id(verb: str, id_: int) -> str:
    word, _, options = verb.partition(" ")
    return " ".join(part for part in (word, str(id_), options) if part)


def _head(shown: Shown) -> Iterable[str]:
    row = shown.story.summary
    yield f"id {row.id}"
    yield f"account {shown.account} ({shown.provider or 'not configured'})"
    if row.run_key:
        yield f"run {row.run_key}"
    if row.tenant:
        yield f"tenant {row.tenant}"
    if row.priority:
        yield f"priority {row.priority}"
    yield f"when unsure: {shown.when_unsure}"


def _labelled(*pairs: tuple[str, str]) -> None:
    say_pairs([pair for pair in pairs if pair[1]], label_width=_LABEL)


def _message(shown: Shown) -> None:
    if shown.mail is None:
        _labelled(("Message", "not there any more, or not readable"))
        return
    _labelled(
        ("Message", _about(shown.mail)),
        (
            "Attachments",
            ", ".join(f"{a.filename} ({size(a.size)})" for a in shown.mail.attachments),
        ),
        ("Cc", ", ".join(shown.mail.cc)),
        ("Bcc", _bcc(shown)),
        ("Message-ID", shown.mail.message_id or ""),
        ("Idempotency key", _idempotency_key(shown.story)),
    )


def _bcc(shown: Shown) -> str:
    if shown.blind:
        words = plural(shown.blind, "blind recipient is", "blind recipients are")
        return f"{words} hidden; --show-bcc shows them"
    return ", ".join(shown.mail.bcc) if shown.mail else ""


def _about(mail: MailSummary) -> str:
    sender = mail.sender or "(no sender yet)"
    subject = f'"{mail.subject}"' if mail.subject else "(no subject)"
    return f"{sender} → {', '.join(mail.to) or '-'} · {subject} · {size(mail.size)}"


def _idempotency_key(story: Story) -> str:
    keys = [a.idempotency_key for a in story.attempts if a.idempotency_key]
    return keys[-1] if keys else ""


def _recipients(people: Iterable[RecipientDetail]) -> None:
    label = "Recipients"
    for each in people:
        parts = [f"{each.address} ({each.kind})", each.result.value]
        parts += [part for part in (each.code, each.reason) if part]
        if each.provider_message_id:
            parts.append(f"id {each.provider_message_id}")
        if each.delivery_status:
            parts.append(f"then {each.delivery_status}")
        _labelled((label, "  ".join(parts)))
        label = ""


# --------------------------------------------------------------------------- #
# The time line
# --------------------------------------------------------------------------- #

Moment = tuple[datetime, str, str]


def _moments(story: Story) -> list[Moment]:
    """Everything with a time, in order: when, who, what."""
    row = story.summary
    found: list[Moment] = [(row.created_at, "", "enqueued")]
    for attempt in story.attempts:
        found += _attempt(attempt)
    found += [_evidence(each) for each in story.evidence]
    settled = {a.finished_at for a in story.attempts}
    if row.finished_at is not None and row.finished_at not in settled:
        found.append((row.finished_at, "", row.state.value))
    # Stable: what is noted for the same instant stays in the order it happened.
    return sorted(found, key=lambda moment: moment[0])


def _attempt(attempt: AttemptDetail) -> Iterable[Moment]:
    from dispatcher.wording import ENDED

    who = f"attempt {attempt.number}"
    kind = "" if attempt.kind == "send" else f" to {attempt.kind}"
    yield (
        attempt.started_at,
        who,
        f"claimed by {attempt.by} for account {attempt.account}{kind}, token {attempt.token}",
    )
    if attempt.transmitting_at is not None:
        yield attempt.transmitting_at, who, "transmitting"
    if attempt.finished_at is None or attempt.outcome is None:
        return
    text = f"{attempt.outcome}: {ENDED[attempt.outcome]}"
    if attempt.outcome == "accepted":
        text = "accepted"
    if attempt.status_code is not None:
        text += f", {attempt.status_code}"
    if attempt.reason:
        text += f", {attempt.reason}"
    if attempt.provider_message_id:
        text += f", id {attempt.provider_message_id}"
    if attempt.retry_at is not None:
        text += f"; due again {instant(attempt.retry_at)}"
    yield attempt.finished_at, who, text
    if attempt.detail and attempt.detail != attempt.reason:
        yield attempt.finished_at, "", f"answer: {attempt.detail}"


def _evidence(each: EvidenceDetail) -> Moment:
    about = f" about attempt {each.attempt}" if each.attempt is not None else ""
    named = f", id {each.provider_message_id}" if each.provider_message_id else ""
    detail = f": {each.detail}" if each.detail else ""
    return each.seen_at, "evidence", f"{each.kind}{about}: {each.verdict}{named}{detail}"


def _timeline(moments: Iterable[Moment]) -> None:
    day = None
    for at, who, what in moments:
        utc = at.astimezone(UTC)
        if utc.date() != day:
            day = utc.date()
            say(f"{day} UTC")
        time = f"{utc:%H:%M:%S}.{utc.microsecond // 100_000}"
        say_pairs([(f"{time}  {who}", what)], label_width=24, indent=2)
