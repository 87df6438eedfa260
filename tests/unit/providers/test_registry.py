"""Providers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from providers import file, memory, registry
from providers.contract import Provider
from providers.settings import AccountSettings

SETTINGS: dict[str, dict[str, object]] = {
    "file": {},
    "memory": {},
    "resend": {"api_key": "env:RESEND_API_KEY"},
    "smtp": {"host": "127.0.0.1", "port": 2525},
}


def test_the_names_are_those_of_the_adapters() -> None:
    """Every adapter has a name, and the list is sorted."""
    assert registry.names() == ("file", "memory", "resend", "smtp")
    assert set(SETTINGS) == set(registry.names())


@pytest.mark.parametrize("provider", sorted(SETTINGS))
def test_every_adapter_opens_an_account(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module has the attributes that the registry expects, and opens without a network."""
    monkeypatch.setenv("RESEND_API_KEY", "re_example_KEY_123")
    kind = registry.settings_type(provider)
    assert issubclass(kind, AccountSettings)
    account = registry.open_account("main", provider, kind.model_validate(SETTINGS[provider]))
    assert isinstance(account, Provider)
    assert account.name == "main"
    assert account.identity.startswith(f"{provider}:")


def test_an_unknown_provider_is_one_line_that_lists_the_known() -> None:
    """The error names what was asked for, the nearest name and all names."""
    with pytest.raises(registry.UnknownProvider) as caught:
        registry.settings_type("smpt")
    assert str(caught.value) == (
        'unknown provider "smpt", did you mean "smtp"? Known are file, memory, resend, smtp'
    )
    with pytest.raises(registry.UnknownProvider) as caught:
        registry.open_account("main", "pigeon", file.Settings())
    assert str(caught.value) == 'unknown provider "pigeon"; known are file, memory, resend, smtp'


def test_settings_of_another_provider_are_refused() -> None:
    """An account is never opened with settings that were checked for another adapter."""
    with pytest.raises(TypeError, match="account main: these are not the settings"):
        registry.open_account("main", "file", memory.Settings())


def test_a_module_is_imported_only_when_it_is_used() -> None:
    """Asking for the file provider loads neither httpx nor aiosmtplib."""
    script = (
        "import sys; from providers import registry; registry.settings_type('file');"
        "print([m for m in ('httpx', 'aiosmtplib', 'providers.resend') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
