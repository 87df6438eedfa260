"""What a job's author may rely on: every name, every argument, and that each is explained."""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import outbox
from outbox import jobs, migrations, periods

ROOT = Path(__file__).parents[2]

NAMES = [
    "Address",
    "Attachment",
    "Cancelled",
    "Delivery",
    "Email",
    "Enqueued",
    "InputChanged",
    "InvalidDatabase",
    "InvalidKey",
    "InvalidMessage",
    "KeyConflict",
    "LeaseLost",
    "NotInTransaction",
    "OutboxError",
    "Permanent",
    "Recipient",
    "Requested",
    "RetryAfter",
    "RetryTransaction",
    "RunNotFinished",
    "SchemaTooNew",
    "SchemaTooOld",
    "TooLate",
    "Unsubscribe",
    "UnsupportedConnection",
    "__version__",
    "cancel",
    "cancel_async",
    "deduplicate",
    "deduplicate_async",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "find",
    "find_async",
    "job",
    "key",
    "metadata",
    "migrations",
    "now",
    "open_run",
    "prepare_sqlite",
    "transaction",
]

PERIODS = [
    "InvalidPeriod",
    "InvalidRule",
    "Period",
    "Rule",
    "cron",
    "daily",
    "hourly",
    "monthly",
    "quarterly",
    "weekly",
    "yearly",
]

_OPTIONS = (
    "account=None, send_after=None, send_before=None, when_unsure=None, priority=0, tenant=None, "
    "if_exists='raise', own_transaction=False"
)
SIGNATURES = {
    "cancel": "(connection, key, *, own_transaction=False)",
    "cancel_async": "(connection, key, *, own_transaction=False)",
    "enqueue": f"(connection, message, *, key, {_OPTIONS})",
    "enqueue_async": "(connection, message, *, key, own_transaction=False, **options)",
    "enqueue_many": f"(connection, items, *, {_OPTIONS})",
    "find": "(connection, key)",
    "find_async": "(connection, key)",
    "job": (
        "(name, *, period, due=None, subjects=None, inputs=None, missed='latest', grace='2m', "
        "useful_for=None, overlap='wait', overdue_after=None, attempts=10, first_delay='1m', "
        "max_delay='1h', permanent=(), expects=None, lease='60s', concurrency=None, priority=0, "
        "per_round=100)"
    ),
    "key": "(*parts)",
    "deduplicate": "(connection, source, event_id)",
    "deduplicate_async": "(connection, source, event_id)",
    "now": "()",
    "open_run": (
        "(job, *, subject='all', period, inputs=None, input_version=None, database=None, "
        "revision=None, again=False, useful_for=None, overdue_after=None, overlap='wait', "
        "lease=datetime.timedelta(seconds=60), attempts=10, permanent=(), expects=None)"
    ),
    "prepare_sqlite": "(engine, *, timeout=30.0)",
    "transaction": "(connection)",
    "migrations.check": "(connection)",
    "migrations.downgrade": "(op, to='base')",
    "migrations.include_name": "(name, type_, parent_names)",
    "migrations.migrate": "(url, *, schema=None)",
    "migrations.revision": "(connection)",
    "migrations.sql": "(url, *, schema=None)",
    "migrations.upgrade": "(op, to='0003', *, since='')",
    "Email": (
        "(to, subject='', *, text=None, html=None, from_=None, cc=(), bcc=(), reply_to=(), "
        "headers=(), attachments=(), tags=(), metadata={}, provider_options={}, "
        "list_unsubscribe=None, auto_submitted=None)"
    ),
    "Attachment": ("(filename, content, content_type='application/octet-stream', content_id=None)"),
    "Enqueued": "(id, key, created, state)",
    "Cancelled": "(key)",
    "Requested": "(key)",
    "TooLate": "(key, state)",
}


def _named(name: str) -> Any:
    found: Any = outbox
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _plain(signature: inspect.Signature) -> str:
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()
    ]
    return str(inspect.Signature(parameters))


def test_the_public_names_are_these() -> None:
    """A name that comes or goes is a decision, and shows here; the list is sorted."""
    assert outbox.__all__ == NAMES
    assert outbox.__all__ == sorted(outbox.__all__)
    assert all(hasattr(outbox, name) for name in NAMES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_arguments_are_these(name: str) -> None:
    """An argument that is renamed, reordered or given another default breaks somebody's job."""
    assert _plain(inspect.signature(_named(name))) == SIGNATURES[name]


def test_every_function_is_pinned() -> None:
    """No public function is missing from the table of signatures."""
    functions = {name for name in NAMES if inspect.isfunction(_named(name))}
    ours = {
        f"migrations.{name}"
        for name, value in vars(migrations).items()
        if inspect.isfunction(value) and value.__module__ == migrations.__name__ and name[0] != "_"
    }
    assert functions | ours <= set(SIGNATURES)


@pytest.mark.parametrize("name", [name for name in NAMES if callable(_named(name))])
def test_everything_public_is_explained(name: str) -> None:
    """Each public function and class has a docstring of its own."""
    text = inspect.getdoc(_named(name)) or ""
    assert len(text) > 20
    assert not text.startswith(f"{name}(")  # what a dataclass writes by itself


def test_every_error_is_ours() -> None:
    """All errors share one base, so that a job can catch what this package raises on purpose."""
    errors = [_named(name) for name in NAMES]
    classes = [e for e in errors if inspect.isclass(e) and issubclass(e, Exception)]
    assert len(classes) == 15
    assert all(issubclass(each, outbox.OutboxError) for each in classes)


def test_the_rules_of_periods_have_a_short_name() -> None:
    """A job imports them from outbox.periods; they are the same as those of outbox.jobs."""
    assert periods.__all__ == PERIODS
    assert all(getattr(periods, name) is getattr(jobs.periods, name) for name in PERIODS)


def test_now_is_an_aware_instant_in_utc() -> None:
    """``outbox.now()`` can be given to a rule as it is, and is the host's."""
    before = datetime.now(UTC)
    found = outbox.now()
    assert before <= found <= datetime.now(UTC)
    assert found.tzinfo is UTC
    assert periods.daily(timezone="Europe/Berlin").latest_complete(at=found).end <= found


_LOADED = """
import sys, sysconfig, threading
before = set(sys.modules)
import outbox
assert threading.active_count() == 1
places = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
for name in set(sys.modules) - before:
    if (getattr(sys.modules[name], "__file__", None) or "").startswith(places):
        print(name.partition(".")[0])
"""


def test_importing_outbox_loads_the_standard_library_and_sqlalchemy() -> None:
    """Nothing else is loaded, and no thread is started."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {"sqlalchemy", "greenlet", "typing_extensions"}
    assert "sqlalchemy" in done.stdout
