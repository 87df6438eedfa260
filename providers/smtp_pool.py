"""The connections of one SMTP account: a bounded number, used again, never left half-used.

There are as many slots as connections allowed. Whoever sends holds a slot;
an idle connection holds none, but a new one is opened only when none is idle,
so the sum never passes the bound. Nothing is awaited when a slot is given
back: by then the outcome is known, and a cancellation must not lose it. So
QUIT is said in a task of its own, which keeps the slot until it is done.

The bound can be passed for the moment that QUIT takes on a connection that was
idle for too long; servers count it as closing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from providers.contract import Unavailable
from providers.smtp_data import Broken
from providers.smtp_session import Session, Standing

QUIT_TIMEOUT = 2.0
"""Seconds for the reply to QUIT."""


class Seat:
    """A slot while somebody holds it, with the connection in it."""

    def __init__(self, connect: Callable[[], Awaitable[Session]], cached: Session | None) -> None:
        self._connect = connect
        self.held = cached
        self.cached = cached is not None

    async def session(self) -> Session:
        """The cached connection, or a new one. Raises Broken."""
        return self.held or await self.fresh()

    async def fresh(self) -> Session:
        """A new connection in place of the one held. Raises Broken."""
        if self.held is not None:
            self.held.abort()
            self.held = None
        self.cached = False
        self.held = await self._connect()
        return self.held


class Pool:
    """The connections of one account, in one event loop. Times are in seconds."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Session]],
        *,
        connections: int,
        messages_per_connection: int,
        wait: float,
        keep_alive: float,
    ) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(connections)
        self._messages = messages_per_connection
        self._wait = wait
        self._keep_alive = keep_alive
        self._idle: dict[Session, asyncio.TimerHandle] = {}
        self._farewells: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[Seat]:
        """A slot for one message. Raises Broken (not counted) when none gets free in time."""
        if self._closed:
            raise Broken(Unavailable("this account has been closed", counted=False))
        try:
            async with asyncio.timeout(self._wait):
                await self._slots.acquire()
        except TimeoutError:
            reason = f"pool: no connection got free within {self._wait:g} s"
            raise Broken(Unavailable(reason, counted=False)) from None
        seat = Seat(self._connect, self._take_idle())
        try:
            yield seat
        finally:
            self._leave(seat.held)

    async def aclose(self) -> None:
        """End the idle connections; those in use end when their message is done."""
        self._closed = True
        for session in list(self._idle):
            self._idle.pop(session).cancel()
            self._say_quit(session)
        await asyncio.gather(*self._farewells, return_exceptions=True)

    def _take_idle(self) -> Session | None:
        while self._idle:
            session, timer = self._idle.popitem()
            timer.cancel()
            if session.alive:
                return session
            session.abort()
        return None

    def _leave(self, session: Session | None) -> None:
        standing = Standing.UNSURE if session is None else session.standing
        if session is None or standing is Standing.UNSURE or not session.alive:
            if session is not None:
                session.abort()
            self._slots.release()
        elif standing is Standing.IDLE and session.messages < self._messages and not self._closed:
            loop = asyncio.get_running_loop()
            self._idle[session] = loop.call_later(self._keep_alive, self._expire, session)
            self._slots.release()
        else:
            self._say_quit(session, then=self._slots.release)

    def _expire(self, session: Session) -> None:
        del self._idle[session]
        self._say_quit(session)

    def _say_quit(self, session: Session, then: Callable[[], None] | None = None) -> None:
        def done(task: asyncio.Task[None]) -> None:
            self._farewells.discard(task)
            if then is not None:
                then()

        task = asyncio.get_running_loop().create_task(session.quit(QUIT_TIMEOUT))
        self._farewells.add(task)
        task.add_done_callback(done)
