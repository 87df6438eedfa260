"""What a job's author may rely on: every name, every argument, and that each is explained."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outbox
from outbox import migrations

ROOT = Path(__file__).parents[2]

NAMES = [
    "Address",
    "Attachment",
    "Cancelled",
    "Delivery",
    "Email",
    "Enqueued",
    "InvalidDatabase",
    "InvalidKey",
    "InvalidMessage",
    "KeyConflict",
    "NotInTransaction",
    "OutboxError",
    "Recipient",
    "Requested",
    "RetryTransaction",
    "SchemaTooNew",
    "SchemaTooOld",
    "TooLate",
    "Unsubscribe",
    "UnsupportedConnection",
    "__version__",
    "cancel",
    "cancel_async",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "find",
    "find_async",
    "key",
    "metadata",
    "migrations",
    "prepare_sqlite",
    "transaction",
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
    "key": "(*parts)",
    "prepare_sqlite": "(engine, *, timeout=30.0)",
    "transaction": "(connection)",
    "migrations.check": "(connection)",
    "migrations.downgrade": "(op, to='base')",
    "migrations.include_name": "(name, type_, parent_names)",
    "migrations.migrate": "(url, *, schema=None)",
    "migrations.revision": "(connection)",
    "migrations.sql": "(url, *, schema=None)",
    "migrations.upgrade": "(op, to='0002', *, since='')",
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
    assert len(classes) == 10
    assert all(issubclass(each, outbox.OutboxError) for each in classes)


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
