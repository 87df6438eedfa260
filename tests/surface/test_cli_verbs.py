"""What people type and see when they put deliveries and accounts right."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outbox.database import open_engine
from outbox.states import State
from tests.command_line import CommandLine, Ended
from tests.rows import add_account, add_attempt, add_delivery, instant

VERBS = ("retry", "settle", "send-again", "cancel", "hold", "release", "move")
DO = ("--yes", "--reason", "relay is back")


@pytest.fixture
def postroom(tmp_path: Path, sqlite_url: str) -> CommandLine:
    """The command line in an empty folder, with a database that holds one of each."""
    fill(sqlite_url)
    return CommandLine(
        tmp_path,
        {
            "POSTROOM_DATABASE__URL": sqlite_url,
            "POSTROOM_ACCOUNTS__MAIN__PROVIDER": "file",
            "POSTROOM_ACCOUNTS__BACKUP__PROVIDER": "file",
            "POSTROOM_DEFAULTS__FROM": "Reports <r@example.com>",
            "POSTROOM_ACTOR": "eve",
        },
    )


def fill(url: str) -> None:
    """What an operator finds after a bad night."""
    engine = open_engine(url)
    with engine.begin() as connection:
        add_account(connection, provider="file")
        for i in range(3):
            add_delivery(connection, f"worn{i}", state=State.FAILED, reason="exhausted")
        add_delivery(connection, "refused", state=State.FAILED)
        add_delivery(connection, "waiting")
        add_delivery(connection, "done", state=State.ACCEPTED)
        held = add_delivery(
            connection,
            "held",
            state=State.HELD,
            to=[("to", "ana@example.org"), ("bcc", "aud@example.net")],
        )
        add_attempt(
            connection,
            held,
            1,
            transmitting_at=instant(-7200),
            finished_at=instant(-7000),
            outcome="in_doubt",
            recipients="[0, 1]",
        )
    engine.dispose()


def states(postroom: CommandLine) -> dict[str, str]:
    file = postroom.environ["POSTROOM_DATABASE__URL"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(file)) as connection:
        return dict(connection.execute("SELECT delivery_key, state FROM outbox_deliveries"))


def lines(ended: Ended) -> list[str]:
    return ended.out.splitlines()


# -- deliveries -------------------------------------------------------------------- #


def test_a_preview_says_what_would_be_done_and_why_not(postroom: CommandLine) -> None:
    """Groups with counts, what is known, what happens, and what to type for what is refused."""
    before = states(postroom)
    ended = postroom("deliveries", "retry", "--account", "main", "--since", "2h")
    assert ended.code == 1
    assert lines(ended)[0].startswith("6 deliveries: --account main --since 20")
    text = re.sub(r" {2,}", " | ", ended.out)
    left = "left alone: it is on its way already"
    refused = "refused: the provider refused it for good → --include rejected"
    doubt = "refused: may have been taken, by an account that was changed since"
    for row in (
        " | 3 | failed: exhausted | main | nothing was taken | pending again, same key",
        f" | 1 | pending | main | nothing was taken; it is on its way | {left}",
        f" | 1 | failed: rejected | main | nothing was taken | {refused}",
        f" | 1 | held: no_evidence | main | may have been taken | {doubt} → settle, or send-again",
    ):
        assert row in text
    assert lines(ended)[-2:] == [
        "Nobody gets a second copy by this.",
        'Nothing was changed. Add --yes --reason "…" to do it.',
    ]
    assert states(postroom) == before


def test_yes_does_it_and_records_who_and_why(postroom: CommandLine) -> None:
    """--yes acts on what still qualifies; a second time there is nothing to do, and no error."""
    ended = postroom("deliveries", "retry", "--state", "failed", "--key", "worn", *DO)
    assert (ended.code, lines(ended)[-1]) == (0, "Done: 3 deliveries.")
    assert [states(postroom)[f"worn{i}"] for i in range(3)] == ["pending"] * 3
    again = postroom("deliveries", "retry", "--state", "failed", "--key", "worn", *DO)
    assert (again.code, again.out) == (0, "no delivery matches --state failed --key worn\n")
    entries = postroom("audit", "--json").json["entries"]
    assert [entry["subject"] for entry in entries] == [
        "--state failed --key worn", "worn2", "worn1", "worn0",
    ]  # fmt: skip
    assert {entry["actor"] for entry in entries} == {"eve"}
    assert entries[1]["note"] == "relay is back"
    assert (entries[1]["before"], entries[1]["after"]) == (
        {"state": "failed"},
        {"state": "pending"},
    )


def test_the_second_copy_is_said_before(postroom: CommandLine) -> None:
    """The preview names who may get a second copy; the deed names the new delivery."""
    risk = "ana@example.org, (hidden) may get 2 second copies in all."
    ended = postroom("deliveries", "send-again", "held")
    assert ended.code == 0
    assert risk in lines(ended)
    assert "aud@example.net" not in ended.out
    done = postroom("deliveries", "send-again", "held", *DO)
    assert risk in lines(done)
    assert "new delivery: held~2 (id 8)" in lines(done)
    assert states(postroom) | {"held": "unresolved", "held~2": "pending"} == states(postroom)
    refused = postroom("deliveries", "send-again", "held", *DO)
    assert refused.code == 1
    assert "send-again held~2" in refused.out
    assert lines(refused)[-1] == "Nothing was done."


@pytest.mark.parametrize(
    ("word", "state"),
    [("accepted", "accepted"), ("not-accepted", "pending"), ("unknown", "unresolved")],
)
def test_settle_says_what_was_found(postroom: CommandLine, word: str, state: str) -> None:
    """Three words, three ends; the relay's log is the reason."""
    ended = postroom("deliveries", "settle", "held", "--as", word, *DO)
    assert ended.code == 0
    assert states(postroom)["held"] == state
    shown = postroom("deliveries", "show", "held").out
    assert "operator" in shown
    assert "eve: relay is back" in shown


