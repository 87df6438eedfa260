"""What stands in a database, for comparing two ways to the same end. Rows, without our times.

A run that was killed and started again has other tokens, attempts and instants than one that
was not. What has to be the same is what it is for: the application's own rows, the messages
that will leave, and that the run is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, inspect, text

_OURS: Final = "outbox_"
_COMPARED: Final = {
    "outbox_deliveries": (
        "delivery_key", "state", "message", "account", "run_key", "priority", "tenant", "tags",
    ),
    "outbox_runs": ("run_key", "state", "reason", "records", "output", "output_summary"),
    "outbox_consumed_events": ("source", "event_id"),
}  # fmt: skip
"""Of our tables only these columns."""
SHOWN_ROWS: Final = 5

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of one table, in no order; some of them may be equal."""

    columns: tuple[str, ...]
    rows: Mapping[Row, int]


Contents: TypeAlias = Mapping[str, Content]


def contents(connection: Connection, *, without: Collection[str] = ()) -> Contents:
    """The rows of all tables. ``without``: tables and columns (``reports.made_at``) to leave out.

    Raises ValueError for one that is not there.
    """
    tables = {
        name: [column["name"] for column in inspect(connection).get_columns(name)]
        for name in inspect(connection).get_table_names()
    }
    known = {*tables, *(f"{name}.{each}" for name, columns in tables.items() for each in columns)}
    if unknown := sorted(set(without) - known):
        raise ValueError(f"ignore: there is no table or column {', '.join(unknown)}")
    found: dict[str, Content] = {}
    for name, columns in tables.items():
        compared = _COMPARED.get(name, ()) if name.startswith(_OURS) else columns
        wanted = tuple(each for each in compared if f"{name}.{each}" not in without)
        if wanted and name not in without:
            found[name] = Content(wanted, _rows(connection, name, wanted))
    return found


def _rows(connection: Connection, table: str, columns: Collection[str]) -> Mapping[Row, int]:
    quote = connection.dialect.identifier_preparer.quote
    names = ", ".join(quote(each) for each in columns)
    found = connection.execute(text(f"SELECT {names} FROM {quote(table)}"))  # noqa: S608
    return Counter(tuple(row) for row in found)


def differing(wanted: Contents, found: Contents) -> str:
    """In which tables ``found`` is not as ``wanted``, for people; empty if in none."""
    lines: list[str] = []
    for name in sorted({*wanted, *found}):
        was, now = wanted.get(name), found.get(name)
        if was == now:
            continue
        if was is None or now is None:
            lines.append(f"  {name}: the table is {'new' if was is None else 'gone'}")
            continue
        missing, extra = Counter(was.rows), Counter(now.rows)
        missing.subtract(now.rows)
        extra.subtract(was.rows)
        lines.append(f"  {name}:")
        lines += _listed("missing", was.columns, missing)
        lines += _listed("too many", was.columns, extra)
        lines += _only(name, was.columns, list(+missing), list(+extra))
    return "\n".join(lines)


def _listed(word: str, columns: tuple[str, ...], rows: Counter[Row]) -> list[str]:
    listed = [
        f"    {word}: {_row(columns, row)}{f' ({count} times)' if count > 1 else ''}"
        for row, count in (+rows).items()
    ]
    left = len(listed) - SHOWN_ROWS
    return [*listed[:SHOWN_ROWS], *([f"    … and {left} more"] if left > 0 else [])]


def _row(columns: tuple[str, ...], row: Row) -> str:
    return ", ".join(
        f"{name}={text if len(text := repr(value)) <= 60 else f'{text[:60]}…'}"
        for name, value in zip(columns, row, strict=True)
    )


def _only(name: str, columns: tuple[str, ...], missing: list[Row], extra: list[Row]) -> list[str]:
    """A hint where rows differ in nothing but what cannot be the same twice."""
    if not missing or len(missing) != len(extra):
        return []
    pairs = zip(sorted(missing, key=repr), sorted(extra, key=repr), strict=True)
    unlike = {i for one, other in pairs for i in range(len(columns)) if one[i] != other[i]}
    if len(unlike) == len(columns):
        return []
    names = ", ".join(repr(f"{name}.{columns[i]}") for i in sorted(unlike))
    return [f"    only these differ: {names}; if they may, pass ignore=[{names}]"]
