"""The command line from outside: what people type, see, and get as an exit code."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outbox.database import open_engine
from outbox.migrations import HEAD
from outbox.states import State
from tests.command_line import CommandLine
from tests.rows import (
    add_account,
    add_attempt,
    add_delivery,
    add_dispatcher,
    add_evidence,
    instant,
)

MESSAGE = json.dumps(
    {"from": "r@example.com", "to": "ana@example.org", "subject": "Hi", "text": "x", "tags": ["t"]}
)
INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


@pytest.fixture
def postroom(tmp_path: Path) -> CommandLine:
    """The command line in an empty folder."""
    return CommandLine(tmp_path)


@pytest.fixture
def ready(postroom: CommandLine, sqlite_url: str) -> CommandLine:
    """The same with a migrated database."""
    postroom.environ["POSTROOM_DATABASE__URL"] = sqlite_url
    return postroom


def fill(url: str) -> None:
    """One delivery in every situation that status tells apart."""
    engine = open_engine(url)
    with engine.begin() as connection:
        add_account(connection, provider="file")
        add_account(connection, "backup", pause_reason="credentials", pause_detail="401 no")
        add_dispatcher(connection)
        add_delivery(connection, "due")
        add_delivery(connection, "blocked", account="backup")
        add_delivery(connection, "later", send_after=instant(600), due_at=instant(600))
        retried = add_delivery(connection, "retried", due_at=instant(600))
        add_attempt(connection, retried, 1, outcome="unavailable", outcome_reason="refused")
        add_delivery(connection, "doubt", state=State.IN_DOUBT)
        held = add_delivery(
            connection,
            "held:with:a:long:key:" + "x" * 60,
            state=State.HELD,
            to=[("to", "ana@example.org"), ("bcc", "aud@example.net")],
            last_error="550 <aud@example.net>",
        )
        add_attempt(
            connection,
            held,
            1,
            transmitting_at=instant(-60),
            outcome="lost",
            outcome_reason="lease lapsed",
            detail="\x1b]0;title\x07\x1b[31mred\x9b1m\u202e",
        )
        add_evidence(connection, held, verdict="unknown")
        add_delivery(connection, "done", state=State.ACCEPTED)
    engine.dispose()


# -- start --------------------------------------------------------------------- #


def test_the_version_is_there_at_once(postroom: CommandLine) -> None:
    """--version prints one line, and neither it nor --help loads SQLAlchemy."""
    ended = postroom("--version")
    assert (ended.code, ended.out, ended.err) == (0, "postroom 0.1.0\n", "")
    postroom.environ["PYTHONPROFILEIMPORTTIME"] = "1"
    assert "sqlalchemy" not in postroom("--version").err
    assert "sqlalchemy" not in postroom("--help").err


def test_without_a_command_the_help_is_shown(postroom: CommandLine) -> None:
    """Nothing typed is wrong usage, and the answer is what can be typed."""
    ended = postroom()
    assert ended.code == 2
    for command in ("init", "migrate", "dispatch", "status", "deliveries", "enqueue", "schema"):
        assert f"\n  {command}" in ended.out


def test_init_migrate_enqueue_dispatch(postroom: CommandLine) -> None:
    """Four commands in an empty folder, and the mail is a file in it."""
    ended = postroom("init")
    assert ended.code == 0
    assert "wrote postroom.toml" in ended.out
    assert postroom("config", "check").out == "ok\n"
    ended = postroom("migrate")
    assert (ended.code, ended.out.split(":")[0]) == (0, f"migrated to {HEAD}")
    assert postroom("migrate").out.startswith(f"already at {HEAD}")
    assert postroom("enqueue", "--key", "invoice:7", stdin=MESSAGE).code == 0
    ended = postroom("dispatch", "--drain")
    assert (ended.code, ended.out) == (0, "nothing is left\n")
    assert len(list(postroom.folder.glob("var/mail/*.eml"))) == 1
    shown = postroom("deliveries", "show", "invoice:7").out
    assert "The provider took it at" in shown


def test_the_same_commands_on_postgresql(postroom: CommandLine, empty_postgres_url: str) -> None:
    """A schema of its own on PostgreSQL: migrated, filled, dispatched, read."""
    postroom.environ |= {
        "POSTROOM_DATABASE__URL": empty_postgres_url,
        "POSTROOM_DATABASE__SCHEMA": "mail room",
    }
    assert postroom("status").code == 3
    assert postroom("migrate").out.startswith(f"migrated to {HEAD}: 127.0.0.1/")
    assert postroom("enqueue", "--key", "invoice:7", stdin=MESSAGE).code == 0
    assert postroom("dispatch", "--drain").code == 0
    [row] = postroom("deliveries", "list", "--tag", "t", "--json").json["deliveries"]
    assert row["state"] == "accepted"
    found = postroom("status", "--json").json
    assert found["last_hour"]["accepted"] == 1
    assert found["database"].endswith("/mail room")
    assert "What we know" in postroom("deliveries", "show", str(row["id"])).out


def test_init_never_overwrites(postroom: CommandLine) -> None:
    """A folder that is not empty keeps everything; started again, init leaves its file alone."""
    (postroom.folder / "other.txt").write_text("mine")
    (postroom.folder / "postroom.toml").write_text("# mine\n")
    ended = postroom("init")
    assert (ended.code, ended.out) == (0, "postroom.toml is there already; it was left as it is\n")
    assert (postroom.folder / "postroom.toml").read_text() == "# mine\n"
    assert (postroom.folder / "other.txt").read_text() == "mine"
    elsewhere = postroom("init", "--config", "sub/own.toml")
    assert elsewhere.code == 0
    assert (postroom.folder / "sub/own.toml").is_file()
    assert (postroom.folder / "sub/var").is_dir()


def test_the_written_file_says_what_the_defaults_are(postroom: CommandLine) -> None:
    """The values that init writes, also those it writes as comments, are those without a file."""
    before = postroom("config", "show", "--json").json["settings"]
    postroom("init")
    file = postroom.folder / "postroom.toml"
    text = file.read_text().partition("# [accounts.smtp]")[0]
    uncommented = re.sub(r"(?m)^# (\w+ = )", r"\1", text)
    unsaid = [r"(?m)^schema = .*\n", r"(?m)^from = .*\n"]
    for line in unsaid:
        uncommented = re.sub(line, "", uncommented)
    file.write_text(uncommented)
    after = postroom("config", "show", "--json").json["settings"]
    assert {s["key"]: s["value"] for s in after} == {s["key"]: s["value"] for s in before}


def test_every_commented_example_of_the_written_file_is_valid(postroom: CommandLine) -> None:
    """Whoever takes the comment signs away has a configuration that is accepted."""
    postroom("init")
    file = postroom.folder / "postroom.toml"
    text = re.sub(r"(?m)^# (\[|\w+ = )", r"\1", file.read_text())
    file.write_text(text.replace("sqlite:///var/postroom.db", "postgresql://u@h/db"))
    ended = postroom("config", "show", "--json")
    assert ended.code == 0, ended.err
    keys = {setting["key"] for setting in ended.json["settings"]}
    assert {"accounts.smtp.password", "accounts.bulk.api_key"} <= keys


def test_migrate_prints_the_sql(postroom: CommandLine) -> None:
    """--sql prints the statements and makes no database."""
    ended = postroom("migrate", "--sql")
    assert ended.code == 0
    assert "CREATE TABLE outbox_deliveries" in ended.out
    assert not (postroom.folder / "var").exists()


def test_the_schema_of_a_message_is_printed(postroom: CommandLine) -> None:
    """The published JSON Schema is one JSON document."""
    assert postroom("schema", "message").json["title"] == "Postroom message"


# -- enqueue --------------------------------------------------------------------- #


def test_enqueue_says_created_and_then_known(ready: CommandLine) -> None:
    """The same message twice is one delivery, and the second time is no error."""
    first = ready("enqueue", "--key", "k", "--send-after", "2h", stdin=MESSAGE)
    assert (first.code, first.out) == (0, "created  id 1  pending  k\n")
    again = ready("enqueue", "--key", "k", "--json", stdin=MESSAGE)
    assert again.json == {"id": 1, "key": "k", "created": False, "state": "pending"}
    [row] = ready("deliveries", "list", "--json").json["deliveries"]
    assert row["waiting_for"] == "schedule"


WRONG_MESSAGES: list[tuple[tuple[str, ...], str, str]] = [
    ((), '{"to": "ana@", "text": "x"}', 'to: "ana@" has no domain'),
    ((), '{"to": "a@example.org"}', "text: is missing, and so is html"),
    ((), "{", "message: is not JSON"),
    ((), "", "message: is not JSON"),
    (("--priority", "101"), MESSAGE, "priority: 101 is no"),
    (("--send-after", "soon"), MESSAGE, '--send-after: "soon" is neither a duration like 2h nor'),
    (
        ("--send-before", "2099-01-01T00:00:00"),
        MESSAGE,
        '--send-before: "2099-01-01T00:00:00" has no time zone',
    ),
    (("--send-before", "2020-01-01T00:00:00Z"), MESSAGE, "send_before: is not after send_after"),
    (("--when-unsure", "maybe"), MESSAGE, "when_unsure: 'maybe' is neither"),
    (("--key", "a~b"), MESSAGE, "a second sending"),
]


@pytest.mark.parametrize(("options", "message", "words"), WRONG_MESSAGES)
def test_what_cannot_be_enqueued_is_refused_in_one_line(
    ready: CommandLine, options: tuple[str, ...], message: str, words: str
) -> None:
    """Exit code 2, one line on stderr that names the field, and no row."""
    ended = ready("enqueue", "--key", "k", *options, stdin=message)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert ended.err.count("\n") == 1
    database = ready.environ["POSTROOM_DATABASE__URL"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM outbox_deliveries").fetchone() == (0,)


def test_another_message_under_a_known_key_is_refused(ready: CommandLine) -> None:
    """The first stays; the line names what differs."""
    ready("enqueue", "--key", "k", stdin=MESSAGE)
    ended = ready("enqueue", "--key", "k", stdin=MESSAGE.replace("Hi", "Ho"))
    assert ended.code == 2
    assert re.fullmatch(r"postroom: k was enqueued at .* with another subject; .*\n", ended.err)


def test_a_message_is_not_waited_for_at_a_terminal(ready: CommandLine) -> None:
    """Without a pipe, enqueue says where the message comes from."""
    ended = ready.on_terminal("enqueue", "--key", "k")
    assert ended.code == 2
    assert "postroom enqueue --key K < message.json" in ended.err


def test_an_account_that_is_not_configured_here_is_noted(ready: CommandLine) -> None:
    """A producer may not know the dispatcher's accounts; a mistyped one is seen at once."""
    ended = ready("enqueue", "--key", "k", "--account", "bulc", stdin=MESSAGE)
    assert ended.code == 0
    assert "no account named bulc" in ended.err


