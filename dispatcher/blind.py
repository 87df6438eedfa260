"""Keeping blind recipients blind, also before operators. Pure.

Whoever was put in copy blindly trusted the sender that nobody sees it. An
operator's screen is shared, copied into tickets and photographed. So their
addresses are hidden unless somebody asks for them, and their rows stay: the
counts must be right. What a provider answered may quote an address ("550
<ana@example.org>: no such user"); it is taken out of such texts as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dispatcher.mail_summary import MailSummary
from outbox.addresses import Address, compare_key
from outbox.reports import Story, Summary
from outbox.states import RecipientKind

HIDDEN = "(hidden)"
_NAMED_FIELD = re.compile(r"(?P<field>bcc(\[\d+\])?(\.\w+)?): .*", re.DOTALL)


def without_blind_rows(summary: Summary) -> Summary:
    """One row of a list without blind addresses."""
    blind = [r.address for r in summary.recipients if r.kind is RecipientKind.BCC]
    return replace(
        summary,
        recipients=tuple(
            replace(r, address=HIDDEN) if r.kind is RecipientKind.BCC else r
            for r in summary.recipients
        ),
        last_error=_without(summary.last_error, blind),
    )


def without_blind(story: Story, mail: MailSummary | None) -> tuple[Story, MailSummary | None, int]:
    """A story and its mail without blind addresses, and how many were hidden.

    The stored message itself is left out: it names them.
    """
    # A row that came by SQL has no recipients of its own before its first claim.
    named = () if mail is None else (Address.parse(each).address for each in mail.bcc)
    blind = [r.address for r in story.recipients if r.kind is RecipientKind.BCC]
    known = {compare_key(address) for address in blind}
    blind += [address for address in named if compare_key(address) not in known]
    story = replace(story, message=None)
    hidden = replace(
        story,
        summary=without_blind_rows(story.summary),
        recipients=tuple(
            replace(
                r,
                address=HIDDEN if r.kind is RecipientKind.BCC else r.address,
                reason=_without(r.reason, blind),
            )
            for r in story.recipients
        ),
        attempts=tuple(
            replace(a, reason=_without(a.reason, blind), detail=_without(a.detail, blind))
            for a in story.attempts
        ),
        evidence=tuple(replace(e, detail=_without(e.detail, blind)) for e in story.evidence),
    )
    return hidden, None if mail is None else replace(mail, bcc=()), len(blind)


def _without(text: str | None, addresses: Iterable[str]) -> str | None:
    if text is None:
        return None
    if found := _NAMED_FIELD.fullmatch(text):
        # A message that was refused quotes what it refuses; such a row has no recipients.
        return f"{found['field']}: {HIDDEN}"
    forms = {form for address in addresses for form in (address, compare_key(address))}
    if not forms:
        return text
    pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.sub(pattern, HIDDEN, text, flags=re.IGNORECASE)
