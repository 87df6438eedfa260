"""One attempt, from a claimed row to a settled end. Nothing an adapter does gets past here.

An adapter may raise anything at all, ``SystemExit`` and cancellation included.
Before the mark that proves that nothing left; after it, it proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

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
        self._under_way: dict[SendPermit, asyncio.Task[Any] | None] = {}

    def release(self) -> None:
        """Give up every attempt that has no mark yet: nothing of it can have left.

        For a process that stops: these wait for a connection, or for a server that
        may never answer, and the next dispatcher could be sending them by now.
        """
        for permit, task in self._under_way.items():
            if task is not None and not permit.marked:
                task.cancel()

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
        if self._stopping():
            return WithheldEnd("shutdown")
        permit = SendPermit(claimed, outgoing, self._rounds, self._stopping)
        self._under_way[permit] = asyncio.current_task()
        try:
            return await provider.send(outgoing, permit)
        except Withheld as withheld:
            return WithheldEnd(withheld.reason)
        except BaseException as error:  # noqa: BLE001  (an adapter's SystemExit is its own affair)
            return _raised(error, permit)
        finally:
            del self._under_way[permit]

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
