"""One migrated database for every store of a session of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import fresh_sqlite
from tests.explorer.clock import Clock
from tests.explorer.stores import MemoryStore
from tests.session import Session


@pytest.fixture(scope="session")
def template(shared_session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file."""
    path = tmp_path_factory.mktemp("explorer") / "template.db"
    fresh_sqlite(shared_session, path)
    return path


@pytest.fixture
def memory(template: Path) -> Iterator[MemoryStore]:
    """A store in memory of this test's own."""
    store = MemoryStore(Clock(), template)
    yield store
    store.close()
