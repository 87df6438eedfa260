"""One attempt, from a claimed row to a settled end. Nothing an adapter does gets past here.

An adapter may raise anything at all, ``SystemExit`` and cancellation included.
Before the mark that proves that nothing left; after it, it proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.answers import proven
from dispatcher.doubt import Means
from dispatcher.envelope import envelope, inquiry, parsed
from dispatcher.kept import frozen, thawed
from dispatcher.permit import SendPermit
from dispatcher.rounds import Rounds
from dispatcher.transactions import reading
from dispatcher.wishes import End, InvalidEnd, LookUpEnd, WithheldEnd
from outbox.errors import InvalidMessage
from outbox.message import StoredMessage
from outbox.records import Claimed
from outbox.states import AttemptKind
from outbox.store import blobs, doubts
from providers.contract import (
    InDoubt,
    LooksUp,
    Message,
    Provider,
    Result,
    Unavailable,
    Unknown,
    Withheld,
)

T = TypeVar("T")


class Sender:
    """Sends claimed deliveries by one account's provider and settles them."""

    def __init__(
        self,
        engine: AsyncEngine,
        rounds: Rounds,
        providers: Mapping[str, tuple[str, Provider]],
        means: Mapping[str, Means],
        stopping: Callable[[], bool],
    ) -> None:
        self._means = means
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
            if claimed.kind is AttemptKind.LOOK_UP:
                return await self._look_up(claimed, message, provider)
            contents = message.blobs() | await self._contents(message)
            kept = await self._kept(claimed, contents)
            outgoing = envelope(claimed, message, contents, provider=kind, kept=kept)
        except InvalidMessage as error:
            return InvalidEnd(str(error))
        except asyncio.CancelledError:
            return WithheldEnd("shutdown")
        if self._stopping():
            return WithheldEnd("shutdown")
        permit = self._permit(claimed, outgoing, provider, contents)
        self._under_way[permit] = asyncio.current_task()
        try:
            result = await provider.send(outgoing, permit)
            return proven(result) if provider.capabilities.duplicate_is_proof else result
        except Withheld as withheld:
            return WithheldEnd(withheld.reason)
        except BaseException as error:  # noqa: BLE001  (an adapter's SystemExit is its own affair)
            return _raised(error, permit)
        finally:
            del self._under_way[permit]

    def _permit(
        self,
        claimed: Claimed,
        outgoing: Message,
        provider: Provider,
        contents: Mapping[str, bytes],
    ) -> SendPermit:
        replays = provider.capabilities.replay != "none"
        latest_end = None
        if claimed.kind is AttemptKind.REPLAY and claimed.first_transmitted_at is not None:
            means = self._means[claimed.account]
            latest_end = claimed.first_transmitted_at + (
                timedelta(seconds=means.capabilities.key_retention) - means.replay_margin
            )
        return SendPermit(
            claimed,
            outgoing,
            self._rounds,
            self._stopping,
            longest_send=timedelta(seconds=provider.longest_send),
            keep=(lambda request: frozen(request, contents)) if replays else None,
            latest_end=latest_end,
        )

    async def _look_up(self, claimed: Claimed, message: StoredMessage, provider: Provider) -> End:
        """Ask the provider; whatever the adapter raises is an answer that says nothing."""
        assert isinstance(provider, LooksUp)  # noqa: S101  (its capabilities said so)
        try:
            finding = await provider.look_up(inquiry(claimed, message))
        except asyncio.CancelledError:
            return WithheldEnd("shutdown")
        except BaseException as error:  # noqa: BLE001  (as above)
            finding = Unknown(f"adapter_error: {type(error).__name__}: {error}")
        return LookUpEnd(finding, claimed.absence_counts)

    async def _kept(self, claimed: Claimed, contents: Mapping[str, bytes]) -> bytes | None:
        """The request that a replay repeats, byte for byte."""
        digest = claimed.request_digest
        if claimed.kind is not AttemptKind.REPLAY or digest is None:
            return None
        kept = await self._patiently(lambda c: doubts.kept_request(c, claimed.id, digest))
        if kept is None:
            raise InvalidMessage("request", f"the kept request {digest} is gone")
        return thawed(kept, contents)

    async def _contents(self, message: StoredMessage) -> dict[str, bytes]:
        digests = set(message.sha256s()) - message.blobs().keys()
        if not digests:
            return {}
        return await self._patiently(lambda c: blobs.contents(c, digests))

    async def _patiently(self, work: Callable[[Connection], T]) -> T:
        """Read, however long the database is away."""
        while True:
            try:
                return await reading(self._engine, work)
            except (SQLAlchemyError, OSError):
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
