"""The reference is complete, and says nothing that is not there: it is compared with the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sqlite3
import typing
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel
from typer.main import get_command

import outbox
from dispatcher import config_models, events
from dispatcher.cli.app import app
from dispatcher.cli.run import Exit
from dispatcher.config_report import _shown
from dispatcher.journal import line
from outbox import errors, limits, states, states_jobs
from outbox.message_schema import message_schema
from outbox.migrations import VERSION_TABLE
from outbox.states import AttemptOutcome, PauseReason, Phase, State
from providers import registry
from tests.surface.docs_check import ROOT
from tests.surface.pages import (
    ARCHITECTURE,
    codes,
    first_column,
    reference,
    rows,
    section,
    sections,
)

# --------------------------------------------------------------------------- #
# The command line
# --------------------------------------------------------------------------- #


def commands(group: Any, words: str = "postroom") -> Iterator[tuple[str, Any]]:
    """Each command with its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{words} {name}")
        else:
            yield f"{words} {name}", command


def options(command: Any) -> set[str]:
    """The long options of a command, ``--help`` left out."""
    return {o for p in command.params for o in p.opts if o.startswith("--")} - {"--help"}


def documented_options(text: str) -> set[str]:
    """The options in the first column of the tables in ``text``."""
    return {code.split()[0] for code in first_column(text)}


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    """Neither a command nor a section of the page stands alone."""
    titles = {t for t in sections(reference("command-line")) if t.startswith("postroom ")}
    assert titles == {words for words, _ in commands(get_command(app))}


@pytest.mark.parametrize("words", [words for words, _ in commands(get_command(app))])
def test_the_options_of_a_command_are_those_of_its_section(words: str) -> None:
    """Each option is in the table of its command, and no other."""
    text = section(reference("command-line"), words)
    assert documented_options(text) == options(dict(commands(get_command(app)))[words])


def test_the_options_of_every_command_are_named() -> None:
    """What may stand anywhere is in the first table."""
    text = reference("command-line").partition("## Commands")[0]
    assert documented_options(text) == options(get_command(app))


def test_exit_codes_are_complete() -> None:
    """Each code has its row, with its name."""
    found = [(int(row[0]), row[1].strip("`")) for row in rows(reference("exit-codes"))]
    assert found == [(code.value, code.name) for code in Exit]


# --------------------------------------------------------------------------- #
# The configuration
# --------------------------------------------------------------------------- #


