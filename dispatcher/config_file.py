"""What was configured, and where: the file, with the variables laid over it.

Nothing is judged here. The result remembers where each value came from, so that
a problem can name its source and ``postroom config show`` can tell it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from outbox.settings import find_file, folder_of, read_file, value_of, variables

KeyPath: TypeAlias = tuple[str | int, ...]

DEFAULT = "default"


def dotted(path: Iterable[str | int]) -> str:
    """``accounts.main.port``, ``accounts.main.secrets[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. ``key`` is its path, "" where there is none;
    ``source`` the variable it was set by, "" where that was the file."""

    key: str
    text: str
    source: str = ""

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.key}: {self.text}{where}" if self.key else f"{self.text}{where}"


class ConfigError(Exception):
    """The configuration cannot be used. ``problems`` holds everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Document:
    """The configuration as written. ``folder`` is what relative paths are relative to."""

    file: Path | None
    folder: Path
    values: Mapping[str, Any]
    variables: Mapping[KeyPath, str] = field(default_factory=dict)

    def variable(self, path: KeyPath) -> str:
        """The variable that set ``path``, "" if none did."""
        for length in range(len(path), 0, -1):
            if name := self.variables.get(path[:length]):
                return name
        return ""

    def source(self, path: KeyPath) -> str:
        """Where the value at ``path`` came from: a variable, the file, or the default."""
        if name := self.variable(path):
            return name
        if self.file is None or not _has(self.values, path):
            return DEFAULT
        return str(self.file)


def read(file: Path | None, environ: Mapping[str, str] | None = None) -> Document:
    """The configuration file and the variables of this process, before any check.

    file: the one that was asked for; left out, ``POSTROOM_CONFIG``, else
      ``postroom.toml`` of the working directory if it is there.

    Raises ConfigError when a file cannot be read or a variable's name makes no sense.
    """
    given = os.environ if environ is None else environ
    try:
        found = find_file(file, given)
        values: dict[str, Any] = read_file(found) if found else {}
        overlay = variables(given)
    except ValueError as error:
        raise ConfigError([Problem("", str(error))]) from None
    for path, (_, text) in overlay.items():
        _put(values, path, value_of(text))
    names: dict[KeyPath, str] = {path: name for path, (name, _) in overlay.items()}
    return Document(found, folder_of(found, file), values, names)


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    table = values
    for part in path[:-1]:
        inner = table.get(part)
        if not isinstance(inner, dict):
            inner = table[part] = {}
        table = inner
    table[path[-1]] = value


def _has(values: Any, path: KeyPath) -> bool:
    for part in path:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
