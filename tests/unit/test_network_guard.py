"""The guard that keeps unit tests off the network."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.network import NetworkUsed


def test_connecting_is_refused() -> None:
    """A unit test that connects anywhere fails, loopback included."""
    with socket.socket() as end, pytest.raises(NetworkUsed):
        end.connect(("127.0.0.1", 9))


def test_listening_is_refused() -> None:
    """A unit test that binds a port fails."""
    with socket.socket() as end, pytest.raises(NetworkUsed):
        end.bind(("127.0.0.1", 0))


def test_resolving_is_refused() -> None:
    """A unit test that asks for a name's address fails."""
    with pytest.raises(NetworkUsed):
        socket.getaddrinfo("localhost", 25)


async def test_connecting_through_an_event_loop_is_refused() -> None:
    """The guard also sees what asyncio does; the loop itself still works."""
    await asyncio.sleep(0)
    with pytest.raises(NetworkUsed):
        await asyncio.open_connection("127.0.0.1", 9)
