"""The configuration as ``postroom config show`` and ``config check`` report it. No printing.

Nothing here gives a secret away: references are shown as they are written, a
URL from a variable without its password, and checking a secret only says
whether it could be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dispatcher.config import Account, Config
from dispatcher.config_file import ConfigError, KeyPath, Problem, dotted
from dispatcher.unsafe import AccountTimes, Finding, LoopTimes, findings
from outbox.settings import without_password
from providers.settings import Secret, format_duration

WITHOUT_TIMEOUTS = timedelta(seconds=60)
"""The longest send of a provider that has no time-outs to set."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value: ``value`` is a text, number, boolean, list or None."""

    key: str
    value: Any
    source: str


def sources(config: Config) -> tuple[Setting, ...]:
    """Every effective value and where it came from: the file, a variable, or the default."""
    found = [
        Setting(dotted(path), _shown(value), config.document.source(path))
        for path, value in _values(config)
    ]
    return tuple(found)


def _values(config: Config) -> Iterator[tuple[KeyPath, Any]]:
    yield from _leaves(("database",), config.database)
    yield from _leaves(("defaults",), config.defaults)
    yield from _leaves(("dispatcher",), config.dispatcher)
    yield from _leaves(("jobs",), config.jobs)
    yield from _leaves(("web",), config.web)
    for name, account in config.accounts.items():
        path = ("accounts", name)
        yield (*path, "provider"), account.provider
        yield (*path, "when_unsure"), account.when_unsure
        yield from _leaves(path, account.settings)
        retry = account.retry
        yield (*path, "retry", "attempts"), retry.attempts
        yield (*path, "retry", "window"), retry.window
        yield (*path, "retry", "first_delay"), retry.first_delay
        yield (*path, "retry", "max_delay"), retry.max_delay
        yield (*path, "evidence_wait"), account.evidence_wait
        yield (*path, "replay_margin"), account.replay_margin
        yield (*path, "assume_absent_after"), account.assume_absent_after


def _leaves(path: KeyPath, model: BaseModel) -> Iterator[tuple[KeyPath, Any]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        here = (*path, field.alias or name)
        if isinstance(value, BaseModel):
            yield from _leaves(here, value)
        else:
            yield here, value


def _shown(value: Any) -> Any:
    match value:
        case timedelta():
            return format_duration(value)
        case Secret() | Path():
            return str(value)
        case str():
            return without_password(str(value))
        case list() | tuple():
            return [_shown(each) for each in value]
        case Mapping():
            return {str(key): _shown(each) for key, each in value.items()}
        case _:
            return value


# --------------------------------------------------------------------------- #
# Checking
# --------------------------------------------------------------------------- #


def unreadable(config: Config) -> list[Problem]:
    """References of the database and the accounts that lead nowhere, here and now."""
    problems: list[Problem] = []
    try:
        config.database_url()
    except ConfigError as error:
        problems += error.problems
    for name, account in config.accounts.items():
        problems += _unreadable_secrets(("accounts", name), account.settings, config)
        problems += _missing_files(name, account, config)
    return problems


def unreadable_web(config: Config) -> list[Problem]:
    """The same of ``[web]``: no other process needs its secrets, or should have them."""
    return list(_unreadable_secrets(("web",), config.web, config))


def _unreadable_secrets(path: KeyPath, value: Any, config: Config) -> Iterator[Problem]:
    for where, secret in _secrets(path, value):
        try:
            secret.reveal()
        except ValueError as error:
            yield Problem(dotted(where), str(error), config.document.variable(where))


def _missing_files(name: str, account: Account, config: Config) -> Iterator[Problem]:
    """Files that a provider reads (``ca_file``), where they cannot be read."""
    for field in type(account.settings).model_fields:
        file = getattr(account.settings, field)
        if field.endswith("_file") and isinstance(file, Path) and not os.access(file, os.R_OK):
            path = ("accounts", name, field)
            text = f"{file} is not there or cannot be read"
            yield Problem(dotted(path), text, config.document.variable(path))


def unfit_for_production(config: Config) -> list[Problem]:
    """Why mail that nobody said more about would reach nobody."""
    account = config.accounts[config.defaults.account]
    if account.capabilities.delivers:
        return []
    text = (
        f'"{account.name}" is the default account, and its provider ({account.provider}) '
        "delivers to nobody: configure one that does"
    )
    return [Problem("defaults.account", text, config.document.variable(("defaults", "account")))]


def warnings(config: Config) -> list[Problem]:
    """Pairs of values that cannot be safe, or do not do what somebody may expect of them."""
    return [
        Problem(each.key, each.text, config.document.variable(tuple(each.key.split("."))))
        for each in unsafe_pairs(config)
    ]


def unsafe_pairs(config: Config, *accounts: str) -> tuple[Finding, ...]:
    """The findings of :mod:`dispatcher.unsafe`, for these accounts; for all if none is named."""
    loop = config.dispatcher
    return findings(
        LoopTimes(loop.lease, loop.poll_interval, loop.shutdown_grace),
        *(account_times(config.accounts[name]) for name in accounts or config.accounts),
    )


def account_times(account: Account) -> AccountTimes:
    """The times of one account, without opening it: its secrets may be elsewhere."""
    return AccountTimes(
        name=account.name,
        capabilities=account.capabilities,
        retry_attempts=account.retry.attempts,
        retry_window=account.retry.window,
        replay_margin=account.replay_margin,
        evidence_wait=account.evidence_wait,
        assume_absent_after=account.assume_absent_after,
        when_unsure=account.when_unsure,
        longest_send=_longest_send(account),
        longest_answer=_longest_answer(account),
    )


def _longest_send(account: Account) -> timedelta:
    """``longest_send`` of the account's provider: after the mark one more step may take its
    time-out before the answer is waited for."""
    timeouts = getattr(account.settings, "timeouts", None)
    before = getattr(timeouts, "command", None) or getattr(timeouts, "connect", None)
    answer = _longest_answer(account)
    return WITHOUT_TIMEOUTS if answer is None else (before or timedelta()) + answer


def _longest_answer(account: Account) -> timedelta | None:
    """How long the provider may take to answer once it has the whole message."""
    timeouts = getattr(account.settings, "timeouts", None)
    for name in ("final_reply", "total"):
        value = getattr(timeouts, name, None)
        if isinstance(value, timedelta):
            return value
    return None


def _secrets(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Secret]]:
    match value:
        case Secret():
            yield path, value
        case BaseModel():
            for name in type(value).model_fields:
                yield from _secrets((*path, name), getattr(value, name))
        case list() | tuple():
            for index, each in enumerate(value):
                yield from _secrets((*path, index), each)
        case _:
            pass
