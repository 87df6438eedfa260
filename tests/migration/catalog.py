"""What a database says about the outbox's tables, as text that can be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlalchemy import Connection, text

Catalog = Mapping[str, frozenset[str]]

_POSTGRESQL = {
    "tables": """
        SELECT relname || ' ' || coalesce(array_to_string(reloptions, ','), '') FROM pg_class
        WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace""",
    "columns": """
        SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
            || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
            || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
            AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraints": """
        SELECT conrelid::regclass || '.' || conname || ' ' || pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = current_schema()::regnamespace""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()",
    "views": "SELECT viewname || definition FROM pg_views WHERE schemaname = current_schema()",
    "functions": """
        SELECT pg_get_functiondef(oid) || coalesce(array_to_string(proacl, ','), '') FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace""",
}
_SQLITE = {
    "tables": "SELECT sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL",
    "indexes": "SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL",
    "views": "SELECT sql FROM sqlite_schema WHERE type = 'view'",
    "triggers": "SELECT sql FROM sqlite_schema WHERE type = 'trigger'",
}


def catalog(connection: Connection) -> Catalog:
    """Tables, columns, constraints, indexes and the rest, each as a set of definitions.

    The version table and what is not ours is left out.
    """
    if connection.dialect.name == "postgresql":
        return {
            kind: frozenset(_one_line(row) for row in connection.scalars(text(sql)) if _ours(row))
            for kind, sql in _POSTGRESQL.items()
        }
    found = {
        kind: frozenset(_one_line(row) for row in connection.scalars(text(sql)) if _ours(row))
        for kind, sql in _SQLITE.items()
    }
    parts = {part for table in found["tables"] for part in _parts(table)}
    return {**found, "tables": frozenset(parts)}


def _ours(definition: str) -> bool:
    return "outbox_" in definition and "outbox_schema_version" not in definition


def _one_line(definition: str) -> str:
    return re.sub(r"\s+", " ", definition).strip()


def _parts(table: str) -> list[str]:
    """A CREATE TABLE in its columns and checks, whose order does not count."""
    head, _, body = table.removesuffix(")").partition("(")
    parts, depth, start = [], 0, 0
    for at, character in enumerate(body):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(body[start:at])
            start = at + 1
    parts.append(body[start:])
    # A column that was added later holds its check in its own definition.
    parts = [
        piece for part in parts for piece in re.split(r" (?=CONSTRAINT ck_)", part) if piece.strip()
    ]
    return [f"{head.strip()}: {part.strip()}" for part in parts]
