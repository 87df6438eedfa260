"""Answers that are lost, late, or come when the lease is gone; real dispatchers, real sockets."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.matrix import (
    KeyProvider,
    Provider,
    SmtpAccount,
    attempts,
    configuration,
    enqueue,
    lapse,
    start,
    until_settled,
)
from tests.acceptance.zygote import Forked, Zygote
from tests.conformance.ledger import change, rows
from tests.long_forms import LONG
from tests.servers.resend import ResendServer
from tests.servers.smtp import SmtpServer

KEY = "k"
READ = 'read = "1s"'


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


@contextmanager
def _dispatching(zygote: Zygote, url: str, folder: Path, provider: Provider) -> Iterator[Forked]:
    """A plain dispatcher for one account; it has to end in good order."""
    process = start(zygote, url, configuration(folder, {"main": provider.toml}))
    try:
        yield process
    finally:
        code = process.terminate()
    assert code == 0, process.said


def _settle(zygote: Zygote, url: str, folder: Path, provider: Provider, *keys: str) -> None:
    """Enqueue a delivery for each key, and wait until they are final or held."""
    enqueue(url, keys)
    with _dispatching(zygote, url, folder, provider) as process:
        until_settled(url, keys, process)


def _impatient(server: ResendServer) -> KeyProvider:
    provider = KeyProvider(server)
    provider.toml = provider.toml.replace('read = "20s"', READ)
    return provider


def _row(url: str, key: str = KEY) -> tuple[object, ...]:
    [row] = rows(
        url,
        f"SELECT state, reason, last_error FROM outbox_deliveries WHERE delivery_key = '{key}'",
    )
    return tuple(row)


# --------------------------------------------------------------------------- #
# A provider with a key
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize("fault", ["trunc", "reset", "close", "hang:30", "500after"])
def test_a_lost_answer_is_replayed_under_the_same_key(
    zygote: Zygote, database_url: str, tmp_path: Path, fault: str
) -> None:
    """B77: the second request is the first, byte for byte, and the message is taken once."""
    with ResendServer(f"emulated:{fault}", "emulated") as server:
        _settle(zygote, database_url, tmp_path, _impatient(server), KEY)
        first, second = server.received
        assert (first.key, first.sha256) == (second.key, second.sha256)
        assert len(server.accepted) == 1
    assert attempts(database_url, KEY) == (("send", "in_doubt"), ("replay", "accepted"))
    assert _row(database_url)[:2] == ("accepted", None)


def test_answers_lost_again_and_again_are_one_message(
    zygote: Zygote, sqlite_url: str, tmp_path: Path
) -> None:
    """B77: replays that lose their answers are replayed as well."""
    modes = [f"emulated:{fault}" for fault in ("trunc", "reset", "close", "500")]
    with ResendServer(*modes, "emulated") as server:
        _settle(zygote, sqlite_url, tmp_path, _impatient(server), KEY)
        assert len(server.received) == 5
        assert {(each.key, each.sha256) for each in server.received} == {
            (server.received[0].key, server.received[0].sha256)
        }
        assert len(server.accepted) == 1
    assert _row(sqlite_url)[0] == "accepted"


def test_a_refused_connection_is_retried_plainly(
    zygote: Zygote, sqlite_url: str, tmp_path: Path
) -> None:
    """B77: where nobody listens nothing was taken: a retry, no doubt, no replay."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    enqueue(sqlite_url, [KEY])
    account = Provider()
    account.toml = (
        f'provider = "resend"\nbase_url = "http://127.0.0.1:{port}"\napi_key = "env:CRASH_API_KEY"'
    )
    with _dispatching(zygote, sqlite_url, tmp_path, account) as process:
        process.wait_for_line("unavailable")
        with ResendServer(port=port) as server:
            until_settled(sqlite_url, [KEY], process)
            assert len(server.received) == 1
    found = attempts(sqlite_url, KEY)
    assert found[-1] == ("send", "accepted")
    assert set(found[:-1]) == {("send", "unavailable")}


def test_killed_around_the_answer_a_delivery_has_one_key(
    zygote: Zygote, database_url: str, tmp_path: Path
) -> None:
    """B23: every request for a message has one key and one body, and one is taken; attempts
    that transmitted are as many as requests came."""
    dice = random.Random(23)
    for turn in range(50 if LONG else 4):
        key = f"killed:{turn}"
        folder = tmp_path / str(turn)
        folder.mkdir()
        with ResendServer("emulated:slow:0.1", "emulated") as server:
            config = configuration(folder, {"main": KeyProvider(server).toml})
            enqueue(database_url, [key])
            victim = start(zygote, database_url, config, "--lease", "30")
            server.wait_for_accepted(1)
            server.pause(dice.uniform(0, 0.05))
            victim.kill()
            lapse(database_url)
            with _dispatching(zygote, database_url, folder, KeyProvider(server)) as process:
                until_settled(database_url, [key], process)
            assert len({(each.key, each.sha256) for each in server.received}) == 1
            assert len(server.accepted) == 1
            [(count,)] = rows(
                database_url,
                "SELECT count(*) FROM outbox_attempts a JOIN outbox_deliveries d "
                f"ON d.id = a.delivery_id WHERE delivery_key = '{key}' "
                "AND a.transmitting_at IS NOT NULL",
            )
            assert count == len(server.received)
        assert _row(database_url, key)[0] == "accepted"