def test_cancel_hold_release_and_move(postroom: CommandLine) -> None:
    """A waiting delivery held, released, moved and cancelled, each by its verb."""
    for words, state in (
        (("hold", "waiting"), "held"),
        (("release", "waiting"), "pending"),
        (("move", "waiting", "--to", "backup"), "pending"),
        (("cancel", "waiting"), "cancelled"),
    ):
        assert postroom("deliveries", *words, *DO).code == 0
        assert states(postroom)["waiting"] == state
    [row] = postroom("deliveries", "list", "--account", "backup", "--json").json["deliveries"]
    assert row["key"] == "waiting"
    moved = postroom("deliveries", "move", "--from", "main", "--to", "backup")
    assert "refused: it may have been taken → settle, or send-again" in moved.out


def test_the_json_of_a_verb_is_stable(postroom: CommandLine) -> None:
    """Names and forms that somebody's script relies on, before and after."""
    ended = postroom("deliveries", "retry", "--state", "failed", "--json")
    found = ended.json
    assert ended.code == 1
    assert list(found) == [
        "at", "verb", "subject", "acted", "done", "left_alone", "refused", "risk", "groups", "made",
    ]  # fmt: skip
    assert (found["verb"], found["acted"], found["done"], found["refused"]) == (
        "retry", False, 3, 1,
    )  # fmt: skip
    assert list(found["groups"][0]) == [
        "kind", "rows", "account", "state", "reason", "situation", "effect", "why", "instead",
        "until", "keys",
    ]  # fmt: skip
    assert found["groups"][0]["keys"] == ["worn0", "worn1", "worn2"]
    assert found["groups"][1]["instead"] == ["--include rejected"]
    made = postroom("deliveries", "send-again", "done", *DO, "--json").json
    assert made["acted"] is True
    assert made["made"] == [{"key": "done~2", "id": 8, "resend_of": 6}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("retry",), "say which: a KEY, or a filter like --state held or --account main"),
        (("retry", "held", "--state", "failed"), "name one delivery, or many by --state; not both"),
        (("retry", "held", "--yes"), "--reason is missing: say why; it goes into the audit trail"),
        (("retry", "held", "--yes", "--reason", " "), "--reason is missing"),
        (("retry", "nothing"), "no delivery has the key, id, Message-ID or provider's id nothing"),
        (("retry", "--state", "dead"), '--state: "dead" is none of pending, '),
        (("retry", "held", "--include", "all"), '--include: "all" is not "rejected"'),
        (("retry", "--state", "failed", "--state-reason", "x"), '--state-reason: "x" is none of '),
        (("retry", "held", "--send-before", "soon"), '--send-before: "soon" is neither a duration'),
        (("settle", "held", "--as", "sent"), '--as: "sent" is none of accepted, not-accepted, unk'),
        (("settle", "held"), "missing option '--as'"),
        (("send-again", "--account", "main"), "say of which state: --state failed; second copies"),
        (("send-again", "held", "--by", "x"), "there is no [accounts.x]; configured: backup, main"),
        (("move", "held", "--to", "x"), "there is no [accounts.x]; configured: backup, main"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_type(
    postroom: CommandLine, words: tuple[str, ...], said: str
) -> None:
    """Exit code 2 and one line; nothing is done, with or without --yes."""
    before = states(postroom)
    ended = postroom("deliveries", *words)
    assert (ended.code, ended.out) == (2, ""), ended.said
    assert ended.err.startswith(f"postroom: {said}")
    assert ended.err.count("\n") == 1
    assert states(postroom) == before


def test_every_verb_explains_itself(postroom: CommandLine) -> None:
    """--help lists each verb in one line that is not cut, and each has the common options."""
    help_ = postroom("deliveries", "--help").out
    assert "..." not in help_.partition("Commands:")[2]
    for verb in VERBS:
        assert f"\n  {verb}" in help_
        own = postroom("deliveries", verb, "--help").out
        for option in ("[KEY]", "--state", "--since", "--yes", "--reason", "--actor", "--json"):
            assert option in own
    assert "..." not in postroom("accounts", "--help").out.partition("Commands:")[2]


def test_a_preview_fits_the_terminal(postroom: CommandLine) -> None:
    """On a narrow terminal nothing is wider than it."""
    ended = postroom.on_terminal("deliveries", "retry", "--account", "main", width=80)
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in ended.out.splitlines()]
    table = [line for line in shown if not line.startswith(("6 deliveries", "Nothing"))]
    assert max(map(len, table)) <= 80