def keys(path: str, model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Each key below ``path`` with its default as the page writes it."""
    for name, field in model.model_fields.items():
        here, kind = f"{path}.{field.alias or name}", field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(here, kind)
            continue
        value = _shown(field.get_default()) if not field.is_required() else "required"
        yield here, "-" if value is None else str(value)


def test_every_key_is_there_with_its_variable_and_default() -> None:
    """The tables hold what the models hold: nothing is missing, invented or out of date."""
    text = reference("configuration")
    parts: list[tuple[str, str, type[BaseModel]]] = [
        ("[database]", "database", config_models.Database),
        ("[defaults]", "defaults", config_models.Defaults),
        ("[dispatcher]", "dispatcher", config_models.Dispatcher),
        ("[jobs]", "jobs", config_models.Jobs),
        ("[web.public]", "web.public", config_models.WebPublic),
    ]
    parts += [(n, "accounts.NAME", registry.settings_type(n)) for n in registry.names()]
    for title, path, model in parts:
        check_keys(section(text, title), dict(keys(path, model)))
    common = section(text, "[accounts.NAME]").partition("\n### ")[0]
    check_keys(common, dict(keys("accounts.NAME", config_models.AccountHead)))


def check_keys(text: str, expected: dict[str, str]) -> None:
    found = {row[0].strip("`"): row for row in rows(text)}
    assert {key: row[2].strip("`") for key, row in found.items()} == expected
    for key, row in found.items():
        assert row[1] == f"`POSTROOM_{key.replace('.', '__').upper()}`"


# --------------------------------------------------------------------------- #
# Words, errors, log lines
# --------------------------------------------------------------------------- #

LISTS = [
    each
    for module in (states, states_jobs)
    for each in vars(module).values()
    if inspect.isclass(each) and issubclass(each, StrEnum) and each is not StrEnum
]


@pytest.mark.parametrize("words", LISTS, ids=lambda each: each.__name__)
def test_every_word_of_a_closed_list_is_explained(words: type[StrEnum]) -> None:
    """The table has each word once, in the order of the code."""
    assert first_column(section(reference("states"), words.__name__)) == [w.value for w in words]


def test_every_closed_list_has_a_section() -> None:
    """No section is about a list that is not there."""
    titles = {t for t in sections(reference("states")) if t[:1].isupper() and " " not in t}
    assert titles == {each.__name__ for each in LISTS}


def test_every_error_has_a_row() -> None:
    """All that is raised on purpose is there, with its second base and its attributes."""
    raised = {n: e for n, e in vars(errors).items() if inspect.isclass(e) and n in outbox.__all__}
    found = {row[0].strip("`"): row for row in rows(reference("errors"))}
    assert set(found) == set(raised)
    for name, error in raised.items():
        also = next((b for b in error.__bases__ if b.__module__ == "builtins"), None)
        assert found[name][1] == (f"`{also.__name__}`" if also else "")
        if "__init__" in vars(error):
            attributes = set(inspect.signature(error).parameters) - {"message"}
            assert attributes <= set(codes(found[name][2]))


AT = datetime(2026, 11, 29, 3, 7, 17, tzinfo=UTC)


def settled(attempt: int, outcome: AttemptOutcome, state: State, **more: Any) -> events.Settled:
    """How an attempt of the page's delivery ended."""
    known = {"reason": None, "detail": None, "due_at": AT, "seconds": 0.1}
    return events.Settled("invoice:7:owner", "relay", attempt, outcome, state, **{**known, **more})


HAPPENED: list[events.Event] = [
    events.Started("mail-1:4711:9f2c04e17ab35d60", ("main", "relay"), 100),
    settled(1, AttemptOutcome.ACCEPTED, State.ACCEPTED),
    settled(1, AttemptOutcome.UNAVAILABLE, State.PENDING, detail="tls: the handshake failed"),
    settled(
        3,
        AttemptOutcome.REJECTED,
        State.FAILED,
        reason="rejected",
        detail="RCPT TO answered 550 5.1.1 no such user",
    ),
    events.LeaseLost("invoice:7:owner", 1, AttemptOutcome.ACCEPTED),
    events.Recovered("invoice:7:owner", Phase.TRANSMITTING, State.IN_DOUBT),
    events.AccountPaused(
        "relay", PauseReason.CREDENTIALS, AT, "AUTH answered 535 5.7.8 wrong password"
    ),
    events.DatabaseAway("connection refused"),
    events.RoundSplit("value too long"),
    events.Stopping(3, 30.0),
]


def test_every_event_has_its_line() -> None:
    """Each example is what the journal writes, and no kind of event is left out."""
    found = [(row[0].strip("`"), row[2].strip("`")) for row in rows(reference("log-lines"))]
    assert found == [(type(event).__name__, line(event)) for event in HAPPENED]
    assert {name for name, _ in found} == {e.__name__ for e in typing.get_args(events.Event)}


# --------------------------------------------------------------------------- #
# What a job uses
# --------------------------------------------------------------------------- #


def test_every_public_name_is_documented() -> None:
    """``outbox.__all__`` and the page hold the same names."""
    text = reference("python-api")
    titled = {t for t in sections(text) if t.isidentifier() and t not in {"Writing", "Errors"}}
    assert titled | set(codes(section(text, "Errors"))) == set(outbox.__all__)


@pytest.mark.parametrize(
    "name",
    [n for n in outbox.__all__ if callable(getattr(outbox, n)) and not hasattr(errors, n)],
)
def test_the_parameters_of_a_public_name_are_documented(name: str) -> None:
    """Each argument of a function and each field of a value is named in its section."""
    text, public = section(reference("python-api"), name), getattr(outbox, name)
    if dataclasses.is_dataclass(public) and f"{name}(" not in text:
        wanted = {field.name for field in dataclasses.fields(public)}
        assert wanted <= set(codes(text))
        return
    [signature] = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    inside = signature[signature.index("(") + 1 : signature.rindex(")")].split(") ->")[0]
    found = [part.strip().strip("*").partition("=")[0] for part in inside.split(",")]
    wanted_order = [p for p in inspect.signature(public).parameters if p != "self"]
    assert [part for part in found if part and part != "()"] == wanted_order


def test_every_member_of_a_message_is_documented() -> None:
    """The page's tables are the schema's properties, and every limit has its number."""
    text, schema = reference("message"), message_schema()
    members = section(text, "Members")
    assert first_column(members.partition("An **attachment**")[0]) == list(schema["properties"])
    files = list(schema["$defs"]["attachment"]["properties"])
    assert sorted(first_column(members.partition("An **attachment**")[2])) == sorted(files)
    numbers = {n: v for n, v in vars(limits).items() if n.isupper() and n != "KEY_CHARACTERS"}
    assert {n for n, v in numbers.items() if f"{v:,}" not in text} == set()


@pytest.mark.parametrize("table", outbox.metadata.sorted_tables, ids=lambda each: each.name)
def test_every_column_is_documented(table: Any) -> None:
    """A table's section has its columns, in their order."""
    assert first_column(section(reference("tables"), table.name)) == [c.name for c in table.columns]


def test_tables_functions_and_view_are_documented(sqlite_url: str) -> None:
    """Whatever a migration makes has a section; the view's columns are those it has."""
    text = reference("tables")
    scripts = sorted((ROOT / "migrations" / "sql").glob("*_postgresql.sql"))
    script = "\n".join(each.read_text(encoding="utf-8") for each in scripts)
    made = set(re.findall(r"^CREATE (?:TABLE|VIEW|FUNCTION) (\w+)", script, re.MULTILINE))
    made = made - {"outbox_same_message"} | {VERSION_TABLE}
    assert {t for t in sections(text) if t.startswith("outbox_")} == made
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        view = connection.execute("SELECT * FROM outbox_delivery_status").description
    assert codes(section(text, "outbox_delivery_status"))[1:] == [column[0] for column in view]


# --------------------------------------------------------------------------- #
# ARCHITECTURE
# --------------------------------------------------------------------------- #


def architecture() -> str:
    return ARCHITECTURE.read_text(encoding="utf-8")


def test_the_transitions_are_those_of_the_code() -> None:
    """The table equals the code's; the diagram shows a part of it, and every state."""
    text = section(architecture(), "States")
    found = {row[0].strip("`"): set(codes(row[1])) for row in rows(text)}
    allowed = {s.value: {to.value for to in goals} for s, goals in states.TRANSITIONS.items()}
    assert found == allowed
    drawn = re.findall(r"^ +(\w+|\[\*\]) --> (\w+|\[\*\])", text, re.MULTILINE)
    assert {(a, b) for a, b in drawn if "[*]" not in {a, b} and b not in allowed[a]} == set()
    assert {a for a, _ in drawn} | {b for _, b in drawn} == {*allowed, "[*]"}


def test_the_fold_is_told_in_its_order() -> None:
    """The order in which recipients' results make a state is that of the code."""
    [told] = re.findall(
        r"that any recipient has is the state: (.*?)\. So", architecture(), re.DOTALL
    )
    assert codes(told) == [each.value for each in states.FOLD_ORDER]


def test_every_module_has_its_room() -> None:
    """Each module is named in the table of its package, and no other."""
    text = section(architecture(), "Rooms").partition("\n### ")[0]
    for package in ("outbox", "providers", "dispatcher"):
        table = text[text.index(f"| `{package}/` |") :].partition("\n\n")[0]
        named = {c for row in rows(table) for c in codes(" ".join(row)) if c.isidentifier()}
        there = {p.stem for p in (ROOT / package).glob("*.py")} - {"__init__", "__main__"}
        if package == "outbox":
            there |= {p.stem for p in (ROOT / "outbox/store").glob("*.py")} - {"__init__"}
        assert there - named == set(), package
        assert named - there <= {"outbox"}, package
    table = text[text.index("| in `outbox/jobs/` |") :].partition("\n\n")[0]
    named = {c for row in rows(table) for c in codes(" ".join(row)) if c.isidentifier()}
    assert named == {p.stem for p in (ROOT / "outbox/jobs").glob("*.py")} - {"__init__"}


def test_every_test_that_is_named_exists() -> None:
    """An invariant's guard is a test that is there."""
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", architecture()))
    assert len(named) > 20
    missing = {
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).is_file()
        or not re.search(
            rf"^ *(async )?def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE
        )
    }
    assert missing == set()