def test_a_killed_dispatchers_claim_needs_nobody(
    zygote: Zygote, database_url: str, tmp_path: Path
) -> None:
    """B29: when its lease has run out by itself another takes the row, also if no trace of the
    dead one is left in the table of dispatchers."""
    with ResendServer("emulated:gated") as server:
        enqueue(database_url, [KEY])
        config = configuration(tmp_path, {"main": KeyProvider(server).toml})
        victim = start(zygote, database_url, config, "--lease", "2")
        server.wait_for_accepted(1)
        victim.kill()
        change(database_url, "DELETE FROM outbox_dispatchers")
        server.script("emulated")
        with _dispatching(zygote, database_url, tmp_path, KeyProvider(server)) as process:
            until_settled(database_url, [KEY], process)
        assert len(server.accepted) == 1
    assert attempts(database_url, KEY) == (("send", "lost"), ("replay", "accepted"))


# --------------------------------------------------------------------------- #
# A process that stands still. On PostgreSQL only: one that stands still in the middle of some
# other transaction of its own would keep SQLite's only lock, and nobody could take over.
# --------------------------------------------------------------------------- #


def test_stopped_before_its_request_a_dispatcher_makes_none_when_it_wakes(
    zygote: Zygote, postgres_url: str, tmp_path: Path
) -> None:
    """B27: its lease has run out by its own clock too, so no whole request leaves (a head may, of
    which no body comes); what it then writes changes nothing."""
    with ResendServer() as server:
        enqueue(postgres_url, [KEY])
        config = configuration(tmp_path, {"main": KeyProvider(server).toml})
        sleeper = start(
            zygote, postgres_url, config, "--lease", "4",
            "--at", "just before the first byte", "--do", "stop",
        )  # fmt: skip
        sleeper.wait_until_stopped()
        with _dispatching(zygote, postgres_url, tmp_path, KeyProvider(server)) as process:
            until_settled(postgres_url, [KEY], process)
        assert len(server.received) == 1
        written = _written(postgres_url)
        sleeper.signal(signal.SIGCONT)
        sleeper.wait_for_line("lost its lease")
        assert sleeper.terminate() == 0
        assert [each.whole for each in server.received if each.whole] == [True]
        assert len(server.accepted) == 1
        assert _written(postgres_url) == written


def test_woken_too_early_a_dispatcher_repeats_the_same_request(
    zygote: Zygote, postgres_url: str, tmp_path: Path
) -> None:
    """B27: if it cannot know that it lost its lease, its request is the same, and one is taken."""
    with ResendServer() as server:
        enqueue(postgres_url, [KEY])
        config = configuration(tmp_path, {"main": KeyProvider(server).toml})
        sleeper = start(
            zygote, postgres_url, config, "--lease", "60",
            "--at", "just before the first byte", "--do", "stop",
        )  # fmt: skip
        sleeper.wait_until_stopped()
        lapse(postgres_url)
        with _dispatching(zygote, postgres_url, tmp_path, KeyProvider(server)) as process:
            until_settled(postgres_url, [KEY], process)
        token, provider_id = _written(postgres_url)
        sleeper.signal(signal.SIGCONT)
        sleeper.wait_for_line("lost its lease")
        assert sleeper.terminate() == 0
        first, second = server.received
        assert (first.key, first.sha256) == (second.key, second.sha256)
        assert len(server.accepted) == 1
        after = _written(postgres_url)
        assert after[1] == provider_id
        assert after[0] >= token
    assert _row(postgres_url)[0] == "accepted"


def test_a_late_acceptance_over_smtp_ends_the_doubt(
    zygote: Zygote, postgres_url: str, tmp_path: Path
) -> None:
    """B27: held for want of evidence, a delivery is accepted when the old sender's answer comes."""
    with SmtpServer() as server:
        enqueue(postgres_url, [KEY])
        config = configuration(tmp_path, {"main": SmtpAccount(server).toml})
        sleeper = start(
            zygote, postgres_url, config, "--lease", "60",
            "--at", "just before the first byte", "--do", "stop",
        )  # fmt: skip
        sleeper.wait_until_stopped()
        lapse(postgres_url)
        with _dispatching(zygote, postgres_url, tmp_path, SmtpAccount(server)) as process:
            until_settled(postgres_url, [KEY], process)
        assert _row(postgres_url)[:2] == ("held", "no_evidence")
        sleeper.signal(signal.SIGCONT)
        sleeper.wait_for_line("lost its lease")
        assert sleeper.terminate() == 0
        assert len(server.taken) == 1
    assert _row(postgres_url)[0] == "accepted"


