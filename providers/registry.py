"""Providers by name. A provider's module is imported only when an account uses it.

A module is a provider when it has ``Settings``, a subclass of
:class:`providers.settings.AccountSettings`, and ``open_account(name, settings)``.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Protocol, cast

from providers.contract import Provider
from providers.settings import AccountSettings

MODULES: dict[str, str] = {
    "file": "providers.file",
    "memory": "providers.memory",
    "resend": "providers.resend",
    "smtp": "providers.smtp",
}


class Adapter(Protocol):
    """What a provider's module offers."""

    Settings: type[AccountSettings]

    def open_account(self, name: str, settings: AccountSettings) -> Provider: ...


class UnknownProvider(ValueError):
    """No provider has this name; the message lists those that are known."""


def names() -> tuple[str, ...]:
    """The names of all providers, sorted."""
    return tuple(sorted(MODULES))


def settings_type(provider: str) -> type[AccountSettings]:
    """The settings of an account of ``provider``. Raises :class:`UnknownProvider`."""
    return _adapter(provider).Settings


def open_account(name: str, provider: str, settings: AccountSettings) -> Provider:
    """The account ``name`` of ``provider``.

    Raises :class:`UnknownProvider`, TypeError when ``settings`` are those of
    another provider, and ValueError, one line, when a secret cannot be read.
    """
    adapter = _adapter(provider)
    if not isinstance(settings, adapter.Settings):
        raise TypeError(f"account {name}: these are not the settings of provider {provider}")
    return adapter.open_account(name, settings)


def _adapter(provider: str) -> Adapter:
    module = MODULES.get(provider)
    if module is None:
        close = get_close_matches(provider, MODULES, n=1)
        hint = f', did you mean "{close[0]}"? Known' if close else "; known"
        raise UnknownProvider(f'unknown provider "{provider}"{hint} are {", ".join(names())}')
    return cast(Adapter, import_module(module))
