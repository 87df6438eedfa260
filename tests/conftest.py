"""Fixtures for every tier: databases by URL, and the run's PostgreSQL server.

Nothing is started before a test asks for it, so that unit and property tests
alone need no database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.databases import fresh_postgres, fresh_sqlite, sqlite_at
from tests.postgres import NoServer, Server
from tests.session import NotWanted, Session, wanted

_SESSION = pytest.StashKey[Session]()
_POSTGRES_FIXTURES = {"postgres_url", "empty_postgres_url", "own_postgres"}


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is None:
        config.stash[_SESSION] = Session.begin()
    else:
        config.stash[_SESSION] = Session(Path(given["postroom_session"]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: tell a worker which run it belongs to."""
    node.workerinput["postroom_session"] = str(node.config.stash[_SESSION].folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    if session := config.stash.get(_SESSION, None):
        session.end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server, so that ``-m "not postgres"`` leaves it out."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        callspec = getattr(item, "callspec", None)
        kind = callspec.params.get("database_url") if callspec else None
        if names & _POSTGRES_FIXTURES or kind == "postgresql":
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(scope="session")
def shared_session(request: pytest.FixtureRequest) -> Session:
    """What all processes of this run share."""
    return request.config.stash[_SESSION]


@contextmanager
def _said_clearly() -> Iterator[None]:
    try:
        yield
    except NotWanted as reason:
        pytest.skip(str(reason))
    except NoServer as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest.fixture
def postgres_url(shared_session: Session) -> Iterator[str]:
    """A migrated PostgreSQL database of this test's own."""
    with _said_clearly(), fresh_postgres(shared_session, migrated=True) as url:
        yield url


@pytest.fixture
def empty_postgres_url(shared_session: Session) -> Iterator[str]:
    """A PostgreSQL database of this test's own with nothing in it."""
    with _said_clearly(), fresh_postgres(shared_session, migrated=False) as url:
        yield url


@pytest.fixture
def sqlite_url(shared_session: Session, tmp_path: Path) -> str:
    """A migrated SQLite file of this test's own."""
    return fresh_sqlite(shared_session, tmp_path / "postroom.db")


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return sqlite_at(tmp_path / "empty.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database; the test runs once on each kind."""
    name = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param]
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest) -> str:
    """A database with nothing in it; the test runs once on each kind."""
    name = {"sqlite": "empty_sqlite_url", "postgresql": "empty_postgres_url"}[request.param]
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def own_postgres(shared_session: Session) -> Iterator[Server]:
    """A running server that this test may stop, kill and start again; not migrated."""
    with _said_clearly():
        wanted()
        server = Server(shared_session.own_folder())
        server.start()
    yield server
    server.stop()
