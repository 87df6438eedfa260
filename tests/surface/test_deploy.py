"""What ``deploy/`` holds fits this version: its commands exist, its keys are known, stops fit."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from pathlib import Path

import pytest
from typer.main import get_command

from dispatcher.cli.app import app
from dispatcher.config import load
from tests.surface.docs_check import ROOT

DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
GRACE = re.compile(r"^\s*(?:terminationGracePeriodSeconds: |TimeoutStopSec=)(\d+)$", re.MULTILINE)


def name(file: Path) -> str:
    return str(file.relative_to(DEPLOY))


def commands(text: str) -> list[list[str]]:
    """The words of each ``postroom`` command: a YAML list, or a line of a unit or a crontab."""
    listed = [re.findall(r'"([^"]*)"', each) for each in re.findall(r"command: (\[.*\])", text)]
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    typed = [at[1] for line in lines if (at := re.search(r"/postroom ([^|>&;]*)", line))]
    return [*listed, *(["postroom", *shlex.split(each)] for each in typed)]


@pytest.mark.parametrize("file", FILES, ids=name)
def test_the_commands_of_a_file_are_there(file: Path) -> None:
    """Each is a command of this version, with options that it has."""
    for words in commands(file.read_text()):
        command = get_command(app)
        rest = words[1:]
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]  # type: ignore[attr-defined]
        assert not hasattr(command, "commands"), words
        command.make_context("postroom", list(rest), resilient_parsing=False)


@pytest.mark.parametrize("file", FILES, ids=name)
def test_the_variables_of_a_file_are_keys(file: Path) -> None:
    """Each POSTROOM variable is one that the configuration knows, with a value that it takes."""
    text = file.read_text()
    given = dict(re.findall(r"Environment=(POSTROOM_\w+)=(\S+)", text))
    given |= dict(re.findall(r"name: (POSTROOM_\w+)\n\s+value: (\S+)", text))
    secret = re.findall(r"name: (POSTROOM_\w+)\n\s+valueFrom", text)
    given |= dict.fromkeys(secret, "sqlite:///x.db")
    given.pop("POSTROOM_CONFIG", None)
    assert load(None, given).accounts


@pytest.mark.parametrize("file", [f for f in FILES if GRACE.search(f.read_text())], ids=name)
def test_a_stop_is_given_the_time_that_it_may_take(file: Path) -> None:
    """Whoever stops the process waits longer than the grace that holds by default."""
    config = load(None, {})
    longest = max(config.jobs.shutdown_grace, config.dispatcher.shutdown_grace)
    for seconds in GRACE.findall(file.read_text()):
        assert timedelta(seconds=int(seconds)) > longest + timedelta(seconds=5)


def test_there_is_something_to_check() -> None:
    """The folder is there, and commands are found in it."""
    assert sum(len(commands(file.read_text())) for file in FILES) >= 4
