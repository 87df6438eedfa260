"""Where the database is: the only part of the configuration that this package reads itself.

A job that enqueues and a dispatcher that sends must agree on the database, or
mail is written where nobody looks. So the rules stand here once, and the
dispatcher's configuration uses these functions: which file is read, which
variables count, how a URL is referred to, what a relative path is relative to.

Standard library only. Every problem is a ValueError with one line, which never
holds a password.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from outbox.errors import InvalidDatabase

FILE_NAME = "postroom.toml"
CONFIG_VARIABLE = "POSTROOM_CONFIG"
PREFIX = "POSTROOM_"
SECTIONS = ("accounts", "database", "defaults", "dispatcher", "jobs", "web")
"""The tables of the configuration file."""

DEFAULT_URL = "sqlite:///var/postroom.db"

_LOOKS_LIKE_TOML = re.compile(
    r"""(?x) true | false | [+-]?[0-9][0-9_]*(\.[0-9_]+)?([eE][+-]?[0-9]+)? | \[.*\] | \{.*\} | ".*" """,
    re.DOTALL,
)
_PLACE = re.compile(r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|.*)\)$")
_PASSWORD = re.compile(r"(?P<before>^[\w+.-]*://[^:/@?]*):(?P<password>.*)@", re.DOTALL)
_PASSWORD_PARAMETER = re.compile(r"(?i)(?P<name>[?&](?:ssl)?password)=[^&]*")


class DatabaseSettings(NamedTuple):
    """``url`` is resolved: no reference, no relative path; it may hold a password."""

    url: str
    schema: str | None


def database_settings(
    start: Path | None = None, environ: Mapping[str, str] | None = None
) -> DatabaseSettings:
    """The database that is configured for this working directory and environment.

    start: a configuration file, or the folder to look for ``postroom.toml`` in;
      left out, ``POSTROOM_CONFIG``, else the working directory.

    Raises InvalidDatabase with one line that names the file, key or variable.
    """
    try:
        return _settings(start, os.environ if environ is None else environ)
    except ValueError as error:
        raise InvalidDatabase(str(error)) from None


def _settings(start: Path | None, environ: Mapping[str, str]) -> DatabaseSettings:
    file = find_file(start, environ)
    table = read_file(file).get("database", {}) if file else {}
    if not isinstance(table, dict):
        raise ValueError("database: is not a table: write [database]")
    from_variables = {
        path[1]: value_of(text)
        for path, (_, text) in variables(environ).items()
        if path in {("database", "url"), ("database", "schema")}
    }
    settings = {**table, **from_variables}
    url, schema = settings.get("url", DEFAULT_URL), settings.get("schema")
    if problem := url_problem(url, in_file="url" not in from_variables):
        raise ValueError(f"database.url: {problem}")
    if schema is not None and not isinstance(schema, str):
        raise ValueError("database.schema: is no text: write it in quotes")
    return DatabaseSettings(resolve_url(url, folder_of(file, start), environ), schema)


# --------------------------------------------------------------------------- #
# The file
# --------------------------------------------------------------------------- #


def named_file(given: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file somebody asked for, by argument or ``POSTROOM_CONFIG``; it may not be there."""
    if given is not None:
        return given / FILE_NAME if given.is_dir() else given
    named = environ.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def find_file(given: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The configuration file to read; None when there is none and nobody asked for one.

    Raises ValueError when the file that was asked for is not there.
    """
    named = named_file(given, environ)
    file = named or Path(FILE_NAME)
    if file.is_file():
        return file
    if named is None or (given is not None and given.is_dir()):
        return None
    raise ValueError(f'{named}: there is no such file; "postroom init" writes one')


def folder_of(file: Path | None, start: Path | None = None) -> Path:
    """What relative paths are relative to: the file's folder, else the working directory."""
    if file is not None:
        return file.absolute().parent
    return start.absolute() if start is not None and start.is_dir() else Path.cwd()


def read_file(file: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises ValueError with file, line and column."""
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(_placed(file, str(error))) from None


def _placed(file: Path, text: str) -> str:
    found = _PLACE.match(text)
    if found is None:
        return f"{file}: {text}"
    if found["line"] is None:
        return f"{file}: {found['what']} at the end of the file"
    return f"{file}, line {found['line']}, column {found['column']}: {found['what']}"


# --------------------------------------------------------------------------- #
# The variables
# --------------------------------------------------------------------------- #


def variables(environ: Mapping[str, str]) -> dict[tuple[str, ...], tuple[str, str]]:
    """What ``POSTROOM_A__B__C`` variables set: path -> (variable, its text).

    Names are read in lower case. Raises ValueError for a name that was meant to
    be one: a forgotten underscore must not send mail to another database.
    """
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX):
            continue
        path = tuple(name[len(PREFIX) :].lower().split("__"))
        if len(path) > 1:
            found.setdefault(path, (name, environ[name]))
        elif (section := path[0].partition("_")[0]) in SECTIONS:
            rest = path[0].removeprefix(section).removeprefix("_").upper()
            meant = f"{PREFIX}{section.upper()}__{rest or 'KEY'}"
            raise ValueError(f"{name}: levels are separated by two underscores: write {meant}")
    return found


def value_of(text: str) -> Any:
    """A variable's text as a value: TOML where it looks like a number, a boolean, an array,
    an inline table or a quoted string; the text itself everywhere else."""
    if not _LOOKS_LIKE_TOML.fullmatch(text.strip()):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# --------------------------------------------------------------------------- #
# The URL
# --------------------------------------------------------------------------- #


def is_reference(url: str) -> bool:
    """Whether the URL stands elsewhere: ``env:NAME`` or ``file:PATH``."""
    return url.startswith(("env:", "file:"))


def url_problem(url: object, *, in_file: bool) -> str | None:
    """What is wrong with the way a URL is given; None if nothing is.

    A password in a file that is copied, committed and attached to tickets is
    refused; in the environment it is where people keep it.
    """
    if not isinstance(url, str) or not url:
        return "is no text: write sqlite:///path/to/file, postgresql://user@host/name or env:NAME"
    if in_file and without_password(url) != url:
        return (
            "holds a password: put the whole URL into a variable or a file of its own "
            'and write "env:NAME" or "file:PATH"'
        )
    return None


def resolve_url(url: str, folder: Path, environ: Mapping[str, str] | None = None) -> str:
    """``url`` without references and relative paths.

    folder: what a relative SQLite path, and a relative ``file:`` reference, is relative to.
    Raises ValueError when a reference leads nowhere.
    """
    if is_reference(url):
        url = _revealed(url, folder, os.environ if environ is None else environ)
    scheme, separator, path = url.partition(":///")
    if not separator or scheme.partition("+")[0] != "sqlite":
        return url
    if not path or path.startswith(("/", ":memory:", "file:", "?")):
        return url
    return f"{scheme}:///{folder / path}"


def without_password(url: str) -> str:
    """``url`` for people's eyes."""
    return _PASSWORD_PARAMETER.sub(r"\g<name>=***", _PASSWORD.sub(r"\g<before>@", url))


def _revealed(reference: str, folder: Path, environ: Mapping[str, str]) -> str:
    kind, _, rest = reference.partition(":")
    if kind == "env":
        if url := environ.get(rest, "").strip():
            return url
        raise ValueError(f"database.url: the environment variable {rest} is not set")
    try:
        url = (folder / rest).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"database.url: the file {rest} cannot be read: {reason}") from None
    if not url:
        raise ValueError(f"database.url: the file {rest} is empty")
    return url
