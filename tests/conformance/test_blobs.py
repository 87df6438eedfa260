"""Attachment contents: captured at enqueue, stored once, locked against the cleaner and nobody else."""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
import pytest

import outbox
from outbox import connections
from outbox.store import enqueue as store
from tests.conformance.ledger import (
    change,
    counts,
    engine_at,
    mail,
    one_mail,
    rows,
    with_invoices,
)
from tests.conformance.waiting import in_threads, until_blocked

CLEANER = (
    "DELETE FROM outbox_blobs WHERE sha256 IN (SELECT b.sha256 FROM outbox_blobs b WHERE NOT EXISTS"
    " (SELECT 1 FROM outbox_delivery_blobs l WHERE l.sha256 = b.sha256) FOR UPDATE SKIP LOCKED)"
)


def _digests(*contents: bytes) -> list[str]:
    return [hashlib.sha256(content).hexdigest() for content in contents]


def test_content_is_captured_when_it_is_enqueued(database_url: str) -> None:
    """B22: what the caller's buffer becomes afterwards does not reach the stored bytes."""
    buffer = bytearray(b"as it was")
    one_mail(database_url, message=mail(files=[buffer]))
    buffer[:] = b"changed!!"
    [(digest, size, content)] = rows(database_url, "SELECT sha256, size, content FROM outbox_blobs")
    assert bytes(content) == b"as it was"
    assert (digest, size) == (*_digests(b"as it was"), 9)


def test_equal_contents_are_stored_once(database_url: str) -> None:
    """Two files of one message and of two deliveries share one blob; each delivery has a link."""
    one_mail(database_url, "one", message=mail(files=[b"logo", b"logo"]))
    one_mail(database_url, "two", message=mail(files=[b"logo", b"", b"own"]))
    links = "SELECT delivery_id, sha256 FROM outbox_delivery_blobs ORDER BY delivery_id, sha256"
    first, second = (
        r[0] for r in rows(database_url, "SELECT id FROM outbox_deliveries ORDER BY id")
    )
    [logo, empty, own] = _digests(b"logo", b"", b"own")
    assert rows(database_url, links) == sorted(
        [(first, logo), (second, logo), (second, empty), (second, own)]
    )
    assert rows(database_url, "SELECT count(*) FROM outbox_blobs") == [(3,)]


def _session(url: str, lock_timeout: str = "20s") -> psycopg.Connection[Any]:
    return psycopg.connect(url, options=f"-clock_timeout={lock_timeout}")


def test_producers_share_blobs_without_waiting(postgres_url: str) -> None:
    """Two open transactions with the same two files, in opposite order, do not block each other."""
    one_mail(postgres_url, "first", message=mail(files=[b"logo", b"terms"]))
    with _session(postgres_url) as one, _session(postgres_url, "1ms") as two:
        outbox.enqueue(one, mail(files=[b"logo", b"terms"]), key="one")
        outbox.enqueue(two, mail(files=[b"terms", b"logo"]), key="two")
        two.commit()
        one.commit()
    assert rows(postgres_url, "SELECT count(*) FROM outbox_delivery_blobs") == [(6,)]


def test_new_blobs_are_inserted_in_one_order(postgres_url: str) -> None:
    """Two producers that bring the same new files in opposite order wait, and never deadlock."""
    low, middle, high = sorted([b"a", b"b", b"c"], key=_digests)
    with (
        _session(postgres_url) as holder,
        _session(postgres_url) as one,
        _session(postgres_url) as two,
        in_threads() as start,
    ):
        outbox.enqueue(holder, mail(files=[middle]), key="holder")

        def act(connection: Any, key: str, files: list[bytes]) -> None:
            outbox.enqueue(connection, mail(files=files), key=key)
            connection.commit()

        first = start(lambda: act(one, "one", [low, middle, high]))
        until_blocked(postgres_url, 1)
        second = start(lambda: act(two, "two", [high, middle, low]))
        until_blocked(postgres_url, 2)
        holder.commit()
        first.result()
        second.result()
    assert rows(postgres_url, "SELECT count(*) FROM outbox_blobs") == [(3,)]


def test_the_cleaner_leaves_what_a_producer_has_found(postgres_url: str) -> None:
    """From the moment enqueue has found a blob, a cleaner that skips locked ones does not take it."""
    change(
        postgres_url,
        f"INSERT INTO outbox_blobs (sha256, size, content) VALUES ('{_digests(b'logo')[0]}', 4, "
        "'logo')",
    )
    with _session(postgres_url) as producer, _session(postgres_url) as cleaner:
        connections.run(producer, lambda d: store.insert_blobs(d, dict(_pairs(b"logo"))))
        assert cleaner.execute(CLEANER).rowcount == 0
        cleaner.commit()
        producer.rollback()
        assert cleaner.execute(CLEANER).rowcount == 1


def _pairs(*contents: bytes) -> list[tuple[str, bytes]]:
    return list(zip(_digests(*contents), contents, strict=True))


def test_a_blob_that_vanishes_is_stored_again(postgres_url: str) -> None:
    """A cleaner between "it is there" and the lock costs a second insert, not the attachment."""
    change(
        postgres_url,
        f"INSERT INTO outbox_blobs (sha256, size, content) VALUES ('{_digests(b'logo')[0]}', 4, "
        "'logo')",
    )
    cleaned = False

    def work(dialect: str) -> connections.Steps[None]:
        nonlocal cleaned
        steps = store.insert_blobs(dialect, dict(_pairs(b"logo")))
        query = next(steps)
        while True:
            found = yield query
            if not cleaned:
                change(postgres_url, CLEANER)
                cleaned = True
            try:
                query = steps.send(found)
            except StopIteration:
                return

    with _session(postgres_url) as producer:
        connections.run(producer, work)
    assert rows(postgres_url, "SELECT content FROM outbox_blobs") == [(b"logo",)]


@pytest.mark.parametrize("count", [1, 300])
def test_bulk_stores_shared_contents_once(database_url: str, count: int) -> None:
    """Many deliveries with one logo store it once and link it to each."""
    url = with_invoices(database_url)
    with engine_at(url) as engine, engine.begin() as connection:
        outbox.enqueue_many(connection, [(mail(files=[b"logo"]), f"k{n}") for n in range(count)])
    found = counts(url)
    assert (found.deliveries, found.links, found.blobs) == (count, count, 1)