def test_a_story_ends_with_what_can_be_typed(postroom: CommandLine) -> None:
    """Show names the verbs that apply, with the id, so that they can be copied."""
    id_ = postroom("deliveries", "show", "held", "--json").json["id"]
    shown = postroom("deliveries", "show", "held").out
    after = shown.partition("Then one of\n")[2].splitlines()
    assert [line.split("→")[0].strip() for line in after[:-1]] == [
        f"postroom deliveries settle {id_} --as accepted",
        f"postroom deliveries settle {id_} --as not-accepted",
        f"postroom deliveries settle {id_} --as unknown",
        f"postroom deliveries send-again {id_}",
    ]
    command = after[0].split("→")[0].split()[1:]
    assert postroom(*command, *DO).code == 0
    assert "Then one of" not in postroom("deliveries", "show", "done").out


def test_list_and_verbs_share_a_filter(postroom: CommandLine) -> None:
    """A list that was looked at is acted on by changing one word."""
    words = ("--state", "failed", "--state-reason", "exhausted", "--account", "main")
    listed = postroom("deliveries", "list", *words, "--json").json["deliveries"]
    acted = postroom("deliveries", "retry", *words, "--json").json
    assert len(listed) == acted["done"] == 3


def test_the_actor_is_named_or_found_out(postroom: CommandLine) -> None:
    """--actor, else POSTROOM_ACTOR, else user@host."""
    postroom("deliveries", "hold", "waiting", *DO, "--actor", "ops/ana")
    del postroom.environ["POSTROOM_ACTOR"]
    postroom("deliveries", "release", "waiting", *DO)
    found = postroom("audit", "--subject", "waiting", "--json").json["entries"]
    assert found[1]["actor"] == "ops/ana"
    assert re.fullmatch(r"[^@]+@.+", found[0]["actor"])


# -- accounts ----------------------------------------------------------------------- #


def test_an_account_is_paused_and_resumed(postroom: CommandLine) -> None:
    """Each says what it did; the list and show say why nothing goes out, and what to type."""
    ended = postroom("accounts", "pause", "main", "--reason", "provider is down")
    assert (ended.code, ended.out) == (0, 'paused until "postroom accounts resume": main\n')
    listed = postroom("accounts", "list").out
    assert "paused until it is resumed: a person paused it (provider is down)" in listed
    shown = postroom("accounts", "show", "main").out
    assert "main (file), the default account" in shown
    assert "Waiting           1 for account" in shown
    assert 'postroom accounts resume main --reason "…"' in shown
    assert "1 account paused" in postroom("status").out
    ended = postroom("accounts", "resume", "--all", "--reason", "it works again")
    assert ended.out == "resumed: main\n"
    assert postroom("accounts", "resume", "main", "--reason", "x").out == "nothing was paused\n"
    [resumed, paused] = postroom("audit", "--subject", "main", "--json").json["entries"]
    assert (resumed["action"], paused["action"]) == ("account resume", "account pause")
    assert paused["note"] == "provider is down"


