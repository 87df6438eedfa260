"""Tests here use no network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network import refused


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """Fail whoever opens a connection, binds a port or resolves a name."""
    with refused():
        yield
