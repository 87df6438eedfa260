"""A provider without a network, scripted by a test; it sends nothing to anybody.

Each send takes the next step of the script; when the script is over, it is
accepted. A step is what happens after the mark; wrapped in :class:`BeforeMark`
it happens before, as with a refused recipient or a failed connection. The
permit is honoured as by a real adapter, and only a message that really left is
in :attr:`MemoryProvider.sent`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from providers.contract import (
    Accepted,
    Capabilities,
    Finding,
    Inquiry,
    Message,
    Outcome,
    Permit,
    Result,
    Unknown,
)
from providers.settings import AccountSettings

Action: TypeAlias = (
    Outcome | Result | BaseException | Callable[[Message], Awaitable[Outcome | Result]]
)


@dataclass(frozen=True, slots=True)
class BeforeMark:
    """A step that ends the attempt before ``permit.transmitting``."""

    action: Action


Step: TypeAlias = Action | BeforeMark

CAPABILITIES = Capabilities(delivers=False, per_recipient_results=True)


class Settings(AccountSettings):
    """Nothing to set: a script is given in Python, not in a configuration file."""


def open_account(name: str, settings: Settings) -> MemoryProvider:  # noqa: ARG001 - one shape for all
    """An account that accepts everything; extend its ``script`` to change that."""
    return MemoryProvider(name)


class MemoryProvider:
    """A scripted account; see :class:`providers.contract.Provider`.

    ``script`` may be extended while it is used. ``sent`` holds every message
    whose bytes left, in order; ``asked`` every look-up, answered from ``findings``.
    """

    def __init__(
        self,
        name: str = "memory",
        script: Iterable[Step] = (),
        *,
        capabilities: Capabilities = CAPABILITIES,
        identity: str = "",
        findings: Iterable[Finding] = (),
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.script: deque[Step] = deque(script)
        self.sent: list[Message] = []
        self.findings: deque[Finding] = deque(findings)
        self.asked: list[Inquiry] = []
        self.longest_send = 60.0
        self._identity = identity or f"memory:{name}"

    @property
    def identity(self) -> str:
        """Adapter and account; another one can be given, to play a changed account."""
        return self._identity

    async def send(self, message: Message, permit: Permit) -> Result:
        """Follow the next step of the script."""
        step = self.script.popleft() if self.script else Accepted(f"<{message.idempotency_key}>")
        if isinstance(step, BeforeMark):
            return await _perform(step.action, message)
        await permit.transmitting(message.recipients, message.kept or request_bytes(message))
        permit.check()
        self.sent.append(message)
        return await _perform(step, message)

    async def look_up(self, inquiry: Inquiry) -> Finding:
        """The next of ``findings``; when they are over, nothing is known."""
        self.asked.append(inquiry)
        return self.findings.popleft() if self.findings else Unknown("no finding was scripted")

    async def aclose(self) -> None:
        """Nothing is kept open."""


def request_bytes(message: Message) -> bytes:
    """What stands for the bytes of a request; mappings are equal in any order."""
    ordered = replace(
        message,
        metadata=dict(sorted(message.metadata.items())),
        options=dict(sorted(message.options.items())),
    )
    return repr(ordered).encode("utf-8", "surrogatepass")


async def _perform(action: Action, message: Message) -> Result:
    if isinstance(action, BaseException):
        raise action
    done = await action(message) if callable(action) else action
    return done if isinstance(done, Result) else Result(done)
