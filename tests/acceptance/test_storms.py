"""Storms: random ``kill -9``, answers lost after acceptance, the database restarted on the way.

The short form has 120 deliveries and a few seconds of killing; ``POSTROOM_LONG_TESTS=1`` makes it
1,000 deliveries and kills until nearly all are done. ``python -m tests.acceptance.storm`` is the
long form as a program, for other seeds and sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.migrations import migrate
from tests.acceptance.storm import Weather, restarts_of, through_resend, through_smtp
from tests.acceptance.zygote import Zygote
from tests.long_forms import LONG
from tests.postgres import Server


def _weather(seed: int) -> Weather:
    if LONG:
        return Weather(1000, seed=seed)
    return Weather(120, seed=seed, dispatchers=4, longest=6.0)


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    with Zygote(tmp_path) as zygote:
        yield zygote


def test_a_provider_with_a_key_needs_no_person_on_sqlite(
    zygote: Zygote, sqlite_url: str, tmp_path: Path
) -> None:
    """B23: killed at random, with answers lost, each delivery is taken once under one key."""
    storm = through_resend(zygote, sqlite_url, tmp_path, _weather(11))
    assert storm.kills > 0
    assert storm.transmitting_when_killed


def test_a_provider_with_a_key_needs_no_person_on_postgresql(
    zygote: Zygote, own_postgres: Server, tmp_path: Path
) -> None:
    """B23, B40: the same, while PostgreSQL is restarted twice, once as after a crash."""
    migrate(own_postgres.url)
    restarts = restarts_of(own_postgres)
    storm = through_resend(zygote, own_postgres.url, tmp_path, _weather(12), restarts)
    assert storm.restarts == 2
    assert storm.kills > 0


def test_smtp_holds_only_what_was_on_its_way_on_sqlite(
    zygote: Zygote, sqlite_url: str, tmp_path: Path
) -> None:
    """B23: without a key a killed or unanswered transmission is held, and nothing else is."""
    storm = through_smtp(zygote, sqlite_url, tmp_path, _weather(13))
    assert storm.kills > 0


def test_smtp_holds_only_what_was_on_its_way_on_postgresql(
    zygote: Zygote, own_postgres: Server, tmp_path: Path
) -> None:
    """B23, B40: the same, while PostgreSQL is restarted twice."""
    migrate(own_postgres.url)
    restarts = restarts_of(own_postgres)
    storm = through_smtp(zygote, own_postgres.url, tmp_path, _weather(14), restarts)
    assert storm.restarts == 2
