"""How ``postroom dispatch`` ends, and what it says last."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox.migrations import migrate
from tests.acceptance.accounts import smtp
from tests.acceptance.fleet import Fleet
from tests.postgres import Server
from tests.servers.smtp import SmtpServer


def test_a_drain_that_leaves_nothing_ends_with_0(database_url: str, tmp_path: Path) -> None:
    """Exit 0, and it says so; also when there was nothing to begin with."""
    with SmtpServer() as sink, Fleet(tmp_path, database_url, smtp(sink)) as fleet:
        for expected in (0, 3):
            if expected:
                fleet.enqueue(expected)
            drain = fleet.start("--drain")
            assert (drain.wait(), drain.out) == (0, ["nothing is left"])
            assert len(sink.taken) == expected


def test_one_round_sends_what_has_a_slot_and_counts_the_rest(
    database_url: str, tmp_path: Path
) -> None:
    """--once claims once: two slots, five rows, three are still due; exit 0."""
    with SmtpServer() as sink, Fleet(tmp_path, database_url, smtp(sink), concurrency=2) as fleet:
        fleet.enqueue(5)
        once = fleet.start("--once")
        assert (once.wait(), once.out) == (0, ["3 deliveries are left: 3 due"])
        assert len(sink.taken) == 2


def test_rows_that_wait_keep_no_drain_and_are_no_alarm(database_url: str, tmp_path: Path) -> None:
    """A row that waits for its retry is counted and left; exit 0."""
    with (
        SmtpServer(steps={"mail": ("451",)}) as sink,
        Fleet(tmp_path, database_url, smtp(sink), retry_after="1h") as fleet,
    ):
        fleet.enqueue(2)
        drain = fleet.start("--drain")
        assert drain.wait() == 0
        assert drain.out == ["2 deliveries are left: 2 waiting for a retry, a time or an account"]


def test_a_drain_with_doubt_that_nothing_settles_ends_with_1(
    database_url: str, tmp_path: Path
) -> None:
    """No reply to the dot, and nothing can prove more: held, exit 1; the next drain says the same."""
    with (
        SmtpServer(steps={"dot": ("drop", "250")}) as sink,
        Fleet(tmp_path, database_url, smtp(sink), concurrency=1) as fleet,
    ):
        fleet.enqueue(2)
        for _ in range(2):
            drain = fleet.start("--drain")
            assert (drain.wait(), drain.out) == (1, ["1 delivery is left: 1 held"])


def test_a_drain_with_held_rows_ends_with_1(database_url: str, tmp_path: Path) -> None:
    """A row whose account nobody knows is held: exit 1."""
    with SmtpServer() as sink, Fleet(tmp_path, database_url, smtp(sink)) as fleet:
        fleet.enqueue_keys(["k"], account="elsewhere")
        drain = fleet.start("--drain")
        assert (drain.wait(), drain.out) == (1, ["1 delivery is left: 1 held"])
        assert sink.connections == 0


@pytest.mark.parametrize("mode", ["--once", "--drain"])
def test_without_its_schema_dispatch_ends_with_3(
    empty_database_url: str, tmp_path: Path, mode: str
) -> None:
    """Not migrated: one line that names the command to run; nothing is made."""
    with SmtpServer() as sink, Fleet(tmp_path, empty_database_url, smtp(sink)) as fleet:
        dispatcher = fleet.start(mode)
        assert dispatcher.wait() == 3
        [line] = dispatcher.log
        assert line.endswith('run "postroom migrate"')
        assert dispatcher.out == []


def test_without_its_database_dispatch_ends_with_3(own_postgres: Server, tmp_path: Path) -> None:
    """Away at the start: one line, exit 3, in every mode."""
    migrate(own_postgres.url)
    own_postgres.stop()
    with SmtpServer() as sink, Fleet(tmp_path, own_postgres.url, smtp(sink)) as fleet:
        for mode in (["--once"], ["--drain"], []):
            dispatcher = fleet.start(*mode)
            assert dispatcher.wait() == 3
            [line] = dispatcher.log
            assert line.startswith("postroom: the database cannot be used: connection")


@pytest.mark.parametrize(
    ("account", "words", "said"),
    [
        ('provider = "smpt"', [], "accounts.main.provider"),
        ('provider = "smtp"', [], "accounts.main.host"),
        ('provider = "resend"\napi_key = "env:NOT_SET_ANYWHERE"', [], "NOT_SET_ANYWHERE"),
        ('provider = "file"', ["--once", "--drain"], "--once and --drain exclude each other"),
        ('provider = "file"', ["--drian"], "--drian"),
    ],
)
def test_a_wrong_configuration_or_usage_ends_with_2(
    sqlite_url: str, tmp_path: Path, account: str, words: list[str], said: str
) -> None:
    """One line that names the key or the option; nothing is sent."""
    with Fleet(tmp_path, sqlite_url, account) as fleet:
        dispatcher = fleet.start(*words)
        assert dispatcher.wait() == 2
        [line] = dispatcher.log
        assert line.startswith("postroom: ")
        assert said in line
