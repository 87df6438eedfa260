"""A transport that spreads requests over transports of one connection each.

httpcore's pool walks all its connections and all its requests whenever one of
them begins or ends, so a pool of a hundred connections spends its time on
itself (encode/httpcore#1035). A pool of one connection has nothing to walk.
This transport holds many of those, called lanes, and hands each request to a
free one; picking one is constant work.

The lane used last is taken first. Under little load few connections stay
warm, and the lanes at the far end rest until their connection is too old to be
trusted. Such a connection is closed when another request passes by, because a
one-connection pool notices its own age only when it is used.

A lane whose request failed is not used again: whatever state the failure or
the cancellation left behind is closed with it, so a few hung requests cannot
poison the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import httpx


class _Lane:
    """One transport with one connection, made when it is first needed."""

    __slots__ = ("_make", "_transport", "broken", "idle_since")

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._make = make
        self._transport: httpx.AsyncBaseTransport | None = None
        self.broken = False
        self.idle_since = 0.0

    async def handle(self, request: httpx.Request) -> httpx.Response:
        if self._transport is None:
            self._transport = self._make()
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        # Forgotten before the first await: whoever takes the lane meanwhile begins afresh.
        transport, self._transport = self._transport, None
        self.broken = False
        if transport is not None:
            # What is being thrown away may already be broken.
            with contextlib.suppress(Exception):
                await transport.aclose()


class SpreadTransport(httpx.AsyncBaseTransport):
    """Hands each request to a free lane.

    ``make`` builds the transport of one lane, ``lanes`` is how many requests
    can be under way at once, ``idle`` after how many seconds of rest a lane's
    connection is closed. With no lane free ``httpx.PoolTimeout`` is raised at
    once: waiting is the business of whoever sends.
    """

    def __init__(
        self, make: Callable[[], httpx.AsyncBaseTransport], *, lanes: int, idle: float
    ) -> None:
        self._idle = idle
        self._cold = [_Lane(make) for _ in range(lanes)]
        self._warm: deque[_Lane] = deque()
        self._busy: set[_Lane] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to ``request``; its stream holds the lane until it is closed."""
        if not self._warm and not self._cold:
            raise httpx.PoolTimeout("every connection is in use", request=request)
        lane = self._warm.pop() if self._warm else self._cold.pop()
        self._busy.add(lane)
        try:
            await self._close_oldest()
            response = await lane.handle(request)
        except BaseException:
            lane.broken = True
            await self._give_back(lane)
            raise
        stream = cast(httpx.AsyncByteStream, response.stream)
        response.stream = _LaneStream(stream, lane, self._give_back)
        return response

    async def _close_oldest(self) -> None:
        if self._warm and time.monotonic() - self._warm[0].idle_since > self._idle:
            oldest = self._warm.popleft()
            self._cold.append(oldest)
            await oldest.aclose()

    async def _give_back(self, lane: _Lane) -> None:
        if lane not in self._busy:
            return
        self._busy.remove(lane)
        if lane.broken:
            self._cold.append(lane)
            await lane.aclose()
        else:
            lane.idle_since = time.monotonic()
            self._warm.append(lane)

    async def aclose(self) -> None:
        for lane in (*self._busy, *self._warm, *self._cold):
            await lane.aclose()


class _LaneStream(httpx.AsyncByteStream):
    """An answer's body. Closing it gives the lane back, broken unless the body came whole."""

    def __init__(
        self,
        stream: httpx.AsyncByteStream,
        lane: _Lane,
        give_back: Callable[[_Lane], Awaitable[None]],
    ) -> None:
        self._stream = stream
        self._lane = lane
        self._give_back = give_back
        lane.broken = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk
        self._lane.broken = False

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        except BaseException:
            self._lane.broken = True
            raise
        finally:
            await self._give_back(self._lane)
