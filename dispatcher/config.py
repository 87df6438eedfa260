"""The configuration: what it may say, and what it then means.

``load()`` reads the file and the variables, checks everything, and raises one
:class:`ConfigError` with every problem, each with its key's path. What it
returns cannot change. Secrets and database URLs are kept as references; they
are read when they are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.config_accounts import DEFAULT_ACCOUNTS, Account
from dispatcher.config_accounts import accounts as configured_accounts
from dispatcher.config_file import ConfigError, Document, Problem, read
from dispatcher.config_models import Database, Defaults, Dispatcher, Jobs, Web
from dispatcher.config_problems import problem, unknown_key, validated
from outbox import settings as outbox_settings
from outbox.database import parse_url
from outbox.errors import InvalidDatabase

__all__ = [
    "Account",
    "Config",
    "ConfigError",
    "Database",
    "Defaults",
    "Dispatcher",
    "Document",
    "Jobs",
    "Problem",
    "Web",
    "load",
]


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that was found to be right. ``document`` is how it was written."""

    document: Document
    database: Database
    defaults: Defaults
    dispatcher: Dispatcher
    accounts: Mapping[str, Account]
    jobs: Jobs = field(default_factory=Jobs)
    web: Web = field(default_factory=Web)

    @property
    def schema(self) -> str | None:
        """The PostgreSQL schema, None for the connection's search path."""
        return self.database.schema_name

    @property
    def file(self) -> Path | None:
        """The file that was read, None without one."""
        return self.document.file

    def database_url(self, environ: Mapping[str, str] | None = None) -> str:
        """The URL, ready to be opened; it may hold a password.

        Raises ConfigError naming the variable or file when a reference leads nowhere,
        or what it leads to is no database's URL.
        """
        given = os.environ if environ is None else environ
        variable = self.document.variable(("database", "url"))
        try:
            url = outbox_settings.resolve_url(self.database.url, self.document.folder, given)
        except ValueError as error:
            text = str(error).removeprefix("database.url: ")
            raise ConfigError([Problem("database.url", text, variable)]) from None
        if problem_text := _unusable(url):
            if outbox_settings.is_reference(self.database.url):
                problem_text = f"{self.database.url} {problem_text}"
            raise ConfigError([Problem("database.url", problem_text, variable)])
        return url


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of this process.

    file: the file that was asked for; left out, ``POSTROOM_CONFIG``, else
      ``postroom.toml`` of the working directory, else the defaults.

    Raises ConfigError with every problem at once.
    """
    document = read(file, environ)
    values = document.values
    problems: list[Problem] = [
        problem(document, (key,), unknown_key(key, outbox_settings.SECTIONS))
        for key in values
        if key not in outbox_settings.SECTIONS
    ]
    database, found = validated(Database, values.get("database", {}), ("database",), document)
    problems += found
    problems += _database_problems(document, {each.key for each in found})
    defaults, found = validated(Defaults, values.get("defaults", {}), ("defaults",), document)
    problems += found
    dispatcher, found = validated(
        Dispatcher, values.get("dispatcher", {}), ("dispatcher",), document
    )
    problems += found
    jobs, found = validated(Jobs, values.get("jobs", {}), ("jobs",), document)
    problems += found
    web, found = validated(Web, values.get("web", {}), ("web",), document)
    problems += found
    accounts, found = configured_accounts(document, defaults or Defaults())
    problems += found
    problems += _default_account(document)
    if problems or not (database and defaults and dispatcher and jobs and web):
        raise ConfigError(problems)
    return Config(document, database, defaults, dispatcher, accounts, jobs, web)


def _database_problems(document: Document, known: set[str]) -> list[Problem]:
    """What no model can say of ``[database]``; nothing about the keys in ``known``."""
    table = document.values.get("database", {})
    if not isinstance(table, Mapping) or "database.url" in known:
        return []
    path = ("database", "url")
    url = table.get("url", outbox_settings.DEFAULT_URL)
    text = outbox_settings.url_problem(url, in_file=not document.variable(path))
    if text is None and not outbox_settings.is_reference(url):
        text = _unusable(url)
    if text is not None:
        return [problem(document, path, text)]
    if table.get("schema") is not None and url.startswith("sqlite"):
        return [problem(document, ("database", "schema"), "SQLite has no schemas: leave it out")]
    return []


def _unusable(url: str) -> str | None:
    """Why no database can be opened with ``url``, without its password."""
    try:
        parse_url(url)
    except InvalidDatabase as error:
        return str(error).removeprefix("the database URL ")
    except ValueError:
        # int() of what stands where a port would be, and that can be part of a password.
        return (
            "cannot be read: the port is no number, or a character in the password is not escaped"
        )
    return None


def _default_account(document: Document) -> list[Problem]:
    table = document.values.get("defaults", {})
    wanted = table.get("account", "main") if isinstance(table, Mapping) else "main"
    named = document.values.get("accounts", DEFAULT_ACCOUNTS)
    if not isinstance(wanted, str) or not isinstance(named, Mapping) or wanted in named:
        return []
    known = ", ".join(sorted(named)) or "none"
    text = f"there is no [accounts.{wanted}]; configured: {known}"
    return [problem(document, ("defaults", "account"), text)]
