"""``python -m examples.website_audit --database URL``: start the job, from cron or by hand.

Exit codes are those of ``postroom``: 0 fine, 1 a site could not be audited,
2 wrong usage, 3 the database could not be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

import outbox
from examples.website_audit import customers, schema
from examples.website_audit.customers import Customer
from examples.website_audit.job import LEASE, audit
from examples.website_audit.site import SiteUnavailable
from outbox.periods import InvalidPeriod, Period

FINE, NEEDS_A_PERSON, WRONG_USAGE, CANNOT_TELL = range(4)


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    database: str
    week: str | None
    customers: tuple[Customer, ...]
    lease: timedelta = LEASE


def main(
    arguments: Sequence[str] | None = None,
    *,
    before_commit: Callable[[Connection], None] | None = None,
) -> int:
    """Run the job for every customer and return the exit code; see :func:`audit`.

    ``before_commit`` is called when all of a report is written and COMMIT is next;
    it is there to rehearse a crash in the worst moment.
    """
    options = read_options(arguments)
    try:
        engine = open_engine(options.database)
        try:
            schema.create(engine)
            if before_commit is not None:
                event.listen(engine, "commit", before_commit)
            return _audit_all(engine, options)
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
    parser.add_argument(
        "--lease", type=float, default=LEASE.total_seconds(), metavar="SECONDS",
        help="how long a run stays a silent process's own (default: 60)",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if given.lease < 1:
        parser.error("--lease: at least 1 second")
    if given.week is not None:
        try:
            customers.examples()[0].weeks.period(given.week)
        except InvalidPeriod as problem:
            parser.error(f"--week: {problem}")
    who = (customers.for_site(given.site),) if given.site else customers.examples()
    return Options(given.database, given.week, who, timedelta(seconds=given.lease))


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


def choose_week(
    label: str | None, customer: Customer, now: datetime
) -> tuple[Period, datetime | None]:
    """Which week to audit, and the instant from which its mail is pointless.

    A weekly report is replaced by the next one. A week that was asked for by
    hand is wanted however late it is.
    """
    if label is not None:
        return customer.weeks.period(label), None
    week = customer.weeks.latest_complete(at=now)
    return week, customer.weeks.after(week).end


def _audit_all(engine: Engine, options: Options) -> int:
    code = FINE
    for customer in options.customers:
        week, send_before = choose_week(options.week, customer, outbox.now())
        try:
            said = audit(engine, customer, week, send_before=send_before, lease=options.lease)
        except (SiteUnavailable, outbox.InputChanged) as problem:
            # One site that is down must not cost the other customers their report.
            code = _fail(f"{customer.id}: {problem}; nothing written", NEEDS_A_PERSON)
        else:
            print(said, flush=True)
    return code


def _fail(line: str, code: int) -> int:
    print(line, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
