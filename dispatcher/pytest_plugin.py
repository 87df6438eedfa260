"""The pytest plugin: the fixture ``postroom``.

It stands in this package because pytest imports it at the start of every session in its
environment, and to import a module is to import its package: this one is empty, and
``outbox`` would bring SQLAlchemy. Nothing more is imported before a test asks for the
fixture. It also gives the kit a dispatcher, which ``outbox`` may not know.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outbox.testing import Postroom


@pytest.fixture
def postroom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postroom]:
    """An outbox for this test: a migrated database, a clock that stands still, and runs that
    can be killed anywhere. See ``outbox.testing.Postroom``."""
    from outbox.testing import Postroom

    folder = tmp_path_factory.mktemp("postroom")
    with Postroom(folder, deliver=_deliver) as kit:
        yield kit
    # pytest keeps such folders for three sessions; thousands of databases are too many.
    shutil.rmtree(folder, ignore_errors=True)


def _deliver(url: str) -> list[Any]:
    from dispatcher.memory_delivery import deliver

    return deliver(url)
