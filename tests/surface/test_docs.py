"""What the pages show works: every example runs, and says what the page says."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from dispatcher.config import load
from outbox import Email, __version__
from outbox.message_schema import message_schema
from outbox.states import State
from providers.settings import parse_duration
from tests.servers.smtp import SmtpServer
from tests.surface.docs_check import ROOT, check, existing_commands, markdown_files, read
from tests.surface.examples import RUN, SHOWN_FOLDER, Block, Stage, blocks, same, stage
from tests.surface.pages import DOCS, README, first_column, section

PAGES = [README, *sorted(DOCS.rglob("*.md"))]
FROM_NOTHING = {README, DOCS / "quickstart.md"}
"""Pages that begin in an empty folder, and make configuration and tables themselves."""

INVOICES = "CREATE TABLE invoices (id INTEGER PRIMARY KEY, total INTEGER)"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runs(page: Path, *, on_postgres: bool) -> list[Block]:
    """The blocks of a page that one run performs, in order."""
    found = [b for b in blocks(page) if b.note != "not run"]
    if on_postgres:
        return [b for b in found if b.note in {"file", "postgresql"}]
    return [b for b in found if b.note != "postgresql"]


def has_examples(page: Path) -> bool:
    return any(b.language in RUN for b in runs(page, on_postgres=False))


def play(page: Path, scene: Stage, *, on_postgres: bool = False) -> None:
    """Perform a page; where an output follows a program, it is that of the program."""
    said = ""
    for block in runs(page, on_postgres=on_postgres):
        if block.note == "output":
            assert same(said) == same(block.text), f"{block.place}\n{said}"
        else:
            said = scene.perform(block)


# --------------------------------------------------------------------------- #
# Examples
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize("page", [p for p in PAGES if has_examples(p)], ids=name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, sqlite_url: str) -> None:
    """Each program and each command ends well, and prints what the page says it prints."""
    with stage(tmp_path) as scene:
        if page not in FROM_NOTHING:
            scene.type("postroom init")
            database = scene.folder / "var" / "postroom.db"
            shutil.copyfile(sqlite_url.removeprefix("sqlite:///"), database)
            with closing(sqlite3.connect(database)) as connection:
                connection.execute(INVOICES)
        play(page, scene)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.note == "postgresql" for b in blocks(p))], ids=name
)
def test_the_examples_for_postgresql_run(page: Path, tmp_path: Path, postgres_url: str) -> None:
    """What a page shows for PostgreSQL works on one, and nothing is left uncommitted."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(INVOICES)
        with stage(tmp_path, {"DATABASE_URL": postgres_url}) as scene:
            play(page, scene, on_postgres=True)
        [(enqueued,)] = connection.execute("SELECT count(*) FROM outbox_deliveries").fetchall()
    shown = [b for b in blocks(page) if b.note == "postgresql" and b.language == "python"]
    assert enqueued == len(shown) > 0


def test_the_story_of_a_doubt_is_a_real_one(tmp_path: Path) -> None:
    """What the README shows is what is said after a server took all and went away."""
    [shown] = [b for b in blocks(README) if (b.note, b.value) == ("real output", "doubt")]
    [message] = [b for b in blocks(README) if b.value == "invoices.py"]
    with SmtpServer(steps={"dot": ("drop",)}) as server, stage(tmp_path) as scene:
        scene.perform(message)
        (scene.folder / "postroom.toml").write_text(
            '[defaults]\naccount = "relay"\n[accounts.relay]\nprovider = "smtp"\n'
            f'host = "127.0.0.1"\nport = {server.port}\n'
        )
        scene.type("postroom migrate && python invoices.py && ! postroom dispatch --drain")
        said = scene.type("postroom deliveries show invoice:7:owner")
    assert same(said) == same(shown.text)
    assert len(server.taken) == 1


def test_the_readme_s_job_is_short() -> None:
    """A producer's whole program has at most 25 lines."""
    [job] = [b for b in blocks(README) if b.value == "invoices.py"]
    assert len(job.text.splitlines()) <= 25


def test_a_run_that_differs_is_noticed(tmp_path: Path) -> None:
    """Another output than the page's, a failing command and a failing program are errors."""
    with stage(tmp_path) as scene:
        for language, text, problem in (
            ("console", "$ echo one\ntwo\n", r"\$ echo one"),
            ("console", "$ false\n", r"\$ false"),
            ("python", "raise SystemExit(1)\n", "python example.py"),
        ):
            with pytest.raises(AssertionError, match=problem):
                scene.perform(Block(README, 1, language, text))


# --------------------------------------------------------------------------- #
# What is shown and not run
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize(
    "block",
    [b for page in PAGES for b in blocks(page) if b.language == "toml"],
    ids=lambda b: b.place,
)
def test_every_configuration_shown_is_valid(block: Block, tmp_path: Path) -> None:
    """Each key exists, each value is allowed."""
    file = tmp_path / "postroom.toml"
    file.write_text(block.text)
    assert load(file, {}).accounts


def test_every_message_shown_is_valid() -> None:
    """Each JSON message of a page is one, for Python and for the schema."""
    import jsonschema

    shown = [b for page in PAGES for b in blocks(page) if b.language == "json"]
    assert shown
    for block in shown:
        Email.from_json(block.text)
        jsonschema.validate(json.loads(block.text), message_schema())


def test_the_unit_waits_longer_than_the_dispatcher() -> None:
    """The patience of systemd is longer than the grace period that holds by default."""
    [unit] = [b for b in blocks(DOCS / "how-to/run-under-systemd.md") if b.language == "ini"]
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(unit.text)
    grace = load(None, {}).dispatcher.shutdown_grace
    assert parse_duration(parsed["Service"]["TimeoutStopSec"] + "s") > grace
    assert parsed["Service"]["WorkingDirectory"] == SHOWN_FOLDER


# --------------------------------------------------------------------------- #
# The pages themselves
# --------------------------------------------------------------------------- #


def test_links_and_commands_lead_somewhere() -> None:
    """What ``make check-docs`` checks holds."""
    assert check([read(path) for path in markdown_files()], existing_commands()) == []


def test_every_page_is_on_the_map() -> None:
    """Each page below docs is linked from the map, or from the list of decisions."""
    for folder, listing in ((DOCS, "README.md"), (DOCS / "decisions", "README.md")):
        text = (folder / listing).read_text(encoding="utf-8")
        linked = {(folder / t).resolve() for t in re.findall(r"\]\(([^)#]+\.md)", text)}
        pages = set(folder.rglob("*.md")) if folder != DOCS else set(DOCS.rglob("*.md"))
        if folder == DOCS:
            pages = {p for p in pages if p.parent.name != "decisions" or p.name == listing}
        assert pages - {folder / listing} - linked == set()


def test_the_readme_names_every_state_and_the_version() -> None:
    """The table of states is complete, and the wheel has its name."""
    text = README.read_text(encoding="utf-8")
    assert first_column(section(text, "States")) == [state.value for state in State]
    assert set(re.findall(r"postroom-([\d.]+)-py3", text)) == {__version__}