# -- wrong usage and cannot tell ------------------------------------------------------ #

WRONG: list[tuple[tuple[str, ...], str]] = [
    (("nonsense",), "no such command"),
    (("status", "--nonsense"), "no such option"),
    (("enqueue",), "missing option"),
    (("dispatch", "--once", "--drain"), "--once and --drain exclude each other"),
    (("deliveries", "list", "--state", "lost"), '"lost" is none of pending, sending'),
    (("deliveries", "list", "--reason", "bad"), '"bad" is none of account_changed'),
    (("deliveries", "list", "--since", "x"), "neither a duration like 2h"),
    (("deliveries", "list", "--limit", "0"), "--limit"),
    (("deliveries", "list", "--group-by", "age"), '"age" is not "reason"'),
    (("deliveries", "show", "nothing"), "no delivery has the key"),
    (("--config", "none.toml", "status"), "none.toml: there is no such file"),
]


@pytest.mark.parametrize(("words", "text"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_usage_is_one_line_and_exit_code_2(
    ready: CommandLine, words: tuple[str, ...], text: str
) -> None:
    """Whatever is typed wrongly is answered by one line on stderr."""
    ended = ready(*words)
    assert (ended.code, ended.out) == (2, "")
    assert text.lower() in ended.err.lower()
    assert ended.err.startswith("postroom: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("words", [("status",), ("deliveries", "list"), ("enqueue", "--key", "k")])
def test_a_missing_database_is_not_made_by_reading(
    postroom: CommandLine, words: tuple[str, ...]
) -> None:
    """Exit code 3, with the command that makes it; no empty file is left behind."""
    ended = postroom(*words, stdin=MESSAGE)
    assert ended.code == 3
    assert 'run "postroom migrate"' in ended.err
    assert ended.err.count("\n") == 1
    assert not (postroom.folder / "var").exists()


def test_a_schema_that_is_too_old_or_too_new_is_told(
    postroom: CommandLine, ready: CommandLine
) -> None:
    """An empty database and a newer one: exit code 3, one line, the cure in it."""
    database = ready.environ["POSTROOM_DATABASE__URL"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE outbox_schema_version SET version_num = '9999'")
    newer = postroom("status")
    assert newer.code == 3
    assert "9999" in newer.err
    (postroom.folder / "empty.db").touch()
    postroom.environ["POSTROOM_DATABASE__URL"] = "sqlite:///empty.db"
    empty = postroom("status", "--json")
    assert (empty.code, empty.out) == (3, "")
    assert "has no outbox tables" in empty.err


def test_a_database_that_is_away_is_one_line(postroom: CommandLine) -> None:
    """B96: exit code 3 without a traceback, and with --debug one without the password."""
    url = "postgresql://app:s3cr3t-Example!@127.0.0.1:1/db"
    postroom.environ["POSTROOM_DATABASE__URL"] = url
    ended = postroom("status")
    assert ended.code == 3
    assert ended.err.startswith("postroom: the database cannot be used: ")
    assert ended.err.count("\n") == 1
    traced = postroom("status", "--debug")
    assert "Traceback" in traced.err
    assert "s3cr3t" not in traced.said


def test_a_file_that_is_no_database_is_one_line(postroom: CommandLine) -> None:
    """Whatever the driver says becomes one line and exit code 3."""
    (postroom.folder / "x.db").write_bytes(b"this is no database file, and long enough" * 50)
    postroom.environ["POSTROOM_DATABASE__URL"] = "sqlite:///x.db"
    ended = postroom("status")
    assert ended.code == 3
    assert ended.err == "postroom: the database cannot be used: file is not a database\n"


def test_an_early_closed_pipe_is_no_error(ready: CommandLine) -> None:
    """``postroom ... | head`` ends quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as output:
        ended = ready("schema", "message", stdout=output)
        listed = ready("deliveries", "list", stdout=output)
    assert (ended.code, ended.err) == (0, "")
    assert listed.code == 0


# -- config ------------------------------------------------------------------------- #


def test_config_check_reports_everything(postroom: CommandLine) -> None:
    """All problems with their keys, as text and as JSON; exit code 2."""
    (postroom.folder / "postroom.toml").write_text(
        "[dispatcher]\nlease = 60\nconcurrency = 0\n[accounts.main]\nprovider = 'file'\n"
    )
    ended = postroom("config", "check")
    assert ended.code == 2
    assert [line.split(":")[0] for line in ended.out.splitlines()] == [
        "dispatcher.lease",
        "dispatcher.concurrency",
    ]
    answer = postroom("config", "check", "--json")
    assert answer.code == 2
    assert list(answer.json) == ["ok", "problems", "warnings"]
    assert answer.json["problems"][1] == {
        "key": "dispatcher.concurrency",
        "text": "is 0; at least 1",
        "source": "",
    }
    other = postroom("status")
    assert other.code == 2
    assert other.err.splitlines()[0] == "postroom: the configuration has 2 problems:"


def test_config_check_production(postroom: CommandLine) -> None:
    """The file account as the default is fine at home, and refused for production."""
    assert postroom("config", "check").code == 0
    ended = postroom("config", "check", "--production")
    assert ended.code == 2
    assert "delivers to nobody" in ended.out


def test_a_drain_that_leaves_something_for_a_person_exits_with_1(ready: CommandLine) -> None:
    """What is held or in doubt is said in one line, and the exit code says it, too."""
    engine = open_engine(ready.environ["POSTROOM_DATABASE__URL"])
    with engine.begin() as connection:
        add_delivery(connection, "held", state=State.HELD)
    engine.dispose()
    ended = ready("dispatch", "--drain")
    assert (ended.code, ended.out) == (1, "1 delivery is left: 1 held\n")


def test_dispatch_names_every_missing_secret_before_it_starts(ready: CommandLine) -> None:
    """A dispatcher that could not log in does not start; exit code 2."""
    ready.environ |= {
        "POSTROOM_ACCOUNTS__MAIN__PROVIDER": "smtp",
        "POSTROOM_ACCOUNTS__MAIN__HOST": "127.0.0.1",
        "POSTROOM_ACCOUNTS__MAIN__USERNAME": "env:NO_USER",
        "POSTROOM_ACCOUNTS__MAIN__PASSWORD": "env:NO_PASSWORD",
    }
    ended = ready("dispatch", "--drain")
    assert ended.code == 2
    assert "accounts.main.username: the environment variable NO_USER is not set" in ended.err
    assert "accounts.main.password: the environment variable NO_PASSWORD is not set" in ended.err


def test_no_secret_is_ever_printed(postroom: CommandLine) -> None:
    """B96: password, API key and a URL's password are in no output, good or bad."""
    (postroom.folder / "postroom.toml").write_text(
        """
        [accounts.main]
        provider = "smtp"
        host = "127.0.0.1"
        username = "u"
        password = "env:SMTP_PASSWORD"
        [accounts.api]
        provider = "resend"
        api_key = "file:key"
        """
    )
    (postroom.folder / "key").write_text("re_example_KEY_123\n")
    postroom.environ |= {
        "SMTP_PASSWORD": "s3cr3t-Example!",
        "POSTROOM_DATABASE__URL": "postgresql://app:s3cr3t-Example!@127.0.0.1:1/db",
    }
    said = ""
    for words in (
        ("config", "show"),
        ("config", "show", "--json"),
        ("config", "check"),
        ("config", "check", "--production", "--json"),
        ("status", "--debug"),
        ("migrate", "--debug"),
        ("dispatch", "--once", "--debug"),
    ):
        said += postroom(*words).said
    (postroom.folder / "postroom.toml").write_text(
        '[accounts.main]\nprovider = "resend"\napi_key = "re_example_KEY_123"\n'
        '[database]\nurl = "postgresql://u:s3cr3t-Example!@h/db"\n'
    )
    del postroom.environ["POSTROOM_DATABASE__URL"]
    said += postroom("config", "check").said + postroom("status", "--debug").said
    assert "env:SMTP_PASSWORD" in said
    assert "s3cr3t" not in said
    assert "czNjcjN0LUV4YW1wbGUh" not in said
    assert "re_example" not in said
    assert not re.search(r"://[^\s/]*:[^\s/]*@", said)


# -- status -------------------------------------------------------------------------- #


def test_a_quiet_outbox_exits_with_0(ready: CommandLine) -> None:
    """Nothing needs anybody; that the default account delivers to nobody is noted."""
    ended = ready("status")
    assert ended.code == 0
    assert "Nothing needs you." in ended.out
    assert "delivers to nobody" in ended.out
    assert "schema 0003 (current)" in ended.out


def test_status_exits_with_1_when_something_needs_a_person(ready: CommandLine) -> None:
    """Held, in doubt, blocked: each with its count and the command to type next."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    ended = ready("status")
    assert ended.code == 1
    assert "NEEDS YOU" in ended.out
    assert "postroom deliveries list --state held --account main --reason no_evidence" in ended.out
    assert "the provider refuses its credentials: 401 no" in ended.out
    assert "Dispatchers: 1 alive (mail-1:4711 seen" in ended.out
    row = next(line for line in ended.out.splitlines() if line.startswith("main "))
    assert row.split() == ["main", "file", "1", "1", "0", "1", "0", "1", "1"]


def test_the_json_of_status_is_stable(ready: CommandLine) -> None:
    """Names and forms that somebody's script relies on."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    ended = ready("status", "--json")
    assert ended.code == 1
    found = ended.json
    assert list(found) == [
        "needs_a_person", "version", "server", "database", "revision", "current", "at", "needs",
        "notes", "accounts", "last_hour", "dispatchers",
    ]  # fmt: skip
    assert INSTANT.fullmatch(found["at"])
    assert found["needs_a_person"] is True
    assert list(found["needs"][0]) == [
        "count", "what", "account", "provider", "detail", "since", "command",
    ]  # fmt: skip
    [backup, main] = found["accounts"]
    assert list(main) == [
        "account", "provider", "delivers", "paused", "paused_until", "waiting_for", "sending",
        "in_doubt", "held",
    ]  # fmt: skip
    assert main["waiting_for"] == {
        "slot": 1, "schedule": 1, "retry": 1, "account": 0, "rate": 0,
    }  # fmt: skip
    assert backup["paused"] == "credentials"
    assert found["last_hour"]["accepted"] == 1
    assert list(found["last_hour"]) == [
        "accepted", "failed", "expired", "median_seconds", "p99_seconds", "oldest_slot_seconds",
    ]  # fmt: skip
    assert list(found["dispatchers"][0]) == [
        "host", "pid", "version", "slots", "slots_used", "started_at", "seen_at",
    ]  # fmt: skip


# -- deliveries ------------------------------------------------------------------------ #


def test_lists_are_filtered_and_paged(ready: CommandLine) -> None:
    """Filters in any combination; the next page is asked for with what the first one said."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])

    def keys(*words: str) -> list[str]:
        rows = ready("deliveries", "list", "--json", *words).json["deliveries"]
        return [row["key"][:4] for row in rows]

    assert keys("--state", "held", "--state", "in_doubt") == ["held", "doub"]
    assert keys("--account", "backup") == ["bloc"]
    assert keys("--key", "held:") == ["held"]
    assert keys("--to", "AUD@example.net") == []
    assert keys("--to", "aud@EXAMPLE.net") == ["held"]
    assert keys("--since", "1h", "--state", "pending") == ["retr", "late", "bloc", "due"]
    first = ready("deliveries", "list", "--limit", "2", "--json").json
    assert list(first) == ["at", "deliveries", "next_before"]
    rest = keys("--before", str(first["next_before"]))
    assert len(rest) == 5
    grouped = ready("deliveries", "list", "--state", "held", "--group-by", "reason", "--json")
    assert [(g["reason"], g["rows"]) for g in grouped.json["groups"]] == [("no_evidence", 1)]


def test_the_json_of_a_list_is_stable(ready: CommandLine) -> None:
    """Names and forms of one row; a blind recipient is counted and hidden."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    [row] = ready("deliveries", "list", "--state", "held", "--json").json["deliveries"]
    assert list(row) == [
        "id", "key", "state", "reason", "account", "tenant", "run_key", "priority",
        "counted_attempts", "claims", "copies", "send_after", "due_at", "send_before",
        "created_at", "updated_at", "finished_at", "last_error", "recipients", "waiting_for",
    ]  # fmt: skip
    assert INSTANT.fullmatch(row["created_at"])
    assert row["finished_at"] is None
    assert row["recipients"] == [
        {"position": 0, "kind": "to", "address": "ana@example.org", "result": "held"},
        {"position": 1, "kind": "bcc", "address": "(hidden)", "result": "held"},
    ]
    assert row["last_error"] == "550 <(hidden)>"


def test_the_story_of_a_delivery_is_told(ready: CommandLine) -> None:
    """What is known, what happens, who may get a second copy, and every attempt."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    key = "held:with:a:long:key:" + "x" * 60
    ended = ready("deliveries", "show", key)
    assert ended.code == 0
    for words in (
        f"{key}   held: no_evidence",
        "account main (file)",
        "What we know     Held: it may have been taken, and nothing will ever prove it.",
        "What happens     Nothing, until a person decides.",
        "ana@example.org, (hidden) may get a second copy",
        '"Website audit 2026-W48"',
        "1 blind recipient is hidden; --show-bcc shows them",
        "claimed by owner-1 for account main, token 1",
        "transmitting",
        "lost: the dispatcher went away while sending, lease lapsed",
        "answer: red",
        "answer about attempt 1: unknown",
    ):
        assert words in ended.out
    assert "aud@example.net" not in ended.out
    assert "aud@example.net (bcc)" in ready("deliveries", "show", key, "--show-bcc").out


def test_the_json_of_a_story_is_stable(ready: CommandLine) -> None:
    """B12: everything with stable names, blind recipients only on request."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    [row] = ready("deliveries", "list", "--state", "held", "--json").json["deliveries"]
    ended = ready("deliveries", "show", str(row["id"]), "--json")
    found: dict[str, Any] = ended.json
    assert list(found) == [
        "at", "id", "key", "state", "reason", "account", "tenant", "run_key", "priority",
        "counted_attempts", "claims", "copies", "send_after", "due_at", "send_before",
        "created_at", "updated_at", "finished_at", "last_error", "provider", "waiting_for",
        "known", "next", "if_sent_again", "public_id", "when_unsure", "held_from",
        "stop_requested", "lease_expires_at", "first_transmitted_at", "message",
        "hidden_recipients", "recipients", "attempts", "evidence",
    ]  # fmt: skip
    assert "aud@example.net" not in ended.out
    assert found["hidden_recipients"] == 1
    assert found["attempts"][0]["outcome"] == "lost"
    assert found["evidence"][0]["verdict"] == "unknown"
    assert found["message"]["subject"] == "Website audit 2026-W48"
    shown = ready("deliveries", "show", str(row["id"]), "--json", "--show-bcc")
    assert shown.json["recipients"][1]["address"] == "aud@example.net"


# -- how it looks ----------------------------------------------------------------------- #


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal_and_lose_nothing(ready: CommandLine, width: int) -> None:
    """A long key is folded, not cut; no line of a table is wider than the terminal."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    ended = ready.on_terminal("deliveries", "list", width=width)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in ended.out.splitlines()]
    assert max(map(len, lines)) <= width
    assert "".join(line.split()[-1] for line in lines if "x" * 8 in line).count("x") >= 48
    story = ready.on_terminal("deliveries", "show", "done", width=width)
    assert max(map(len, story.out.splitlines())) <= width


def test_piped_output_is_plain_and_whole(ready: CommandLine) -> None:
    """No colour, no box, nothing folded: one row, one line."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    for words in (("deliveries", "list"), ("status",), ("config", "show")):
        out = ready(*words).out
        assert "\x1b" not in out
        assert not re.search("[\u2500-\u257f]", out)
    [line] = [x for x in ready("deliveries", "list").out.splitlines() if "x" * 60 in x]
    assert line.endswith("held:with:a:long:key:" + "x" * 60)


def test_text_from_outside_cannot_drive_the_terminal(ready: CommandLine) -> None:
    """Escape sequences and reordering marks in a provider's answer do not reach the terminal."""
    fill(ready.environ["POSTROOM_DATABASE__URL"])
    [row] = ready("deliveries", "list", "--state", "held", "--json").json["deliveries"]
    for ended in (
        ready("deliveries", "show", str(row["id"])),
        ready("deliveries", "show", str(row["id"]), "--json"),
    ):
        assert "red" in ended.out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", ended.out)
    assert "title" not in ready("deliveries", "show", str(row["id"])).out
