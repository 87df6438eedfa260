"""A connection whose user is cancelled is given up; nobody waits for it for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from outbox.database import open_async_engine

PATIENCE = 20.0


def test_closing_that_is_cancelled_and_stopped_ends(sqlite_url: str) -> None:
    """What SQLAlchemy does with a cancelled user's connection: close it, be cancelled meanwhile,
    and stop it. Without care aiosqlite's close then waits for a thread that has ended."""

    async def closed() -> bool:
        engine = open_async_engine(sqlite_url)
        async with engine.connect() as connection:
            raw: Any = (await connection.get_raw_connection()).driver_connection
            closing = asyncio.create_task(raw.close())
            await asyncio.sleep(0)  # it has asked the thread, and waits
            raw.stop()
            closing.cancel()
            ended, _ = await asyncio.wait({closing}, timeout=PATIENCE)
            await connection.invalidate()
        await engine.dispose()
        return bool(ended)

    loop = asyncio.new_event_loop()  # asyncio.run would wait for the task that hangs
    try:
        assert loop.run_until_complete(closed())
    finally:
        loop.close()
