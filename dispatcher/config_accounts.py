"""``[accounts.NAME]``: what every account has, and what its provider adds.

The keys that are not ours are checked by the provider's own ``Settings``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from dispatcher.backoff import RetryPolicy
from dispatcher.config_file import Document, Problem
from dispatcher.config_models import AccountHead, Defaults
from dispatcher.config_problems import keys_of, problem, validated
from outbox.states import WhenUnsure
from providers import registry
from providers.contract import Capabilities
from providers.settings import AccountSettings, Secret

ACCOUNT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
DEFAULT_ACCOUNTS: Mapping[str, Any] = {"main": {"provider": "file"}}
"""What is configured where no account is: mail goes into a folder, to nobody."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account. ``when_unsure`` is its own, else that of ``[defaults]``; paths in
    ``settings`` are absolute."""

    name: str
    provider: str
    when_unsure: WhenUnsure
    retry: RetryPolicy
    settings: AccountSettings
    evidence_wait: timedelta = timedelta(minutes=15)
    replay_margin: timedelta = timedelta(minutes=5)
    assume_absent_after: timedelta | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What its provider offers."""
        return capabilities(self.provider)


def capabilities(provider: str) -> Capabilities:
    """What a provider offers. Raises UnknownProvider."""
    registry.settings_type(provider)
    module = import_module(registry.MODULES[provider])
    found: Capabilities = getattr(module, "CAPABILITIES", None) or Capabilities()
    return found


def accounts(document: Document, defaults: Defaults) -> tuple[dict[str, Account], list[Problem]]:
    tables = document.values.get("accounts", DEFAULT_ACCOUNTS)
    if not isinstance(tables, Mapping):
        return {}, [problem(document, ("accounts",), "is not a table: write [accounts.NAME]")]
    found_accounts: dict[str, Account] = {}
    problems: list[Problem] = []
    for name, table in tables.items():
        account, found = _account(name, table, document, defaults)
        problems += found
        if account is not None:
            found_accounts[name] = account
    return found_accounts, problems


def _account(
    name: str, table: Any, document: Document, defaults: Defaults
) -> tuple[Account | None, list[Problem]]:
    path = ("accounts", name)
    if not ACCOUNT_NAME.fullmatch(name):
        text = (
            "is no account's name: a-z, 0-9, _ and -, at most 64, beginning with a letter or digit"
        )
        return None, [problem(document, path, text)]
    if not isinstance(table, Mapping):
        return None, [problem(document, path, f"is not a table: write [accounts.{name}]")]
    own = keys_of(AccountHead)
    given = {key: table[key] for key in own if key in table}
    head, problems = validated(AccountHead, given, path, document)
    provider = given.get("provider")
    if not isinstance(provider, str):
        return None, problems
    try:
        kind = registry.settings_type(provider)
    except registry.UnknownProvider as error:
        return None, [*problems, problem(document, (*path, "provider"), str(error))]
    rest = {key: value for key, value in table.items() if key not in own}
    settings, found = validated(kind, rest, path, document, also=own)
    problems += found
    if head is None or settings is None:
        return None, problems
    policy = RetryPolicy(
        head.retry.attempts, head.retry.window, head.retry.first_delay, head.retry.max_delay
    )
    account = Account(
        name,
        provider,
        head.when_unsure or defaults.when_unsure,
        policy,
        anchored(settings, document.folder),
        head.evidence_wait,
        head.replay_margin,
        head.assume_absent_after,
    )
    return account, problems


def anchored(settings: AccountSettings, folder: Path) -> AccountSettings:
    """``settings`` with every relative path, and every ``file:`` reference, made absolute."""
    changed: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if (placed := _anchored(value, folder)) is not value:
            changed[name] = placed
    return settings.model_copy(update=changed) if changed else settings


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, Path) and not value.is_absolute():
        return folder / value
    if isinstance(value, Secret) and value.reference.startswith("file:"):
        path = Path(value.reference.removeprefix("file:"))
        return value if path.is_absolute() else Secret(f"file:{folder / path}")
    if isinstance(value, list | tuple):
        return type(value)(_anchored(each, folder) for each in value)
    return value
