"""Store functions from an event loop: one transaction each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox.database import READ_ONLY

T = TypeVar("T")


async def writing(engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
    """``work`` in a transaction of its own, committed when it returns."""
    async with engine.begin() as connection:
        return await connection.run_sync(work)


async def reading(engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
    """``work`` in a transaction that only reads, and so never waits for a writer."""
    async with engine.connect() as connection:
        options = {READ_ONLY: True}
        return await (await connection.execution_options(**options)).run_sync(work)
