"""Attachment contents, addressed by their SHA-256."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Text, select

from outbox import schema
from outbox.store.rows import packed, unpacked

_B = schema.blobs


def contents(connection: Connection, digests: Iterable[str]) -> dict[str, bytes]:
    """The contents of those digests that are stored."""
    rows = connection.execute(
        _contents(connection.dialect.name), packed({"sha256": each} for each in sorted(digests))
    )
    return {row.sha256: bytes(row.content) for row in rows}


def stored(connection: Connection, digests: Iterable[str]) -> set[str]:
    """Those of ``digests`` whose content is there."""
    rows = connection.execute(
        _stored(connection.dialect.name), packed({"sha256": each} for each in sorted(digests))
    )
    return set(rows.scalars())


@cache
def _stored(dialect: str) -> Any:
    v = unpacked(dialect, {"sha256": Text})
    return select(_B.c.sha256).where(_B.c.sha256 == v.c.sha256)


@cache
def _contents(dialect: str) -> Any:
    v = unpacked(dialect, {"sha256": Text})
    return select(_B.c.sha256, _B.c.content).where(_B.c.sha256 == v.c.sha256)
