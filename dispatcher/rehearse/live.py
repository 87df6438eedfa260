"""One drill with the user's own provider: a real mail, and an answer that is thrown away.

The first answer of the provider is withheld from the dispatcher, as if it had been lost on its
way. What a dispatcher then does depends on what the provider offers: it sends the same request
again under the same key, it looks the message up, or it can do nothing and holds the row. So
the mail is sent a second time only where the provider promises to know it again, and what it
really answers stands in the report.

Time is moved here only as far as the first retry, never over the provider's own windows: they
are real, and a "not found" that is believed too early would send a real second copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection

import outbox
from dispatcher.config import Account
from dispatcher.rehearse.drill import Drill, Played, played, state
from dispatcher.rehearse.stage import Stage
from dispatcher.rehearse.tables import Row
from outbox.states import WhenUnsure
from providers import registry
from providers.contract import (
    Absent,
    Accepted,
    Duplicate,
    Finding,
    Found,
    InDoubt,
    Inquiry,
    LooksUp,
    Message,
    Outcome,
    Permit,
    Provider,
    Result,
    Unknown,
)

KEY = "rehearsal-live"
_TEXT = (
    "postroom rehearse --live sent this mail to try what your provider does when it is asked\n"
    "again under the same key. If two of these came, it does not recognise a repeated request.\n"
)


class AnswerLost:
    """The provider itself, but for its first acceptance, which the dispatcher never hears of.

    ``answers`` is what the provider really said, in order.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.name = provider.name
        self.capabilities = provider.capabilities
        self.longest_send = provider.longest_send
        self.answers: list[Outcome | Finding] = []

    @property
    def identity(self) -> str:
        """That of the provider."""
        return self._provider.identity

    async def send(self, message: Message, permit: Permit) -> Result:
        """Send it, and lose the first acceptance."""
        result = await self._provider.send(message, permit)
        self.answers.append(result.outcome)
        if len(self.answers) == 1 and isinstance(result.outcome, Accepted):
            return Result(InDoubt("the rehearsal threw the answer away"))
        return result

    async def look_up(self, inquiry: Inquiry) -> Finding:
        """Ask the provider."""
        if not isinstance(self._provider, LooksUp):
            return Unknown("it has no look-up")
        finding = await self._provider.look_up(inquiry)
        self.answers.append(finding)
        return finding

    async def aclose(self) -> None:
        """Close the provider."""
        await self._provider.aclose()


def drill(account: Account, to: str) -> Drill:
    """The drill of ``account``, with a mail to ``to``."""

    async def play(stage: Stage) -> Played:
        provider = registry.open_account(account.name, account.provider, account.settings)
        try:
            return await play_with(stage, account, provider, to)
        finally:
            await provider.aclose()

    return Drill("live", f"a real mail by {account.name} ({account.provider}), answer lost", play)


async def play_with(stage: Stage, account: Account, provider: Provider, to: str) -> Played:
    """The drill, with a provider that is open already."""
    lossy = AnswerLost(provider)
    await stage.do(_mail(account.name, to))
    row = await _dispatch(stage, account, lossy)
    if not lossy.answers:
        return played(("first: Accepted", f"first: never asked, {row.last_error or state(row)}"))
    if not isinstance(lossy.answers[0], Accepted):
        return played(("first: Accepted", f"first: {_said(lossy.answers[0])}"))
    await stage.until_due(KEY)
    row = await _dispatch(stage, account, lossy)
    first = ("first: Accepted", "first: Accepted")
    if not lossy.capabilities.means:
        return played(first, ("it can prove nothing: held", f"it can prove nothing: {state(row)}"))
    second = lossy.answers[1] if len(lossy.answers) > 1 else None
    if lossy.capabilities.means[0] == "look_up":
        return played(first, _looked_up(second))
    known = "known" if lossy.capabilities.replay == "duplicate_error" else "the same id"
    return played(
        first,
        (
            f"the same key again: {known}",
            f"the same key again: {_repeated(lossy.answers[0], second)}",
        ),
        ("accepted", state(row)),
    )


def _looked_up(answer: Outcome | Finding | None) -> tuple[str, str]:
    """Found or not: so early both may be. That it can be asked at all is what is tried."""
    if isinstance(answer, Found):
        return "looked up: found", "looked up: found"
    if isinstance(answer, Absent):
        return ("looked up: not found yet",) * 2
    return "looked up", f"looked up: {_said(answer)}"


def _repeated(first: Outcome | Finding, second: Outcome | Finding | None) -> str:
    """What the provider made of the second request, seen beside its first answer."""
    match first, second:
        case Accepted(message_id=one), Accepted(message_id=other):
            return "the same id" if one == other else f"another id ({other}): two mails"
        case _, Duplicate():
            return "known"
        case _:
            return _said(second)


def _said(answer: Outcome | Finding | None) -> str:
    """An answer of the provider, in its own words as far as it has any."""
    if answer is None:
        return "it was not asked"
    words = str(getattr(answer, "reason", "") or "")
    return f"{type(answer).__name__} {words}".rstrip()


async def _dispatch(stage: Stage, account: Account, lossy: AnswerLost) -> Row:
    config = stage.setup.config(account.name)
    careful = replace(account, when_unsure=WhenUnsure.HOLD)
    config = replace(config, accounts={account.name: careful})
    await stage.dispatch_by(config, {account.name: (account.provider, lossy)}, "once")
    return await stage.row(KEY)


def _mail(account: str, to: str) -> Callable[[Connection], object]:
    mail = outbox.Email(
        to=to, subject="Postroom rehearsal", text=_TEXT, auto_submitted="auto-generated"
    )
    return lambda connection: outbox.enqueue(connection, mail, key=KEY, account=account)
