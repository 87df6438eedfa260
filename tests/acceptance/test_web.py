"""``postroom web``, asked over HTTP as a scheduler does: it plans, and runs what it is told to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.acceptance.web_rig import JOBS, ROOT, TOKEN, Answer, Web
from tests.command_line import CommandLine
from tests.conformance.job_rig import until
from tests.conformance.ledger import change, rows

FIVE = timedelta(minutes=5)


@pytest.fixture
def web(database_url: str, tmp_path: Path) -> Iterator[Web]:
    """A server with one job that is known since 12:01; each five minutes a run is due."""
    with Web(database_url, tmp_path) as web:
        assert web.tick().json["planned"] == 0
        yield web


@pytest.fixture
def lite(sqlite_url: str, tmp_path: Path) -> Iterator[Web]:
    """The same, where the database does not matter."""
    with Web(sqlite_url, tmp_path) as web:
        assert web.tick().status == 202
        yield web


def runs(url: str) -> list[tuple[object, ...]]:
    return list(rows(url, "SELECT label, state, attempts FROM outbox_runs ORDER BY label"))


def deliveries(url: str) -> int:
    [(count,)] = rows(url, "SELECT count(*) FROM outbox_deliveries")
    return int(count)


# --------------------------------------------------------------------------- #
# Ticks
# --------------------------------------------------------------------------- #


def test_a_tick_plans_and_runs_nothing(web: Web, database_url: str) -> None:
    """What is due becomes a planned run; the answer is 202 with counts, and says so again."""
    web.clock.advance(FIVE)
    found = web.tick()
    assert (found.status, found.json["planned"], found.json["worked"]) == (202, 1, False)
    assert found.headers["cache-control"] == "no-store"
    assert web.tick().json["planned"] == 0
    assert runs(database_url) == [("2026-06-01T12:05Z", "planned", 0)]


def test_a_tick_with_a_budget_runs_what_is_due(web: Web, database_url: str) -> None:
    """The runs are complete when the answer comes; each delivery is there once."""
    web.go()
    web.clock.advance(2 * FIVE)
    found = web.tick("?work=120s")
    assert (found.status, found.json["worked"]) == (202, True)
    assert (found.json["planned"], found.json["succeeded"]) == (2, 2)
    assert not found.json["needs_a_person"]
    assert [state for _, state, _ in runs(database_url)] == ["succeeded", "succeeded"]
    assert deliveries(database_url) == 2
    assert web.tick("?work=120s").json["succeeded"] == 0


def test_ticks_at_once_plan_each_period_once(web: Web, database_url: str) -> None:
    """Eight schedulers that wake us in the same moment make no run twice, and none fails."""
    web.clock.advance(10 * FIVE)
    answers = [each.result() for each in [web.ticking() for _ in range(8)]]
    assert {each.status for each in answers} <= {202, 429}
    assert sum(each.json.get("planned", 0) for each in answers) == 10
    assert len(runs(database_url)) == 10


def test_one_tick_with_a_budget_at_a_time(web: Web, database_url: str) -> None:
    """While one runs what is due, another plans only, and says so; nothing is run twice."""
    web.clock.advance(FIVE)
    first = web.ticking("?work=60s")
    until(lambda: any(web.folder.glob("begun-*")), "the job to begin")
    web.clock.advance(FIVE)
    second = web.tick("?work=60s")
    assert (second.status, second.json["worked"], second.json["planned"]) == (202, False, 1)
    assert "another tick of this process" in second.json["note"]
    web.go()
    assert first.result().json["succeeded"] == 1
    assert web.tick("?work=60s").json["succeeded"] == 1
    assert [each[1:] for each in runs(database_url)] == [("succeeded", 1)] * 2
    assert deliveries(database_url) == 2


def test_sigterm_gives_back_what_does_not_end_in_time(web: Web, database_url: str) -> None:
    """A run under way has its grace, then its attempt is undone; the answer comes, exit 0."""
    web.clock.advance(FIVE)
    asked = web.ticking("?work=30m")
    until(lambda: any(web.folder.glob("begun-*")), "the job to begin")
    assert web.stop() == 0
    found = asked.result()
    assert (found.status, found.json["given_back"], found.json["succeeded"]) == (202, 1, 0)
    assert runs(database_url) == [("2026-06-01T12:05Z", "planned", 0)]
    assert web.log.endswith("stopped\n")


def test_a_database_that_fails_is_503_and_says_no_more(lite: Web, sqlite_url: str) -> None:
    """The client learns that it may come back; what is wrong stands in the log."""
    change(sqlite_url, "ALTER TABLE outbox_schedules RENAME TO hidden")
    found = lite.tick()
    assert (found.status, found.headers["retry-after"]) == (503, "10")
    assert found.json == {"error": "the database cannot be used"}
    assert "no outbox tables" in lite.wait_for_line("tick: ")
    change(sqlite_url, "ALTER TABLE hidden RENAME TO outbox_schedules")
    assert lite.tick().status == 202


# --------------------------------------------------------------------------- #
# Who may ask, and what
# --------------------------------------------------------------------------- #

GOOD = {"Authorization": f"Bearer {TOKEN}"}
LARGE = b"x" * 70_000

REFUSED: dict[str, tuple[int, str, Callable[[Web], Answer]]] = {
    "no token": (401, "Authorization", lambda w: w.ask()),
    "another token": (401, "not the token", lambda w: w.tick(token="secret-but-wrong-9")),
    "a prefix of it": (401, "not the token", lambda w: w.tick(token=TOKEN[:-1])),
    "another scheme": (
        401,
        "Authorization",
        lambda w: w.ask(headers={"Authorization": f"Basic {TOKEN}"}),
    ),
    "the token in the query": (401, "Authorization", lambda w: w.ask(f"/jobs/tick?token={TOKEN}")),
    "a large body without a token": (401, "Authorization", lambda w: w.ask(body=b"x" * 9_000)),
    "another method": (405, "method", lambda w: w.ask(method="GET", headers=GOOD)),
    "another path": (404, "nothing here", lambda w: w.ask(f"/{TOKEN}", headers=GOOD)),
    "a slash too many": (404, "nothing here", lambda w: w.ask("/jobs/tick/", headers=GOOD)),
    "a large body": (413, "65,536", lambda w: w.ask(headers=GOOD, body=LARGE)),
    "a large body in chunks": (
        413,
        "65,536",
        lambda w: w.ask(
            headers={**GOOD, "Transfer-Encoding": "chunked"}, body=iter([LARGE]), chunked=True
        ),
    ),
    "no unit": (400, "write a duration", lambda w: w.tick("?work=120")),
    "longer than anybody waits": (400, "at most 30m", lambda w: w.tick("?work=31m")),
    "two of them": (400, "more than once", lambda w: w.tick("?work=1s&work=2s")),
    "another parameter": (400, "'budget' is no parameter", lambda w: w.tick("?budget=1s")),
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server that all refusals are asked of; its database is made by the command line."""
    folder = tmp_path_factory.mktemp("asked")
    url = f"sqlite:///{folder / 'postroom.db'}"
    migrated = CommandLine(folder, {"POSTROOM_DATABASE__URL": url})("migrate")
    assert migrated.code == 0, migrated.said
    with Web(url, folder) as web:
        yield web


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_how(asked: Web, name: str) -> None:
    """Each refusal has its status and a line of JSON; nobody may keep it, and nothing is planned."""
    status, text, ask = REFUSED[name]
    asked.clock.advance(FIVE)
    found = ask(asked)
    assert (found.status, text in found.json["error"]) == (status, True), found
    assert found.headers["cache-control"] == "no-store"
    assert "server" not in found.headers
    if status == 401:
        assert found.headers["www-authenticate"].startswith('Bearer realm="postroom"')
        assert ("invalid_token" in found.headers["www-authenticate"]) == ("not the" in text)
    if status == 405:
        assert found.headers["allow"] == "POST"
    [(planned,)] = rows(
        f"sqlite:///{asked.folder / 'postroom.db'}", "SELECT count(*) FROM outbox_runs"
    )
    assert planned == 0


