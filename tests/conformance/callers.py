"""A producer with a transaction of its own, whatever it is made of, behind one face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import psycopg
from sqlalchemy import text

import outbox


class Caller(Protocol):
    """A producer with a transaction of its own."""

    connection: Any

    async def execute(self, sql: str) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def savepoint(self) -> None: ...
    async def rollback_to_savepoint(self) -> None: ...
    async def enqueue(self, message: outbox.Email, **options: Any) -> outbox.Enqueued: ...
    async def find(self, key: str) -> outbox.Delivery | None: ...
    async def cancel(self, key: str) -> Any: ...


class Synchronous:
    """What every synchronous connection does alike."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def enqueue(self, message: outbox.Email, **options: Any) -> outbox.Enqueued:
        return outbox.enqueue(self.connection, message, **options)

    async def find(self, key: str) -> outbox.Delivery | None:
        return outbox.find(self.connection, key)

    async def cancel(self, key: str) -> Any:
        return outbox.cancel(self.connection, key)


class Driver(Synchronous):
    """sqlite3 and psycopg, in transactions that begin by themselves or by BEGIN."""

    def __init__(self, connection: Any, *, begin: str | None = None) -> None:
        super().__init__(connection)
        self._begin = begin

    async def execute(self, sql: str) -> None:
        if self._begin and not self.connection.in_transaction:
            self.connection.execute(self._begin)
        self.connection.execute(sql)

    async def commit(self) -> None:
        await self._end("COMMIT")

    async def rollback(self) -> None:
        await self._end("ROLLBACK")

    async def savepoint(self) -> None:
        self.connection.execute("SAVEPOINT host")

    async def rollback_to_savepoint(self) -> None:
        self.connection.execute("ROLLBACK TO SAVEPOINT host")

    async def _end(self, how: str) -> None:
        if self._begin:
            if self.connection.in_transaction:
                self.connection.execute(how)
        else:
            getattr(self.connection, how.lower())()


class Block(Synchronous):
    """A transaction that is a ``with`` block: psycopg's and Django's."""

    def __init__(
        self, connection: Any, block: Callable[[], Any], execute: Callable[[str], Any]
    ) -> None:
        super().__init__(connection)
        self._block = block
        self._execute = execute
        self._open: list[Any] = []

    async def execute(self, sql: str) -> None:
        if not self._open:
            await self.savepoint()
        self._execute(sql)

    async def savepoint(self) -> None:
        block = self._block()
        block.__enter__()
        self._open.append(block)

    async def commit(self) -> None:
        while self._open:
            self._open.pop().__exit__(None, None, None)

    async def rollback(self) -> None:
        while self._open:
            await self.rollback_to_savepoint()

    async def rollback_to_savepoint(self) -> None:
        reason = psycopg.Rollback()
        self._open.pop().__exit__(type(reason), reason, None)


class SqlAlchemy(Synchronous):
    _nested: Any = None

    async def execute(self, sql: str) -> None:
        self.connection.execute(text(sql))

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def savepoint(self) -> None:
        self._nested = self.connection.begin_nested()

    async def rollback_to_savepoint(self) -> None:
        self._nested.rollback()


class _Asynchronous:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def enqueue(self, message: outbox.Email, **options: Any) -> outbox.Enqueued:
        return await outbox.enqueue_async(self.connection, message, **options)

    async def find(self, key: str) -> outbox.Delivery | None:
        return await outbox.find_async(self.connection, key)

    async def cancel(self, key: str) -> Any:
        return await outbox.cancel_async(self.connection, key)


class AsyncDriver(_Asynchronous):
    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def savepoint(self) -> None:
        await self.connection.execute("SAVEPOINT host")

    async def rollback_to_savepoint(self) -> None:
        await self.connection.execute("ROLLBACK TO SAVEPOINT host")


class AsyncBlock(AsyncDriver):
    _block: Any = None

    async def execute(self, sql: str) -> None:
        if self._block is None:
            self._block = self.connection.transaction()
            await self._block.__aenter__()
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self._leave(None)

    async def rollback(self) -> None:
        await self._leave(psycopg.Rollback())

    async def _leave(self, reason: Exception | None) -> None:
        block, self._block = self._block, None
        if block is not None:
            await block.__aexit__(reason and type(reason), reason, None)


class AsyncSqlAlchemy(_Asynchronous):
    _nested: Any = None

    async def execute(self, sql: str) -> None:
        await self.connection.execute(text(sql))

    async def savepoint(self) -> None:
        self._nested = await self.connection.begin_nested()

    async def rollback_to_savepoint(self) -> None:
        await self._nested.rollback()
