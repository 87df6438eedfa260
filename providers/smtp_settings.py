"""The settings of one SMTP account."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from providers.addresses import ascii_address
from providers.settings import AccountSettings, Duration, Secret, is_loopback

TlsMode: TypeAlias = Literal["starttls", "implicit", "none"]

PORTS: dict[str, int] = {"starttls": 587, "implicit": 465, "none": 25}
"""RFC 6409 (587), RFC 8314 (465), RFC 5321 (25)."""

_HOST = re.compile(r"[0-9A-Za-z_.:\-]+")
_HELO = re.compile(r"[0-9A-Za-z_.\-]+|\[[0-9A-Za-z.:]+\]")


def _some_time(value: timedelta) -> timedelta:
    if not value:
        raise ValueError('is no time at all; write a duration like "10s"')
    return value


Positive = Annotated[Duration, AfterValidator(_some_time)]


class Timeouts(AccountSettings):
    """How long each step may take.

    RFC 5321 4.5.3.2 asks for 5 minutes per command and 10 for the reply to the
    final dot: a shorter wait there turns slow acceptances into doubt.
    """

    connect: Positive = timedelta(seconds=10)
    command: Positive = timedelta(minutes=5)
    final_reply: Positive = timedelta(minutes=10)


class Settings(AccountSettings):
    """One SMTP account.

    ``tls`` is ``starttls`` (required, not opportunistic), ``implicit`` or
    ``none``; left out it is ``none`` for this machine and ``starttls`` for any
    other. ``port`` follows ``tls``. ``keep_alive`` is how long an unused
    connection stays open; servers allow 5 minutes by RFC 5321 4.5.3.2.7, many
    only one.
    """

    host: str
    tls: TlsMode = "starttls"
    port: int = Field(default=587, ge=1, le=65535)
    ca_file: Path | None = None
    username: Annotated[Secret | str, Field(union_mode="left_to_right")] | None = None
    password: Secret | None = None
    helo: str | None = None
    envelope_sender: str | None = None
    connections: int = Field(default=10, ge=1, le=1000)
    messages_per_connection: int = Field(default=100, ge=1)
    keep_alive: Duration = timedelta(seconds=30)
    timeouts: Timeouts = Timeouts()

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        host, filled = data.get("host"), dict(data)
        if filled.get("tls") is None:
            filled["tls"] = "none" if isinstance(host, str) and is_loopback(host) else "starttls"
        if filled.get("port") is None:
            filled["port"] = PORTS.get(str(filled["tls"]), PORTS["starttls"])
        return filled

    @field_validator("host")
    @classmethod
    def _host(cls, value: str) -> str:
        if not _HOST.fullmatch(value):
            raise ValueError("write a host name or an address, without scheme, port or brackets")
        return value

    @field_validator("helo")
    @classmethod
    def _helo(cls, value: str | None) -> str | None:
        if value is not None and not _HELO.fullmatch(value):
            raise ValueError('write a host name, or an address in brackets: "[192.0.2.1]"')
        return value

    @field_validator("envelope_sender")
    @classmethod
    def _envelope_sender(cls, value: str | None) -> str | None:
        if value:
            ascii_address(value, smtputf8=True, field="envelope_sender")
        return value

    @field_validator("username")
    @classmethod
    def _username(cls, value: Secret | str | None) -> Secret | str | None:
        if value == "":
            raise ValueError("is empty; leave username and password out to send without a login")
        return value

    @model_validator(mode="after")
    def _login(self) -> Settings:
        if (self.username is None) != (self.password is None):
            given, missing = ("username", "password")
            if self.username is None:
                given, missing = missing, given
            raise ValueError(f"{given} is set but {missing} is not; give both or neither")
        if self.username is not None and self.tls == "none" and not is_loopback(self.host):
            raise ValueError(
                'tls = "none" would send the password in the clear; write "starttls" or "implicit"'
            )
        return self

    def login_name(self) -> str | None:
        """The user name, read if it is a reference; None without a login.

        Raises ValueError with one line when the reference leads nowhere.
        """
        return self.username.reveal() if isinstance(self.username, Secret) else self.username
