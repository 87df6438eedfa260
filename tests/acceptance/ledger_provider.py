"""A provider with look-up and nothing else: what it took stands in a file.

It has no key: the same message sent twice is two lines. Asked whether it has a message, it
reads the file. ``hold`` lets a sender wait for its answer until it is killed, ``lose`` breaks
the connection once the message is taken.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from providers.contract import (
    Absent,
    Accepted,
    Capabilities,
    Finding,
    Found,
    Inquiry,
    Message,
    Permit,
    Result,
)
from providers.memory import request_bytes
from providers.settings import AccountSettings

CAPABILITIES = Capabilities(
    means=("look_up",), look_up="by_key", index_lag=0.0, per_recipient_results=True
)


class Settings(AccountSettings):
    """``file`` is the ledger."""

    file: Path
    hold: bool = False
    lose: bool = False


class LedgerProvider:
    """One account; see :class:`providers.contract.Provider`."""

    capabilities = CAPABILITIES
    longest_send = 1.0

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._settings = settings

    @property
    def identity(self) -> str:
        return f"ledger:{self._settings.file}"

    async def send(self, message: Message, permit: Permit) -> Result:
        request = request_bytes(message)
        await permit.transmitting(message.recipients, request)
        permit.check()  # before the first half
        permit.check()  # before the half that makes it complete
        with self._settings.file.open("a", encoding="utf-8") as file:
            line = {"correlation": message.correlation, "subject": message.subject}
            file.write(json.dumps(line) + "\n")
        if self._settings.hold:
            await asyncio.Event().wait()
        if self._settings.lose:
            raise ConnectionResetError("the answer is lost")
        return Result(Accepted(f"ledger-{message.correlation}"))

    async def look_up(self, inquiry: Inquiry) -> Finding:
        if any(line["correlation"] == inquiry.correlation for line in taken(self._settings.file)):
            return Found(f"ledger-{inquiry.correlation}")
        return Absent()

    async def aclose(self) -> None:
        """Nothing is kept open."""


def open_account(name: str, settings: Settings) -> LedgerProvider:
    """The account ``name``."""
    return LedgerProvider(name, settings)


def taken(file: Path) -> list[dict[str, str]]:
    """The lines of a ledger, whole ones only."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line]
