"""The HTTP client against servers that really fail: what each failure proves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from providers.contract import InDoubt, Result, Unavailable, Withheld
from providers.http import Answer
from providers.testing import RecordingPermit
from tests.conformance.http_rig import (
    CERTIFICATE,
    SHORT,
    opened,
    outcome,
    post,
    server_tls,
)
from tests.servers.http import HttpServer

LARGE = b"x" * 20_000_000


# --------------------------------------------------------------------------- #
# Nothing left
# --------------------------------------------------------------------------- #


@contextlib.contextmanager
def nobody_listens() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def no_such_name() -> Iterator[str]:
    yield "https://mail.invalid"


@contextlib.contextmanager
def no_tls() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_in_plain_text() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(65536)

        speaker = threading.Thread(target=answer_in_plain_text)
        speaker.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        speaker.join()


@contextlib.contextmanager
def foreign_certificate() -> Iterator[str]:
    with HttpServer(tls=server_tls()) as server:
        yield server.url


@contextlib.contextmanager
def silent_handshake() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def no_room_to_connect() -> Iterator[str]:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        contextlib.ExitStack() as all_,
    ):
        address = listener.getsockname()
        with contextlib.suppress(TimeoutError):
            for _ in range(64):
                all_.enter_context(socket.create_connection(address, timeout=0.3))
        yield f"http://127.0.0.1:{address[1]}"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (nobody_listens, "refused"),
        (no_such_name, "dns"),
        (no_tls, "tls"),
        (foreign_certificate, "certificate"),
        (silent_handshake, "connect_timeout"),
        (no_room_to_connect, "connect_timeout"),
    ],
)
async def test_without_a_connection_nothing_was_sent(
    place: Callable[[], contextlib.AbstractContextManager[str]], reason: str
) -> None:
    """A failure before there is a connection is Unavailable, though the mark was made (B77)."""
    permit = RecordingPermit()
    connect = timedelta(seconds=10) if reason == "dns" else timedelta(seconds=1)
    async with opened(connect=connect) as client:
        with place() as url:
            reply = await post(client, url, permit)
    assert outcome(reply) == Unavailable(reason)
    assert permit.events == ["mark"]


async def test_a_trusted_certificate_is_accepted() -> None:
    """TLS is verified, not refused: a certificate of a known authority works."""
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    with HttpServer(tls=server_tls()) as server:
        async with opened(tls=trusting) as client:
            reply = await post(client, server.url)
    assert isinstance(reply, Answer)
    assert reply.status == 200


async def test_a_header_that_cannot_be_sent_leaves_nothing() -> None:
    """A header with a line break never reaches the server, nor does the body."""
    with HttpServer() as server:
        async with opened() as client:
            reply = await post(client, server.url, headers={"X-Key": "a\r\nX-Evil: 1"})
        assert outcome(reply) == Unavailable("local_protocol")
        assert server.wait_until_quiet() == []


# --------------------------------------------------------------------------- #
# May have been sent
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("reset", "reset"),
        ("close", "closed"),
        ("trunc", "truncated"),
        ("hang", "read_timeout"),
        ("big:300000", "answer_too_large"),
    ],
)
async def test_an_answer_that_breaks_off_is_doubt(mode: str, reason: str) -> None:
    """Lost after the body was sent is InDoubt, and there was exactly one request (B77)."""
    with HttpServer(mode, "ok") as server:
        async with opened(read=SHORT) as client:
            reply = await post(client, server.url)
        assert outcome(reply) == InDoubt(reason)
        assert [request.whole for request in server.wait_until_quiet()] == [True]


async def test_a_body_that_nobody_reads_is_doubt() -> None:
    """A write that stalls after the first octet is InDoubt."""
    with HttpServer("stall") as server:
        async with opened(write=SHORT) as client:
            reply = await post(client, server.url, content=LARGE)
    assert outcome(reply) == InDoubt("write_timeout")


async def test_a_dripping_answer_ends_at_the_deadline() -> None:
    """Each octet of an answer comes in time, but the request as a whole has an end."""
    hour, short = timedelta(hours=1), timedelta(seconds=2)
    with HttpServer("drip:0.05") as server:
        # The time allowed for connecting is no part of it.
        async with opened(connect=hour, total=short) as client, asyncio.timeout(60):
            reply = await post(client, server.url)
    assert outcome(reply) == InDoubt("deadline")
    assert isinstance(reply, Result)
    assert reply.status_code == 200


async def test_a_kept_connection_that_closes_without_answer_is_doubt() -> None:
    """A reused connection that ends without an answer proves nothing."""
    with HttpServer("ok", "close") as server:
        async with opened() as client:
            first = await post(client, server.url)
            second = await post(client, server.url)
        assert isinstance(first, Answer)
        assert outcome(second) == InDoubt("closed")
        assert [request.connection for request in server.received] == [1, 1]


# --------------------------------------------------------------------------- #
# Slots
# --------------------------------------------------------------------------- #


async def test_no_slot_in_time_is_uncounted_and_unmarked() -> None:
    """Waiting for a slot ends as Unavailable that uses no attempt, before any mark (B43)."""
    permit = RecordingPermit()
    with HttpServer("gated") as server:
        async with opened(connections=1, pool=SHORT) as client:
            first = asyncio.create_task(post(client, server.url))
            await asyncio.to_thread(server.wait_for, 1)
            reply = await post(client, server.url, permit)
            server.open_gate()
            assert isinstance(await first, Answer)
        assert outcome(reply) == Unavailable("pool", counted=False)
        assert permit.events == []
        assert len(server.wait_until_quiet()) == 1


async def test_the_mark_waits_for_a_slot() -> None:
    """A send is marked only with a slot in hand, so a wait never puts it in doubt."""
    order: list[str] = []
    first = RecordingPermit(at_mark=lambda: order.append("first marked"))
    second = RecordingPermit(at_mark=lambda: order.append("second marked"))
    with HttpServer("gated") as server:
        async with opened(connections=1) as client:

            async def send(permit: RecordingPermit, name: str) -> None:
                await post(client, server.url, permit)
                order.append(f"{name} done")

            async with asyncio.TaskGroup() as group:
                group.create_task(send(first, "first"))
                await asyncio.to_thread(server.wait_for, 1)
                group.create_task(send(second, "second"))
                await asyncio.sleep(0)
                server.open_gate()
    assert order == ["first marked", "first done", "second marked", "second done"]


async def test_time_in_the_queue_uses_no_time_out() -> None:
    """The deadline of a request starts with its slot: the last of a queue may wait longer."""
    with HttpServer("slowok:0.7") as server:
        async with opened(connections=1, total=timedelta(seconds=2)) as client:
            replies = await asyncio.gather(*(post(client, server.url) for _ in range(4)))
    assert all(isinstance(reply, Answer) for reply in replies)


async def test_hung_requests_do_not_poison_the_rest() -> None:
    """After more hung and cancelled requests than slots, the next ones are answered (B43)."""
    with HttpServer("hang*12", "ok") as server:
        async with opened(connections=3, read=SHORT) as client:
            replies = await asyncio.gather(*(post(client, server.url) for _ in range(9)))
            cancelled = [asyncio.create_task(post(client, server.url)) for _ in range(3)]
            await asyncio.to_thread(server.wait_for, 12)
            for task in cancelled:
                task.cancel()
            await asyncio.wait(cancelled)
            after = await asyncio.gather(*(post(client, server.url) for _ in range(9)))
        assert {outcome(reply) for reply in replies} == {InDoubt("read_timeout")}
        assert all(task.cancelled() for task in cancelled)
        assert all(isinstance(reply, Answer) for reply in after)


async def test_open_connections_are_bounded_and_reused() -> None:
    """Many requests share as many connections as there are slots."""
    with HttpServer("ok") as server:
        async with opened(connections=4) as client:
            replies = await asyncio.gather(*(post(client, server.url) for _ in range(60)))
        assert all(isinstance(reply, Answer) for reply in replies)
        assert server.connections <= 4


# --------------------------------------------------------------------------- #
# Permission
# --------------------------------------------------------------------------- #


async def test_withheld_before_the_body_leaves_none_of_it() -> None:
    """A refusal at the first check passes through, and the server got no octet of the body."""

    def refuse(_number: int) -> None:
        raise Withheld("stopped")

    with HttpServer("ok") as server:
        async with opened(connections=1) as client:
            with pytest.raises(Withheld, match="stopped"):
                await post(client, server.url, RecordingPermit(at_check=refuse), b"secret body")
            assert isinstance(await post(client, server.url), Answer)
        first, second = server.wait_until_quiet()
        assert (first.body, first.whole) == (b"", False)
        assert second.whole


async def test_withheld_during_the_body_leaves_it_incomplete() -> None:
    """Permission withdrawn during a long upload leaves a request that no server acts on."""

    def refuse(number: int) -> None:
        if number == 3:
            raise Withheld("lease")

    with HttpServer("ok") as server:
        async with opened() as client:
            with pytest.raises(Withheld, match="lease"):
                await post(client, server.url, RecordingPermit(at_check=refuse), LARGE)
        (request,) = server.wait_until_quiet()
        assert not request.whole