def test_the_log_holds_no_token_no_query_and_no_unknown_path(asked: Web) -> None:
    """Whatever was sent with a request, its line has client, method, known path and status."""
    wrong = "secret-but-wrong-9"
    asked.tick("?work=nonsense")
    asked.tick(token=wrong)
    asked.ask(f"/{TOKEN}?token={TOKEN}", headers=GOOD)
    assert "127.0.0.1 POST /jobs/tick 400 in" in asked.wait_for_line(" 400 in")
    assert asked.wait_for_line(": another token")
    assert "127.0.0.1 POST (no such path) 404 in" in asked.wait_for_line(" 404 in")
    for secret in (TOKEN, wrong, "nonsense"):
        assert secret not in asked.log


def test_a_body_that_is_small_enough_is_read_and_forgotten(lite: Web) -> None:
    """Cloud schedulers send one, whatever it is."""
    assert lite.ask(headers=GOOD, body=b"\x00" * 60_000).status == 202


def test_a_token_file_that_changes_counts_at_once(lite: Web) -> None:
    """Rotation needs no restart; a file that is gone is 503, and the log names it."""
    (lite.folder / "token").write_text("another-token-of-some-length")
    assert lite.tick().status == 401
    assert lite.tick(token="another-token-of-some-length").status == 202
    (lite.folder / "token").unlink()
    assert lite.tick().status == 503
    assert "cannot be read" in lite.wait_for_line("web.public.tick_token")


