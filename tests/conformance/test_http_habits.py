"""What the HTTP client does with connections, and what it never does."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from providers.contract import Unavailable
from providers.http import Answer, HttpClient
from providers.http_transport import SpreadTransport
from providers.testing import RecordingPermit
from tests.conformance.http_rig import SHORT, opened, outcome, post, timeouts
from tests.servers.http import HttpServer

# --------------------------------------------------------------------------- #
# Kept connections
# --------------------------------------------------------------------------- #


async def test_rested_connections_are_not_used_again() -> None:
    """A connection older than the idle time is replaced, a fresh one is kept."""
    for idle, connections in ((0.0, 3), (60.0, 1)):
        with HttpServer("ok") as server:
            async with opened(idle=idle) as client:
                for _ in range(3):
                    assert isinstance(await post(client, server.url), Answer)
            assert server.connections == connections


async def test_rested_connections_are_closed() -> None:
    """A lane that rested too long is closed when another request passes by."""
    with HttpServer("gated*2", "ok") as server:
        lanes = SpreadTransport(
            lambda: httpx.AsyncHTTPTransport(trust_env=False), lanes=2, idle=0.0
        )
        async with httpx.AsyncClient(transport=lanes, trust_env=False) as client:
            both = [asyncio.create_task(client.post(server.url)) for _ in range(2)]
            await asyncio.to_thread(server.wait_for, 2)
            server.open_gate()
            await asyncio.gather(*both)
            assert server.live == 2
            await client.post(server.url)
            await asyncio.to_thread(server.wait_for_live, 1)


async def test_a_connection_closed_while_resting_does_no_harm() -> None:
    """A server that closed a kept connection in time costs a new connection and nothing else."""
    with HttpServer("okclose", "ok") as server:
        async with opened() as client:
            await post(client, server.url)
            await asyncio.to_thread(server.wait_for_live, 0)
            assert isinstance(await post(client, server.url), Answer)
        assert server.connections == 2


# --------------------------------------------------------------------------- #
# What it never does
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_never_followed(status: int) -> None:
    """A redirect is an answer like any other; the place it names hears nothing."""
    with HttpServer("ok") as other, HttpServer(f"redirect:{status}:{other.url}/x") as server:
        async with opened() as client:
            reply = await post(client, server.url, headers={"Authorization": "Bearer k"})
        assert isinstance(reply, Answer)
        assert reply.status == status
        assert other.connections == 0


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY and ALL_PROXY do not change the way that mail takes."""
    with HttpServer("ok") as proxy, HttpServer("ok") as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with opened() as client:
            assert isinstance(await post(client, server.url), Answer)
        assert proxy.connections == 0


async def test_cookies_are_not_kept() -> None:
    """What one answer sets does not travel with the next request."""
    with HttpServer("cookie", "ok") as server:
        async with opened() as client:
            await post(client, server.url)
            await post(client, server.url)
        assert "cookie" not in server.received[1].headers


async def test_the_request_says_who_asks_and_how_long_it_is() -> None:
    """User-Agent and Content-Length are set, the body is not chunked, no compression is asked for."""
    with HttpServer("ok") as server:
        async with opened() as client:
            await post(client, server.url, content=b"12345")
        headers = server.received[0].headers
        assert headers["user-agent"].startswith("postroom/")
        assert headers["content-length"] == "5"
        assert "transfer-encoding" not in headers
        assert headers["accept-encoding"] == "identity"


async def test_secrets_do_not_reach_the_detail() -> None:
    """An answer that echoes the key is kept without it."""
    with HttpServer("echo:401") as server:
        async with opened() as client:
            reply = await client.post(
                server.url,
                headers={"Authorization": "Bearer re_example_KEY_123"},
                content=b"{}",
                permit=RecordingPermit(),
                recipients=["ana@example.org"],
                secrets=["re_example_KEY_123"],
            )
    assert isinstance(reply, Answer)
    assert "not allowed" in reply.detail
    assert "re_example_KEY_123" not in reply.detail


# --------------------------------------------------------------------------- #
# Look-ups and engines
# --------------------------------------------------------------------------- #


async def test_a_question_that_fails_is_never_doubt() -> None:
    """GET sends no message: a lost answer is Unavailable."""
    with HttpServer("close", "trunc", "json:200:[1]") as server:
        async with opened() as client:
            lost = [await client.get(server.url, headers={}) for _ in range(2)]
            found = await client.get(server.url, headers={})
    assert [outcome(reply) for reply in lost] == [Unavailable("closed"), Unavailable("truncated")]
    assert isinstance(found, Answer)
    assert found.json() == [1]


class Engine(httpx.AsyncBaseTransport):
    """Another engine: httpx's own pool, counting."""

    def __init__(self) -> None:
        self.requests = 0
        self._inner = httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_another_engine_fits_under_the_client() -> None:
    """Any AsyncBaseTransport can carry the requests; slots and marks stay ours."""
    engine = Engine()
    client = HttpClient(connections=2, timeouts=timeouts(), transport=engine)
    with HttpServer("ok") as server:
        permit = RecordingPermit()
        assert isinstance(await post(client, server.url, permit), Answer)
        await client.aclose()
    assert engine.requests == 1
    assert permit.events == ["mark", "check"]


class SilentEngine(httpx.AsyncBaseTransport):
    """An engine that waits for ever before it takes the body."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError(request)


async def test_deadline_before_the_body_proves_nothing_left() -> None:
    """An engine that never gets to the body ends at a deadline, as Unavailable."""
    client = HttpClient(
        connections=1, timeouts=timeouts(connect=SHORT, total=SHORT), transport=SilentEngine()
    )
    assert outcome(await post(client, "http://127.0.0.1:9")) == Unavailable("deadline")
    await client.aclose()


async def test_a_full_engine_is_a_full_pool() -> None:
    """More requests than lanes end as a pool time-out of httpx, and the lanes come back."""
    with HttpServer("gated*1", "ok") as server:
        limits = httpx.Limits(max_connections=1)
        lanes = SpreadTransport(
            lambda: httpx.AsyncHTTPTransport(limits=limits, trust_env=False), lanes=1, idle=5.0
        )
        async with httpx.AsyncClient(transport=lanes, trust_env=False) as client:
            first = asyncio.create_task(client.post(server.url))
            await asyncio.to_thread(server.wait_for, 1)
            with pytest.raises(httpx.PoolTimeout):
                await client.post(server.url)
            server.open_gate()
            assert (await first).status_code == 200
            assert (await client.post(server.url)).status_code == 200
