"""Reading for people: which deliveries there are. Nothing is written.

Lists are paged by id, newest first: an id never changes, so a page that is
asked for again is the same page, whatever was settled meanwhile.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, or_, select

from outbox import schema
from outbox.addresses import address_hash
from outbox.records import RecipientRow
from outbox.reports import Filter, Group, Summary
from outbox.states import State
from outbox.store.reads import recipients_of

_D, _R, _A, _E = schema.deliveries, schema.recipients, schema.attempts, schema.evidence

SUMMARY: tuple[ColumnElement[Any], ...] = (
    _D.c.id,
    _D.c.delivery_key,
    _D.c.state,
    _D.c.reason,
    _D.c.account,
    _D.c.tenant,
    _D.c.run_key,
    _D.c.priority,
    _D.c.attempts,
    _D.c.last_attempt,
    _D.c.copies,
    _D.c.send_after,
    _D.c.due_at,
    _D.c.send_before,
    _D.c.created_at,
    _D.c.updated_at,
    _D.c.finished_at,
    _D.c.last_error,
)
"""The columns of :class:`~outbox.reports.Summary`."""


def deliveries(
    connection: Connection, wanted: Filter, *, limit: int, before: int | None = None
) -> list[Summary]:
    """At most ``limit`` deliveries, newest first; ``before`` is the last id of the page before."""
    query = select(*SUMMARY).where(*_conditions(connection, wanted))
    if before is not None:
        query = query.where(_D.c.id < before)
    rows = connection.execute(query.order_by(_D.c.id.desc()).limit(limit)).all()
    people = recipients_of(connection, (row.id for row in rows)) if rows else {}
    return [summary(row, people[row.id]) for row in rows]


def groups(connection: Connection, wanted: Filter) -> list[Group]:
    """How many deliveries there are for each account, state and reason; most first."""
    rows = connection.execute(
        select(_D.c.account, _D.c.state, _D.c.reason, func.count(), func.min(_D.c.updated_at))
        .where(*_conditions(connection, wanted))
        .group_by(_D.c.account, _D.c.state, _D.c.reason)
        .order_by(func.count().desc(), _D.c.account, _D.c.state, _D.c.reason)
    )
    return [
        Group(account, State(state), reason, count, oldest)
        for account, state, reason, count, oldest in rows
    ]


def _conditions(connection: Connection, wanted: Filter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.states:
        found.append(_D.c.state.in_([state.value for state in wanted.states]))
    if wanted.accounts:
        found.append(_D.c.account.in_(wanted.accounts))
    if wanted.key_prefix:
        # LIKE ignores case on SQLite, and its wildcards are ordinary characters of a key.
        prefix = func.substr(_D.c.delivery_key, 1, len(wanted.key_prefix))
        found.append(prefix == wanted.key_prefix)
    if wanted.to is not None:
        found.append(
            exists().where(
                _R.c.delivery_id == _D.c.id, _R.c.address_hash == address_hash(wanted.to)
            )
        )
    if wanted.tag is not None:
        # As text, quotes included: a row written by plain SQL may hold no JSON at all there.
        quoted = json.dumps(wanted.tag, ensure_ascii=False)
        inside = func.strpos if connection.dialect.name == "postgresql" else func.instr
        found.append(inside(_D.c.tags, quoted) > 0)
    for column, value in (
        (_D.c.reason, wanted.reason),
        (_D.c.tenant, wanted.tenant),
        (_D.c.run_key, wanted.run_key),
    ):
        if value is not None:
            found.append(column == value)
    if wanted.changed_since is not None:
        found.append(_D.c.updated_at >= wanted.changed_since)
    return found


def matching(connection: Connection, reference: str, *, limit: int = 20) -> list[int]:
    """The ids of the deliveries that ``reference`` names, by the first meaning that fits:
    key, id, public id or Message-ID, the provider's own id. Usually one, or none."""
    bare = reference.strip().removeprefix("<").removesuffix(">")
    asked: list[Select[Any]] = [select(_D.c.id).where(_D.c.delivery_key == reference)]
    if reference.isascii() and reference.isdigit() and len(reference) < 19:
        asked.append(select(_D.c.id).where(_D.c.id == int(reference)))
    if (public := _uuid(bare.partition("@")[0])) is not None:
        asked.append(select(_D.c.id).where(_D.c.public_id == public))
    spellings = sorted({reference, bare, f"<{bare}>"})
    asked.append(
        select(_D.c.id)
        .where(
            or_(
                *(
                    exists().where(
                        and_(
                            table.c.delivery_id == _D.c.id,
                            table.c.provider_message_id.in_(spellings),
                        )
                    )
                    for table in (_R, _A, _E)
                )
            )
        )
        .order_by(_D.c.id.desc())
        .limit(limit)
    )
    for query in asked:
        if found := connection.execute(query).scalars().all():
            return list(found)
    return []


def summary(row: Any, people: tuple[RecipientRow, ...]) -> Summary:
    """One row of :data:`SUMMARY` with its recipients."""
    return Summary(
        id=row.id,
        key=row.delivery_key,
        state=State(row.state),
        reason=row.reason,
        account=row.account,
        tenant=row.tenant,
        run_key=row.run_key,
        priority=row.priority,
        counted_attempts=row.attempts,
        claims=row.last_attempt,
        copies=row.copies,
        send_after=row.send_after,
        due_at=row.due_at,
        send_before=row.send_before,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        last_error=row.last_error,
        recipients=people,
    )


def _uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None
