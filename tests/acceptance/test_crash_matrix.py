"""The crash matrix against its committed table; see :mod:`tests.acceptance.matrix`.

The whole of it runs on SQLite. PostgreSQL runs the kinds with a key and with neither, and the
rest as well with ``POSTROOM_LONG_TESTS=1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.crashing import Boundary
from tests.acceptance.failure_table import FILE, page, table
from tests.acceptance.matrix import KINDS, Kind, Seen, play
from tests.acceptance.zygote import Zygote
from tests.long_forms import LONG

NAMES = [kind.name for kind in KINDS]
SHORT_ON_POSTGRES = ("key", "neither")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


def _committed(kind: Kind) -> str:
    """The section of one kind."""
    text = FILE.read_text(encoding="utf-8")
    start = text.index(f"## {kind.title}\n")
    end = text.find("\n## ", start)
    return text[start:] if end < 0 else text[start:end]


def _check(kind: Kind, seen: dict[Boundary, Seen]) -> None:
    """What holds for every provider: invariants 1 and 3."""
    for boundary, each in seen.items():
        where = f"{kind.name}, killed {boundary}: {each}"
        assert not each.lost, where
        assert each.after <= 1, where
        assert each.state in {"accepted", "held"}, where
        if each.state == "held":
            assert kind.name == "neither", where
            assert each.doubted, where


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_every_crash_ends_as_the_table_says(
    zygote: Zygote, sqlite_url: str, tmp_path: Path, kind: Kind
) -> None:
    """Killed at any boundary nothing is lost, nothing is sent twice, and the table says so."""
    seen = play(zygote, sqlite_url, tmp_path, kind, kind.boundaries)
    _check(kind, seen)
    assert table(kind, seen) == _committed(kind), "run: make failure-table"


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_every_crash_ends_so_on_postgresql_too(
    zygote: Zygote, postgres_url: str, tmp_path: Path, kind: Kind
) -> None:
    """PostgreSQL leaves what SQLite leaves."""
    if kind.name not in SHORT_ON_POSTGRES and not LONG:
        pytest.skip("POSTROOM_LONG_TESTS=1 runs the whole matrix on PostgreSQL as well")
    seen = play(zygote, postgres_url, tmp_path, kind, kind.boundaries)
    _check(kind, seen)
    assert table(kind, seen) == _committed(kind)


def test_the_page_has_every_kind_and_nothing_else() -> None:
    """A kind that is left out of the page, or a word changed by hand, is noticed."""
    assert page([_committed(kind) for kind in KINDS]) == FILE.read_text(encoding="utf-8")
