"""Many rows as one parameter: how a batch reaches a statement.

A batch is one JSON text, unpacked by the database (``json_to_recordset`` on
PostgreSQL, ``json_each`` on SQLite). So the text of a statement does not depend
on how many rows it carries: it is compiled once, prepared once, and works the
same over SQLAlchemy and over a caller's own driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    FromClause,
    Text,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.types import TypeEngine

from outbox.instants import format_instant

PARAMETER = "rows"

Columns = Mapping[str, type[TypeEngine[Any]] | TypeEngine[Any]]


def unpacked(dialect: str, columns: Columns) -> FromClause:
    """The batch in the parameter :data:`PARAMETER` as a table ``v`` with ``columns``."""
    parameter = bindparam(PARAMETER, type_=Text())
    if dialect == "postgresql":
        typed = [column(name, kind) for name, kind in columns.items()]
        batch = func.json_to_recordset(cast(parameter, JSON)).table_valued(*typed)
        return batch.render_derived(name="v", with_types=True)
    values = [
        func.json_extract(column("value"), literal_column(f"'$.{name}'"), type_=kind).label(name)
        for name, kind in columns.items()
    ]
    return select(*values).select_from(func.json_each(parameter)).subquery("v")


def packed(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """``rows`` as the parameters of a statement that reads :func:`unpacked`."""
    return {
        PARAMETER: json.dumps(list(rows), ensure_ascii=False, separators=(",", ":"), default=_plain)
    }


def packed_ids(ids: Iterable[int]) -> dict[str, str]:
    """A batch of nothing but ids, as the parameters of :func:`these_ids`."""
    return packed({"id": each} for each in ids)


def these_ids(dialect: str) -> FromClause:
    """A batch of nothing but ids."""
    return unpacked(dialect, {"id": BigInteger})


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return format_instant(value)
    raise TypeError(f"{type(value).__name__} has no place in a row")
