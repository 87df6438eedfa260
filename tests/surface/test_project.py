"""The project as a whole: what is shipped, pinned, named, and how large it grows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.surface.docs_check import ROOT, targets

PACKAGES = ("outbox", "dispatcher", "providers")
LOCKS = (
    "requirements.lock",
    "requirements-build.lock",
    "requirements-dev.lock",
    "requirements-lowest.lock",
)
# Written so that this file does not match itself.
FOREIGN = re.compile(r"/(w[o]rk|f[a]rm)/|p[y]pi\.org|p[y]thonhosted|n[p]mjs\.|d[e]b\.debian")


@cache
def project() -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def tree() -> tuple[Path, ...]:
    """Every file that is committed or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if name]
    return tuple(ROOT / name for name in sorted(set(names)) if (ROOT / name).is_file())


def modules(*folders: str) -> Iterator[Path]:
    """The Python files below these folders."""
    wanted = {ROOT / folder for folder in folders}
    return (path for path in tree() if path.suffix == ".py" and wanted & set(path.parents))


# --------------------------------------------------------------------------- #
# The wheel
# --------------------------------------------------------------------------- #


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built as ``make wheel`` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("postroom-*-py3-none-any.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_installs_three_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Nothing with a general name lands in anybody's site-packages."""
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_brings_the_migrations(wheel: zipfile.ZipFile) -> None:
    """Every migration of the repository is in the wheel, below the package outbox."""
    shipped = {
        n.removeprefix("outbox/_migrations/") for n in wheel.namelist() if "_migrations" in n
    }
    here = {
        str(path.relative_to(ROOT / "migrations"))
        for path in tree()
        if ROOT / "migrations" in path.parents
    }
    assert "env.py" in shipped
    assert any(re.fullmatch(r"versions/0001_\w+\.py", name) for name in shipped)
    assert here <= shipped


def test_the_wheel_is_typed_and_licensed(wheel: zipfile.ZipFile) -> None:
    """Each package says that it is typed, and the licence travels with them."""
    names = set(wheel.namelist())
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_holds_no_stray_files(wheel: zipfile.ZipFile) -> None:
    """Only files of the repository are shipped, no caches and no databases."""
    ours = {str(path.relative_to(ROOT)) for path in tree()}
    shipped = [name for name in wheel.namelist() if ".dist-info/" not in name]
    stray = [n for n in shipped if n.replace("outbox/_migrations/", "migrations/") not in ours]
    assert stray == []


# --------------------------------------------------------------------------- #
# What the project says about itself
# --------------------------------------------------------------------------- #


def test_supported_pythons_agree_everywhere() -> None:
    """Classifiers, requires-python and the matrix name the same versions; there is no upper bound."""
    table = project()["project"]
    named = re.findall(r"Python :: (3\.\d+)'", str(table["classifiers"]))
    matrix = (ROOT / "tests" / "matrix.sh").read_text(encoding="utf-8")
    assert named == sorted(set(re.findall(r"^run (3\.\d+) current", matrix, re.MULTILINE)))
    assert table["requires-python"] == f">={named[0]}"
    assert project()["tool"]["mypy"]["python_version"] == named[0]
    assert project()["tool"]["ruff"]["target-version"] == f"py{named[0].replace('.', '')}"


def test_the_licence_is_the_one_that_is_claimed() -> None:
    """The full text of the licence named in the metadata is there."""
    assert project()["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_oldest_sqlalchemy_is_the_one_that_is_claimed() -> None:
    """The matrix tests the very lower bound that the metadata promises."""
    [bound] = [r for r in project()["project"]["dependencies"] if r.startswith("sqlalchemy")]
    [(_, lowest)] = pins(ROOT / "requirements-lowest.lock")
    assert f">={lowest}," in bound


# --------------------------------------------------------------------------- #
# Lock files
# --------------------------------------------------------------------------- #

_ENTRY = re.compile(
    r"^(?P<name>[a-z0-9-]+)(?:\[[a-z,-]+\])?==(?P<version>[^\s;\\]+)(?: ; [^\\\n]+)? \\\n"
    r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
    r"(?:    #.*\n)*",
    re.MULTILINE,
)


def pins(lock: Path) -> list[tuple[str, str]]:
    """Name and version of each entry."""
    return [(m["name"], m["version"]) for m in _ENTRY.finditer(lock.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_every_line_with_a_hash(name: str) -> None:
    """A lock holds exact versions with hashes, and nothing else: no index, no option, no URL."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert _ENTRY.sub("", text) == ""
    assert "://" not in text


def test_locks_agree() -> None:
    """What is tested is what is installed: the development lock contains the other two."""
    development = set(pins(ROOT / "requirements-dev.lock"))
    assert set(pins(ROOT / "requirements.lock")) <= development
    assert set(pins(ROOT / "requirements-build.lock")) <= development


def test_locks_fulfil_what_the_metadata_asks() -> None:
    """Every requirement is locked, at a version that satisfies it."""
    table, groups = project()["project"], project()["dependency-groups"]
    extras = [r for extra in table["optional-dependencies"].values() for r in extra]
    runtime = dict(pins(ROOT / "requirements.lock"))
    for text in table["dependencies"] + extras:
        _assert_locked(Requirement(text), runtime)
    for group, lock in {"build": "requirements-build.lock", "dev": "requirements-dev.lock"}.items():
        locked = dict(pins(ROOT / lock))
        for text in (r for r in groups[group] if isinstance(r, str)):
            _assert_locked(Requirement(text), locked)


def _assert_locked(requirement: Requirement, locked: dict[str, str]) -> None:
    name = canonicalize_name(requirement.name)
    assert name in locked, f"{name} is not locked: run make lock"
    assert SpecifierSet(str(requirement.specifier)).contains(locked[name], prereleases=True)


# --------------------------------------------------------------------------- #
# The tree
# --------------------------------------------------------------------------- #


def test_no_file_names_a_machine_or_a_registry() -> None:
    """A clone works anywhere: no file holds a path of one machine or the host of an index."""
    found = []
    for path in tree():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{n}" for n, t in enumerate(lines, 1) if FOREIGN.search(t)
        ]
    assert found == []


def test_no_module_is_too_long() -> None:
    """A module over 400 lines is missing a room."""
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules(*PACKAGES, "examples")
    }
    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_no_function_is_too_long() -> None:
    """A function over 60 lines, docstring not counted, is two functions."""
    found = []
    for path in modules(*PACKAGES, "examples"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) and node.body[1:] else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1
                if lines > 60:
                    found.append(f"{path.relative_to(ROOT)}: {node.name} has {lines} lines")
    assert found == []


def test_no_module_has_a_name_without_meaning() -> None:
    """There is no drawer for what has no place."""
    names = {path.stem for path in modules(*PACKAGES, "examples", "migrations", "tests")}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc"}


def test_every_test_says_what_it_shows() -> None:
    """Each test states the behaviour in its docstring."""
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in modules("tests")
        if path.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert found == []


# --------------------------------------------------------------------------- #
# Commands and imports
# --------------------------------------------------------------------------- #


def test_make_help_lists_every_target() -> None:
    """What can be made is what ``make help`` shows, and plain ``make`` shows it too."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE))
    assert phony == targets(ROOT / "Makefile")
    assert {"demo", "test", "check", "matrix", "format", "lock", "wheel", "clean", "help"} <= phony
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    for target in phony:
        assert re.search(rf"^  make {target} +\S", shown.stdout, re.MULTILINE), target


_LOADED = """
import sys
before = set(sys.modules)
import outbox
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_importing_outbox_loads_sqlalchemy_and_nothing_else() -> None:
    """A job that enqueues pays for the standard library and SQLAlchemy only."""
    done = subprocess.run([sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    owners = packages_distributions()
    loaded = {owner.lower() for name in done.stdout.split() for owner in owners.get(name, [])}
    # SQLAlchemy itself needs the last two.
    assert (
        loaded - {"postroom", "sqlalchemy", "typing-extensions", "typing_extensions", "greenlet"}
        == set()
    )
    assert "sqlalchemy" in loaded


def test_importing_outbox_is_quiet() -> None:
    """Importing prints nothing and starts no thread."""
    code = "import outbox, threading; assert threading.active_count() == 1"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