# --------------------------------------------------------------------------- #
# Starting
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ("", 2, "web.public.tick_token: is missing: write tick_token ="),
        ('tick_token = "env:NOT_SET"', 2, "the environment variable NOT_SET is not set"),
        ('tick_token = "file:short"', 2, "file:short has fewer than 16 characters"),
        ('tick_token = "file:odd"', 2, "file:odd has characters that a bearer token cannot have"),
        (f'tick_token = "{TOKEN}"', 2, 'a secret is written as a reference: "env:NAME"'),
        ('listen = "8026"', 2, 'web.public.listen: is no address to listen on: write "127.0.0.1'),
        ('listen = "127.0.0.1:TAKEN"\ntick_token = "file:good"', 3, "Address already in use"),
        ('listen = "192.0.2.1:0"\ntick_token = "file:good"', 3, "web.public.listen 192.0.2.1:0: "),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(
    sqlite_url: str, tmp_path: Path, lines: str, code: int, said: str
) -> None:
    """The key is named, the secret is not; nothing listens then."""
    for name, text in (("short", "tooshort"), ("odd", "with spaces in between"), ("good", TOKEN)):
        (tmp_path / name).write_text(text)
    (tmp_path / "myjobs.py").write_text(JOBS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        (tmp_path / "postroom.toml").write_text(
            f'[database]\nurl = "{sqlite_url}"\n[jobs]\nmodules = ["myjobs"]\n[web.public]\n'
            + lines.replace("TAKEN", port)
        )
        ended = CommandLine(tmp_path)("web")
    assert (ended.code, said in ended.err) == (code, True), ended.said
    assert len(ended.err.splitlines()) == 1
    assert not any(secret in ended.said for secret in (TOKEN, "tooshort", "with spaces"))


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """Without Starlette the command says what to install, and every other command works."""
    program = (
        "import sys; sys.modules['starlette'] = None\n"
        "from dispatcher.cli.run import run; sys.exit(run(sys.argv[1:]))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        for words in (("web",), ("config", "check"))
    ]
    assert [each.returncode for each in said] == [2, 0]
    assert 'pip install "postroom[web]"' in said[0].stderr
    assert len(said[0].stderr.splitlines()) == 1
