"""One attempt, from a claimed row to a settled end. Nothing an adapter does gets past here.

An adapter may raise anything at all, ``SystemExit`` and cancellation included.
Before the mark that proves that nothing left; after it, it proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.envelope import envelope, parsed
from dispatcher.permit import SendPermit
from dispatcher.rounds import Rounds
from dispatcher.transactions import reading
from dispatcher.wishes import End, InvalidEnd, WithheldEnd
from outbox.errors import InvalidMessage
from outbox.message import StoredMessage
from outbox.records import Claimed
from outbox.store import blobs
from providers.contract import InDoubt, Provider, Result, Unavailable, Withheld


class Sender:
    """Sends claimed deliveries by one account's provider and settles them."""

    def __init__(
        self,
        engine: AsyncEngine,
        rounds: Rounds,
        providers: Mapping[str, tuple[str, Provider]],
        stopping: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._rounds = rounds
        self._providers = providers
        self._stopping = stopping

    async def send(self, claimed: Claimed) -> None:
        """One attempt; returns when its end is committed."""
        end = await self._attempt(claimed)
        await self._rounds.settle(claimed, end)

    async def _attempt(self, claimed: Claimed) -> End:
        kind, provider = self._providers[claimed.account]
        try:
            message = parsed(claimed)
            contents = message.blobs() | await self._contents(message)
            outgoing = envelope(claimed, message, contents, provider=kind)
        except InvalidMessage as error:
            return InvalidEnd(str(error))
        except asyncio.CancelledError:
            return WithheldEnd("shutdown")
        permit = SendPermit(claimed, outgoing, self._rounds, self._stopping)
        try:
            return await provider.send(outgoing, permit)
        except Withheld as withheld:
            return WithheldEnd(withheld.reason)
        except BaseException as error:  # noqa: BLE001  (an adapter's SystemExit is its own affair)
            return _raised(error, permit)

    async def _contents(self, message: StoredMessage) -> dict[str, bytes]:
        digests = set(message.sha256s()) - message.blobs().keys()
        if not digests:
            return {}
        while True:
            try:
                return await reading(self._engine, lambda c: blobs.contents(c, digests))
            except DBAPIError:
                await asyncio.sleep(1)


def _raised(error: BaseException, permit: SendPermit) -> End:
    """What an adapter's exception proves. A cancellation that nobody asked for is one of them."""
    task = asyncio.current_task()
    asked = task is not None and task.cancelling() > 0
    shutdown = asked and isinstance(error, asyncio.CancelledError)
    if shutdown and not permit.marked:
        return WithheldEnd("shutdown")
    words = f"adapter_error: {type(error).__name__}: {error}"
    if shutdown:
        words = "stopped while transmitting: the grace period was over"
    if permit.marked:
        return Result(InDoubt(words))
    return Result(Unavailable(words))
