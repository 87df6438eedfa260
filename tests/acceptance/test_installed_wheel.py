"""The wheel alone: installed beside what it depends on, far away from the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.forked_commands import ROOT

MESSAGE = '{"from": "r@example.com", "to": "ana@example.org", "subject": "Hi", "text": "x"}'


def run(*command: str | Path, folder: Path, stdin: str = "") -> str:
    """Run a command that has to succeed, with nothing of this process's Python in its way."""
    hidden = ("POSTROOM_", "PYTHON", "PIP_", "VIRTUAL_ENV")
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(hidden)},
        input=stdin,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def needed_by(found: Distribution, known: set[str]) -> Iterator[Distribution]:
    """What a distribution needs, and what that needs, each once; extras as they are asked for."""
    for text in found.requires or ():
        yield from _needed(Requirement(text), "", known)


def _needed(requirement: Requirement, extra: str, known: set[str]) -> Iterator[Distribution]:
    if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
        return
    found = distribution(requirement.name)
    for wanted in ("", *requirement.extras):
        name = f"{canonicalize_name(requirement.name)}[{wanted}]"
        if name in known:
            continue
        known.add(name)
        if not wanted:
            yield found
        for text in found.requires or ():
            yield from _needed(Requirement(text), wanted, known)


def copy(found: Distribution, target: Path) -> None:
    """Copy the installed files of a distribution to another environment, scripts excepted."""
    for file in found.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            place = target / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), place)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with the wheel and its base dependencies, no more: no extras, no tools.

    The dependencies are copied from the environment that runs the tests, so that no
    network is needed; the wheel is built and installed by pip, which then checks that
    everything its metadata asks for is there.
    """
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in needed_by(distribution("postroom"), set()):
        copy(found, folder / "lib" / version / "site-packages")
    dist = tmp_path / "dist"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist, folder=ROOT)
    [wheel] = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, folder=tmp_path)
    run(*pip, "check", folder=tmp_path)
    return folder


def test_the_wheel_alone_can_init_migrate_and_drain(environment: Path, tmp_path: Path) -> None:
    """Done-when 5: in an empty folder the installed command writes its file, migrates and drains.
    The testing kit's fixture comes with it, for a pytest that is there."""
    postroom, folder = environment / "bin" / "postroom", tmp_path / "elsewhere"
    folder.mkdir()
    where = run(
        environment / "bin" / "python", "-c", "import outbox; print(outbox.__file__)", folder=folder
    )
    assert where.startswith(str(environment))
    run(postroom, "init", folder=folder)
    run(postroom, "migrate", folder=folder)
    run(postroom, "enqueue", "--key", "k", folder=folder, stdin=MESSAGE)
    assert run(postroom, "dispatch", "--drain", folder=folder) == "nothing is left\n"
    assert len(list(folder.glob("var/mail/*.eml"))) == 1
    plugins = (
        "from importlib.metadata import entry_points as e; "
        "print([p.value for p in e(group='pytest11') if p.name == 'postroom'])"
    )
    said = run(environment / "bin" / "python", "-c", plugins, folder=folder)
    assert said == "['dispatcher.pytest_plugin']\n"
