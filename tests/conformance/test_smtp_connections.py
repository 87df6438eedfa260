"""SMTP: connections are used again, replaced when they died, and bounded in number."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from providers.contract import Accepted, Unavailable
from tests.conformance.smtp_rig import RecordingPermit, account, happens, message
from tests.servers.smtp import SmtpServer


async def test_a_hundred_messages_share_the_connections() -> None:
    """A hundred messages at once use no more connections than allowed, each message once."""
    with SmtpServer() as server:
        async with account(server, connections=4) as provider:
            results = await asyncio.gather(
                *(provider.send(message(number=n), RecordingPermit()) for n in range(100))
            )
    assert {type(result.outcome) for result in results} == {Accepted}
    assert len({taken.content for taken in server.taken}) == len(server.taken) == 100
    assert server.connections <= 4
    assert server.count("QUIT") == server.connections


async def test_one_after_the_other_is_one_connection() -> None:
    """Messages in turn take the connection that is already there."""
    with SmtpServer() as server:
        async with account(server) as provider:
            for number in range(100):
                await provider.send(message(number=number), RecordingPermit())
    assert len(server.taken) == 100
    assert server.connections == 1


@pytest.mark.parametrize("fault", ["421 4.4.2 Idle too long", "drop", "reset"])
async def test_an_idle_connection_that_the_server_ended_is_replaced_unseen(fault: str) -> None:
    """B79: 421 or the end of a reused connection before the mark costs a reconnect, no attempt."""
    permit = RecordingPermit()
    with SmtpServer(steps={"reused": [fault]}) as server:
        async with account(server) as provider:
            await provider.send(message(), RecordingPermit())
            result = await provider.send(message(number=2), permit)
    assert isinstance(result.outcome, Accepted)
    assert len(permit.marks) == 1
    assert server.connections == 2
    assert len(server.taken) == 2


@pytest.mark.parametrize("step", ["rcpt:two@example.org"])
@pytest.mark.parametrize("fault", ["421", "drop"])
async def test_a_reused_connection_that_ends_later_is_replaced_too(step: str, fault: str) -> None:
    """Nothing of the message has left before the mark, so RCPT is soon enough to start again."""
    with SmtpServer(steps={step: [fault, "250"]}) as server:
        async with account(server) as provider:
            await provider.send(message(), RecordingPermit())
            result = await provider.send(
                message("one@example.org", "two@example.org", number=2), RecordingPermit()
            )
    assert isinstance(result.outcome, Accepted)
    assert server.taken[1].recipients == ("one@example.org", "two@example.org")
    assert server.connections == 2


@pytest.mark.parametrize("fault", ["421", "drop"])
async def test_it_is_replaced_once_only(fault: str) -> None:
    """When the fresh connection ends as well, the attempt is Unavailable."""
    with SmtpServer(steps={"mail": ["250", fault]}) as server:
        async with account(server) as provider:
            await provider.send(message(), RecordingPermit())
            result = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert server.connections == 2


@pytest.mark.parametrize("fault", ["421", "drop"])
async def test_after_the_mark_nothing_is_repeated(fault: str) -> None:
    """A reused connection that ends at DATA is Unavailable: the mark is for one transmission."""
    permit = RecordingPermit()
    with SmtpServer(steps={"data": ["354", fault]}) as server:
        async with account(server) as provider:
            await provider.send(message(), RecordingPermit())
            result = await provider.send(message(number=2), permit)
    assert isinstance(result.outcome, Unavailable)
    assert len(permit.marks) == 1
    assert server.connections == 1


async def test_a_connection_found_dead_is_not_tried() -> None:
    """An idle connection whose end was seen is dropped without a command."""
    with SmtpServer() as server:
        async with account(server) as provider:
            await provider.send(message(), RecordingPermit())
            server.drop_all()
            await happens(server, lambda: server.open == 0)
            result = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert server.connections == 2


async def test_a_living_connection_is_taken_before_a_dead_one() -> None:
    """With one idle connection dead and one alive no new one is opened."""
    with SmtpServer(delay=0.05) as server:
        async with account(server, connections=2) as provider:
            await asyncio.gather(
                *(provider.send(message(number=n), RecordingPermit()) for n in range(2))
            )
            latest = list(provider._pool._idle)[-1]
            assert server.connections == 2
            port = latest._transport.get_extra_info("sockname")[1]
            server.drop(server.number_of(port))
            await happens(server, lambda: server.open == 1)
            result = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert server.connections == 2


@pytest.mark.parametrize("reply", ["421 4.3.2 Later", "raw:421 4.3.2 Later\\r\\n"])
async def test_421_after_the_dot_ends_the_connection_and_is_proof(reply: str) -> None:
    """A 421 as the final reply is Unavailable; the next message has a new connection, closed or not."""
    with SmtpServer(steps={"dot": [reply, "250"]}) as server:
        async with account(server) as provider:
            first = await provider.send(message(), RecordingPermit())
            second = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(first.outcome, Unavailable)
    assert isinstance(second.outcome, Accepted)
    assert server.connections == 2


async def test_a_connection_ends_after_its_share_of_messages() -> None:
    """After the greatest number of messages QUIT is said and a new connection opened."""
    with SmtpServer() as server:
        async with account(server, messages_per_connection=2, connections=1) as provider:
            for number in range(5):
                await provider.send(message(number=number), RecordingPermit())
    assert [taken.connection for taken in server.taken] == [1, 1, 2, 2, 3]
    assert server.count("QUIT") == 3


async def test_an_unused_connection_says_quit_by_itself() -> None:
    """A connection that was idle for keep_alive ends with QUIT before the server ends it."""
    with SmtpServer() as server:
        async with account(server, keep_alive="50ms") as provider:
            await provider.send(message(), RecordingPermit())
            await happens(server, lambda: server.open == 0)
            assert server.count("QUIT") == 1
            result = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(result.outcome, Accepted)


@pytest.mark.parametrize("fault", ["reset", "drop", "451", "raw:what\\r\\n"])
async def test_closing_never_raises(fault: str) -> None:
    """What the server does on QUIT concerns nobody."""
    with SmtpServer(steps={"quit": [fault]}) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
        await happens(server, lambda: server.open == 0)
    assert isinstance(result.outcome, Accepted)
    assert server.count("QUIT") == 1


async def test_closing_does_not_wait_for_a_server_that_ignores_quit() -> None:
    """QUIT has a short time-out of its own, whatever the command time-out is."""
    with SmtpServer(steps={"quit": ["hang"]}) as server:
        async with account(server, timeouts={"command": "1h"}) as provider:
            await provider.send(message(), RecordingPermit())
        await happens(server, lambda: server.open == 0)


async def test_a_closed_account_sends_nothing_more() -> None:
    """After aclose a message is Unavailable and uses up no attempt."""
    with SmtpServer() as server:
        async with account(server) as provider:
            pass
        result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert not result.outcome.counted
    assert server.connections == 0


async def test_waiting_for_a_slot_is_no_failure() -> None:
    """A message that waits for the only connection goes out when it gets free."""
    with SmtpServer(steps={"dot": ["hang", "250"]}) as server:
        timeouts = {"final_reply": "300ms"}
        async with account(server, connections=1, timeouts=timeouts) as provider:
            first = asyncio.create_task(provider.send(message(), RecordingPermit()))
            await happens(server, lambda: server.taken)
            second = await provider.send(message(number=2), RecordingPermit())
            await first
    assert isinstance(second.outcome, Accepted)


async def test_waiting_too_long_for_a_slot_uses_no_attempt() -> None:
    """No connection within the command time-out is Unavailable, not counted and not marked."""
    permit = RecordingPermit()
    with SmtpServer(steps={"dot": ["hang"]}) as server:
        timeouts = {"command": "400ms", "final_reply": "1h"}
        async with account(server, connections=1, timeouts=timeouts) as provider:
            first = asyncio.create_task(provider.send(message(), RecordingPermit()))
            await happens(server, lambda: server.taken)
            second = await provider.send(message(number=2), permit)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
    assert isinstance(second.outcome, Unavailable)
    assert not second.outcome.counted
    assert permit.marks == []


async def test_cancelled_waiters_and_failures_give_their_slots_back() -> None:
    """After cancellations, refusals and losses the only slot is still there."""
    steps = {"mail": ["553", "drop", "drop", "hang", "250"]}
    with SmtpServer(steps=steps) as server:
        async with account(server, connections=1) as provider:
            await provider.send(message(), RecordingPermit())
            await provider.send(message(), RecordingPermit())
            tasks = [
                asyncio.create_task(provider.send(message(), RecordingPermit())) for _ in range(3)
            ]
            await happens(server, lambda: server.count("MAIL") == 4)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Accepted)


@pytest.mark.parametrize("fault", ["reset", "451", "raw:what\\r\\n"])
async def test_what_goes_wrong_at_quit_is_no_news(fault: str) -> None:
    """A farewell in the background that fails leaves no error behind for the event loop."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    with SmtpServer(steps={"quit": [fault]}) as server:
        async with account(server, connections=1, messages_per_connection=1) as provider:
            for number in range(3):
                await provider.send(message(number=number), RecordingPermit())
            gc.collect()
    assert server.count("QUIT") >= 2
    assert complaints == []


@pytest.mark.parametrize("step", ["greeting", "ehlo", "mail", "rcpt", "data"])
async def test_a_command_that_is_never_answered_was_not_sent(step: str) -> None:
    """No reply in time before the message is Unavailable; the connection is given up, not reused."""
    timeouts = {"connect": "300ms", "command": "300ms"}
    with SmtpServer(steps={step: ["hang"]}) as server:
        async with account(server, timeouts=timeouts) as provider:
            result = await provider.send(message(), RecordingPermit())
            await happens(server, lambda: server.open == 0)
    assert isinstance(result.outcome, Unavailable)
    assert "within 0.3 s" in result.outcome.reason
    assert result.outcome.counted
    assert server.connections == 1
    assert not any(server.ignored)
