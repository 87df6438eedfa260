"""``python -m examples.website_audit --database URL``: start the job, from cron or by hand.

Exit codes are those of ``postroom``: 0 fine, 1 a site could not be audited,
2 wrong usage, 3 the database could not be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

import outbox
from examples.website_audit import customers, periods, schema
from examples.website_audit.customers import Customer
from examples.website_audit.job import audit
from examples.website_audit.periods import Week
from examples.website_audit.site import SiteUnavailable

FINE, NEEDS_A_PERSON, WRONG_USAGE, CANNOT_TELL = range(4)


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    database: str
    week: str | None
    customers: tuple[Customer, ...]


def main(
    arguments: Sequence[str] | None = None,
    *,
    before_commit: Callable[[Connection], None] | None = None,
) -> int:
    """Run the job for every customer and return the exit code; see :func:`audit`."""
    options = read_options(arguments)
    try:
        engine = open_engine(options.database)
        try:
            schema.create(engine)
            return _audit_all(engine, options, before_commit)
        finally:
            engine.dispose()
    except outbox.OutboxError as problem:
        return _fail(str(problem), CANNOT_TELL)
    except DBAPIError as problem:
        return _fail(f"the database cannot be used: {problem.orig}", CANNOT_TELL)


def read_options(arguments: Sequence[str] | None) -> Options:
    """The command line as a value; ends the process with code 2 when it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.website_audit",
        description="Audit each customer's website for one week, once.",
    )
    parser.add_argument(
        "--database", required=True, metavar="URL", help="sqlite:/// or postgresql://"
    )
    parser.add_argument(
        "--week", help="ISO week, like 2026-W48 (default: the latest that has ended)"
    )
    parser.add_argument("--site", help="audit this folder or URL instead of the three examples")
    given = parser.parse_args(arguments)
    if given.week is not None:
        try:
            periods.week(given.week, "UTC")
        except ValueError as problem:
            parser.error(f"--week: {problem}")
    who = (customers.for_site(given.site),) if given.site else customers.examples()
    return Options(given.database, given.week, who)


def open_engine(url: str) -> Engine:
    """The application's own engine, made ready for enqueuing.

    Raises InvalidDatabase, an OutboxError, for a URL that cannot be read.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise outbox.InvalidDatabase(
            "--database: write sqlite:///path/to/file or postgresql://user@host/name"
        ) from None
    match parsed.get_backend_name():
        case "sqlite":
            return outbox.prepare_sqlite(create_engine(parsed))
        case "postgresql" | "postgres":
            return create_engine(parsed.set(drivername="postgresql+psycopg"))
        case other:
            raise outbox.InvalidDatabase(f"--database: {other} is not supported")


def choose_week(label: str | None, timezone: str, now: datetime) -> tuple[Week, datetime | None]:
    """Which week to audit, and the instant from which its mail is pointless.

    A weekly report is replaced by the next one. A week that was asked for by
    hand is wanted however late it is.
    """
    if label is not None:
        return periods.week(label, timezone), None
    week = periods.latest_complete(now, timezone)
    return week, periods.following(week, timezone).end


def _audit_all(
    engine: Engine, options: Options, before_commit: Callable[[Connection], None] | None
) -> int:
    code = FINE
    for customer in options.customers:
        week, send_before = choose_week(options.week, customer.timezone, datetime.now(UTC))
        try:
            result = audit(
                engine, customer, week, send_before=send_before, before_commit=before_commit
            )
        except SiteUnavailable as problem:
            # One site that is down must not cost the other customers their report.
            code = _fail(f"{customer.id}: {problem}; nothing written", NEEDS_A_PERSON)
        else:
            print(result.explain(), flush=True)
    return code


def _fail(line: str, code: int) -> int:
    print(line, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