@pytest.mark.parametrize(
    ("until", "form"),
    [("2h", r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ"), ("06:00", r"20\d\d-\d\d-\d\d 06:00:00Z")],
)
def test_a_pause_may_have_an_end(postroom: CommandLine, until: str, form: str) -> None:
    """A duration, an instant, or a time of day in UTC."""
    ended = postroom("accounts", "pause", "--all", "--until", until, "--reason", "x")
    assert re.fullmatch(f"paused until {form}: backup, main\n", ended.out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pause", "main"), "--reason is missing: say why; it goes into the audit trail"),
        (("pause", "--reason", "x"), "name accounts, or say --all"),
        (("pause", "main", "--all", "--reason", "x"), "name accounts, or say --all"),
        (("pause", "mian", "--reason", "x"), "there is no account mian; known: backup, main"),
        (("pause", "main", "--until", "soon", "--reason", "x"), '--until: "soon" is neither'),
        (
            ("pause", "main", "--until", "2020-01-01T00:00:00Z", "--reason", "x"),
            "--until: 2020-01-01T00:00:00Z has passed",
        ),
        (("resume", "mian", "--reason", "x"), "there is no account mian; known: backup, main"),
        (("resume", "main"), "--reason is missing"),
        (("show", "mian"), "there is no account mian; known: backup, main"),
        (("test", "mian", "--to", "a@b.example"), "there is no [accounts.mian]; configured: ba"),
        (("test", "main", "--to", "nobody"), "to: "),
    ],
)
def test_wrong_usage_of_accounts(postroom: CommandLine, words: tuple[str, ...], said: str) -> None:
    """Exit code 2 and one line that says what to type."""
    ended = postroom("accounts", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"postroom: {said}")


def test_one_mail_proves_an_account(postroom: CommandLine) -> None:
    """The test sends one mail now, and names the delivery that tells its story."""
    ended = postroom("accounts", "test", "main", "--to", "me@example.com")
    assert ended.code == 0, ended.said
    assert re.match(r"main \(file\) took it after \d+\.\d s\n", ended.out)
    assert len(list(postroom.folder.glob("**/*.eml"))) == 1
    [command] = [line.split("postroom ")[1] for line in lines(ended) if "deliveries show" in line]
    assert "accepted" in postroom(*command.split()).out
    found = postroom("accounts", "test", "backup", "--to", "me@example.com", "--json").json
    assert list(found) == [
        "account", "provider", "key", "id", "state", "outcome", "reason", "status_code", "detail",
        "provider_message_id", "seconds",
    ]  # fmt: skip
    assert states(postroom)["waiting"] == "pending"


def test_the_json_of_accounts_is_stable(postroom: CommandLine) -> None:
    """Names and forms of one account."""
    postroom("accounts", "pause", "main", "--reason", "x")
    found = postroom("accounts", "list", "--json").json
    assert [each["account"] for each in found["accounts"]] == ["backup", "main"]
    main = postroom("accounts", "show", "main", "--json").json["account"]
    assert list(main) == [
        "account", "provider", "configured", "default", "identity", "capabilities", "pauses",
        "failures", "line",
    ]  # fmt: skip
    assert list(main["pauses"][0]) == ["scope", "reason", "since", "until", "by", "detail"]
    assert (main["pauses"][0]["until"], main["pauses"][0]["by"]) == (None, "eve")


# -- audit ---------------------------------------------------------------------------- #


def test_the_audit_trail_is_a_table(postroom: CommandLine) -> None:
    """Who, what, to what, why; nothing yet is said beside the output."""
    nothing = postroom("audit")
    assert (nothing.code, nothing.out, nothing.err) == (
        0, "", "postroom: nothing was done by a person\n",
    )  # fmt: skip
    postroom("deliveries", "hold", "waiting", *DO)
    [_, line] = lines(postroom("audit"))
    cells = re.split(r" {2,}", line)
    assert cells[1:] == ["eve", "hold", "waiting", "state pending → state held", "relay is back"]
    [entry] = postroom("audit", "--json", "--limit", "1").json["entries"]
    assert list(entry) == ["at", "actor", "action", "subject", "note", "before", "after"]
    assert json.dumps(entry["after"]) == '{"state": "held"}'


def test_without_a_database_nothing_can_be_told(postroom: CommandLine) -> None:
    """Exit code 3 when the database is not there, for reading and for acting."""
    postroom.environ["POSTROOM_DATABASE__URL"] = "sqlite:///nowhere.db"
    for words in (
        ("deliveries", "retry", "k"),
        ("deliveries", "retry", "k", *DO),
        ("accounts", "list"),
        ("accounts", "pause", "main", "--reason", "x"),
        ("audit",),
    ):
        ended = postroom(*words)
        assert ended.code == 3
        assert 'run "postroom migrate"' in ended.err
