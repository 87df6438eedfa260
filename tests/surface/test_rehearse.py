"""``postroom rehearse`` from outside: what people type, see, and get as an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from dispatcher.rehearse.runner import DRILLS
from tests.command_line import CommandLine
from tests.forked_commands import ROOT
from tests.servers.http import HttpServer

PATIENCE = 60.0
RESEND = """
[defaults]
from = "Reports <reports@example.com>"
[accounts.main]
provider = "resend"
api_key = "env:RESEND_API_KEY"
base_url = "{url}"
{more}
"""


@pytest.fixture
def postroom(tmp_path: Path) -> CommandLine:
    """The command line in an empty folder, with a database that is not there yet."""
    return CommandLine(tmp_path, {"POSTROOM_DATABASE__URL": "sqlite:///app.db"})


@pytest.fixture
def database(postroom: CommandLine, empty_database_url: str) -> str:
    postroom.environ["POSTROOM_DATABASE__URL"] = empty_database_url
    return empty_database_url


def schemas(url: str) -> list[str]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        question = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'postroom_rehearsal_%'"
        return [name for (name,) in connection.execute(question)]


def test_a_rehearsal_needs_nothing_but_the_command(postroom: CommandLine, database: str) -> None:
    """In an empty folder every drill is played, as JSON with stable keys, and nothing is left."""
    ended = postroom("rehearse", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert list(ended.json) == [
        "ok", "database", "account", "provider", "seconds", "times", "drills", "warnings", "notes",
    ]  # fmt: skip
    assert ended.json["ok"] is True
    names = [drill["name"] for drill in ended.json["drills"]]
    assert names == ["configuration", *(drill.name for drill in DRILLS)]
    assert list(ended.json["drills"][1]) == [
        "name", "tried", "expected", "happened", "ok", "seconds",
    ]  # fmt: skip
    assert "Webhooks are not there yet" in ended.json["notes"][0]
    assert list(postroom.folder.iterdir()) == []
    assert ended.json["database"] == database.partition(":")[0].partition("+")[0]


def test_a_table_says_what_was_tried_expected_and_seen(postroom: CommandLine) -> None:
    """Piped, every drill is one line; nothing else is printed while they are played."""
    ended = postroom("rehearse", "--only", "changed", "--only", "rejected")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith("sqlite · main (file) · lease 1 min · poll 1 s · grace 30 s")
    assert lines[2].split() == ["TRIED", "EXPECTED", "HAPPENED"]
    assert [line.split()[0] for line in lines[3:6]] == ["ok", "ok", "ok"]
    assert lines[4].count("KeyConflict: text; the first is accepted; taken once") == 2
    assert "Webhooks are not there yet" in ended.out
    assert lines[-1].startswith("3 of 3 as expected, in ")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_terminal_it_shows_how_far_it_is(postroom: CommandLine, width: int) -> None:
    """Each drill is a line when it begins, its verdict follows; the table fits the terminal."""
    ended = postroom.on_terminal("rehearse", "--only", "changed", "--only", "rejected", width=width)
    plain = ended.out.replace("\x1b[32m", "").replace("\x1b[0m", "").replace("\x1b[1m", "")
    assert plain.startswith("  1/2  another message enqueued under a known key … ok\n  2/2  ")
    table = plain.partition("TRIED")[2]
    assert max(len(line) for line in table.splitlines()) <= width


def test_a_miss_is_an_exit_code(postroom: CommandLine) -> None:
    """A configuration that cannot be safe is named, and the command ends with 1."""
    postroom.environ |= {
        "POSTROOM_DISPATCHER__LEASE": "5s",
        "POSTROOM_DISPATCHER__POLL_INTERVAL": "2s",
    }
    ended = postroom("rehearse", "--only", "changed")
    assert ended.code == 1
    assert "MISS  the account's times" in ended.out
    assert "1 MISSED" in ended.out
    pair = "dispatcher.poll_interval: 2 s leaves room for fewer than 3 rounds in a lease of 5 s"
    assert pair in ended.out
    assert f"warning: {pair}" in postroom("config", "check").out


def test_times_that_surprise_are_told(postroom: CommandLine) -> None:
    """What works, but may surprise, is a warning beneath the table, the same as config check's."""
    (postroom.folder / "postroom.toml").write_text(
        RESEND.format(url="https://api.resend.com", more=""), encoding="utf-8"
    )
    ended = postroom("rehearse", "--only", "changed")
    assert ended.code == 0
    text = (
        "warning: accounts.main.retry.window: 1 d is longer than replays are safe: they end first"
    )
    assert text in ended.out
    assert text in postroom("config", "check").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--account", "other"], 'there is no account "other"; configured: main'),
        (["--only", "nothing"], 'there is no drill "nothing"; there are repeated, changed, '),
        (["--live"], "--live sends a real mail: say to whom with --to ADDRESS"),
        (["--to", "a@example.org"], "--to is the address of --live: write both, or neither"),
        (["--live", "--to", "a@example.org"], 'account "main" (file) delivers to nobody'),
    ],
)
def test_wrong_usage_is_one_line(postroom: CommandLine, words: list[str], said: str) -> None:
    """What makes no sense is said in one line, before anything is played."""
    ended = postroom("rehearse", *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_database_that_is_away_is_said(postroom: CommandLine) -> None:
    """Without a database nothing can be told: exit code 3 and one line."""
    postroom.environ["POSTROOM_DATABASE__URL"] = "postgresql://nobody@127.0.0.1:1/nowhere"
    ended = postroom("rehearse")
    assert (ended.code, ended.out) == (3, "")
    assert len(ended.err.splitlines()) == 1


def test_a_role_without_the_right_is_told_the_cure(
    postroom: CommandLine, empty_postgres_url: str
) -> None:
    """Who may not create a schema is told what to grant."""
    role = f"producer_{os.getpid()}"
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            host = empty_postgres_url.rpartition("@")[2]
            postroom.environ["POSTROOM_DATABASE__URL"] = f"postgresql://{role}@{host}"
            ended = postroom("rehearse")
        finally:
            admin.execute(f"DROP ROLE {role}".encode())
    assert (ended.code, ended.out) == (3, "")
    assert "a rehearsal needs a scratch schema" in ended.err
    assert "GRANT CREATE ON DATABASE" in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(
    postroom: CommandLine, database: str, number: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM end it with one line, and the scratch is gone all the same; also as a job
    in the background of a script, which starts with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatcher", "rehearse"],
        cwd=postroom.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **postroom.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    folder = Path(database.removeprefix("sqlite:///")).parent
    try:
        # The ledger is there as soon as the first drill has sent something.
        if database.startswith("sqlite"):
            wait_for(lambda: any(folder.glob("postroom_rehearsal_*/ledger.jsonl")))
        else:
            wait_for(lambda: bool(schemas(database)))
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, out) == (3, "")
    assert err == "postroom: interrupted: the scratch database is gone, and nothing was told\n"
    if database.startswith("sqlite"):
        assert list(folder.iterdir()) == []
    else:
        assert schemas(database) == []


def test_other_libraries_are_not_heard(postroom: CommandLine) -> None:
    """What a rehearsal cuts and kills on purpose, drivers log; that is not on standard error."""
    program = (
        "import logging, sys\n"
        "from dispatcher.cli import main\n"
        "from dispatcher.rehearse import runner\n"
        "def rehearse(*given):\n"
        "    for name in ('psycopg', 'psycopg.pool', 'sqlalchemy.pool.impl.QueuePool'):\n"
        "        logging.getLogger(name).error('the connection is lost')\n"
        "    raise KeyboardInterrupt\n"
        "runner.rehearse = rehearse\n"
        "sys.argv = ['postroom', 'rehearse']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=postroom.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **postroom.environ},
        capture_output=True,
        text=True,
    )
    assert done.stderr == (
        "postroom: interrupted: the scratch database is gone, and nothing was told\n"
    )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- the user's own provider ------------------------------------------------------------- #


def live(postroom: CommandLine, *modes: str) -> tuple[dict[str, object], list[str | None]]:
    """The line of the live drill against a provider of ours, and the keys that it was sent."""
    with HttpServer(*modes) as server:
        (postroom.folder / "postroom.toml").write_text(
            RESEND.format(url=server.url, more=""), encoding="utf-8"
        )
        postroom.environ["RESEND_API_KEY"] = "re_test"
        ended = postroom(
            "rehearse", "--live", "--to", "me@example.org", "--only", "changed", "--json"
        )
        line = ended.json["drills"][-1]
        assert line["name"] == "live"
        assert ended.code == (0 if line["ok"] else 1)
        return line, [request.key for request in server.received]


def test_live_sends_one_mail_twice_under_one_key(postroom: CommandLine) -> None:
    """The provider that keeps its word is asked twice, with the same key, and accepts once."""
    line, keys = live(postroom, "keyed")
    assert line["ok"] is True
    assert line["happened"] == [
        "first: Accepted",
        "the same key again: the same id",
        "accepted",
    ]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_live_finds_a_provider_that_takes_it_twice(postroom: CommandLine) -> None:
    """Another id under the same key is a miss."""
    line, _ = live(postroom, 'json:200:{"id": "one"}', 'json:200:{"id": "two"}')
    assert line["ok"] is False
    assert "the same key again: another id (two): two mails" in str(line["happened"])


def test_live_tells_why_the_provider_refuses(postroom: CommandLine) -> None:
    """An account that is blocked is told in the provider's words, and nothing is sent again."""
    line, keys = live(postroom, "401:invalid_api_key")
    assert line["ok"] is False
    assert "first: AccountBlocked" in str(line["happened"])
    assert len(keys) == 1


def test_live_needs_a_sender(postroom: CommandLine) -> None:
    """Without a sender there is no mail, and that is said before anything is played."""
    text = RESEND.format(url="https://api.resend.com", more="").replace("from =", "# from =")
    (postroom.folder / "postroom.toml").write_text(text, encoding="utf-8")
    ended = postroom("rehearse", "--live", "--to", "me@example.org")
    assert ended.code == 2
    assert '--live needs a sender: set "from" under [defaults]' in ended.err