def _written(url: str) -> tuple[int, object]:
    """Token and the provider's id."""
    [(token, provider_id)] = rows(
        url,
        "SELECT lease_token, r.provider_message_id FROM outbox_deliveries d "
        "JOIN outbox_recipients r ON r.delivery_id = d.id",
    )
    return int(token), provider_id


# --------------------------------------------------------------------------- #
# A provider with nothing
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize("dot", ["drop", "reset", "hang", "raw:25"])
def test_no_reply_after_the_final_dot_is_held_and_sent_once(
    zygote: Zygote, database_url: str, tmp_path: Path, dot: str
) -> None:
    """B24, B77: exactly one DATA, no retry, and the reason says that it was the final dot."""
    with SmtpServer(steps={"dot": (dot,)}) as server:
        account = SmtpAccount(server)
        account.toml += '\ntimeouts = { final_reply = "1s" }'
        _settle(zygote, database_url, tmp_path, account, KEY)
        assert server.count("DATA") == 1
        assert len(server.taken) == 1
    state, reason, error = _row(database_url)
    assert (state, reason) == ("held", "no_evidence")
    assert "dot" in str(error) or "DATA" in str(error)
    assert attempts(database_url, KEY) == (("send", "in_doubt"),)


@pytest.mark.parametrize(
    "steps",
    [
        {"greeting": ("drop", "220")},
        {"mail": ("drop", "250")},
        {"rcpt": ("reset", "250")},
        {"data": ("drop", "354")},
        {"dot": ("451", "250")},
    ],
    ids="-".join,
)
def test_what_breaks_before_the_final_dot_is_a_plain_retry(
    zygote: Zygote, sqlite_url: str, tmp_path: Path, steps: dict[str, tuple[str, ...]]
) -> None:
    """B24: a server that hangs up before the final dot has nothing; the message goes once."""
    with SmtpServer(steps=steps) as server:
        _settle(zygote, sqlite_url, tmp_path, SmtpAccount(server), KEY)
        assert len(server.taken) == 1
    assert _row(sqlite_url)[0] == "accepted"
    assert attempts(sqlite_url, KEY) == (("send", "unavailable"), ("send", "accepted"))


# --------------------------------------------------------------------------- #
# A pool that is full
# --------------------------------------------------------------------------- #


def test_hung_requests_do_not_poison_the_pool(
    zygote: Zygote, database_url: str, tmp_path: Path
) -> None:
    """B43: waiting for a connection is no attempt and no doubt; sockets stay bounded; when the
    provider answers again everything goes."""
    keys = [f"k:{number:02d}" for number in range(20)]
    connections = 3
    # Fewer than open the breaker; the long form sees that as well.
    hangs = 20 if LONG else 4
    with ResendServer(f"emulated:hang:30*{hangs}", "emulated") as server:
        account = KeyProvider(server)
        account.toml = account.toml.replace(
            'timeouts = { read = "20s" }',
            f'connections = {connections}\ntimeouts = {{ pool = "200ms", {READ} }}',
        )
        enqueue(database_url, keys)
        config = configuration(tmp_path, {"main": account.toml}, concurrency=10)
        process = start(zygote, database_url, config)
        process.wait_for_line("pool")
        assert server.live <= connections
        until_settled(database_url, keys, process)
        assert server.live <= connections
        assert process.terminate() == 0, process.said
        assert set(server.copies().values()) == {1}
        assert len(server.accepted) == len(keys)
    waits = rows(
        database_url,
        "SELECT outcome, transmitting_at FROM outbox_attempts WHERE outcome_reason = 'pool'",
    )
    assert waits
    assert set(waits) == {("unavailable", None)}
    lost = rows(database_url, "SELECT count(*) FROM outbox_attempts WHERE outcome = 'not_started'")
    assert lost == [(0,)], "a row that is settled and claimed in one round keeps its new lease"
    charged = rows(
        database_url,
        "SELECT count(*) FROM outbox_attempts WHERE outcome IN ('in_doubt', 'unavailable') "
        "AND (outcome_reason IS NULL OR outcome_reason <> 'pool')",
    )
    [(budget,)] = rows(database_url, "SELECT sum(attempts) FROM outbox_deliveries")
    assert int(budget) == int(charged[0][0])
    assert {state for (state,) in rows(database_url, "SELECT state FROM outbox_deliveries")} == {
        "accepted"
    }
