"""Types that account settings are made of: durations with a unit, secrets by reference."""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainSerializer,
)
from pydantic_core import CoreSchema, core_schema

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: Any) -> timedelta:
    """``"90s"``, ``"15m"``, ``"3d"`` as a timedelta; a bare number is refused.

    Raises ValueError with one line that says what to write instead.
    """
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} has no unit: write a duration like "90s", "15m" or "3d"')
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError:
        raise ValueError(f"{value!r} is longer than any duration can be") from None


def format_duration(value: timedelta) -> str:
    """The shortest text that :func:`parse_duration` reads back to ``value``."""
    seconds = value.total_seconds()
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{int(seconds / _UNITS[unit])}{unit}"
    return f"{seconds:g}s"


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]


def is_loopback(host: str) -> bool:
    """Whether ``host`` names this machine without asking anybody."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Secret:
    """A reference to a secret, ``env:NAME`` or ``file:PATH``; never the secret itself.

    Printing, comparing and serialising show the reference. :meth:`reveal`
    reads the value each time, so that a rotated file is picked up.
    """

    __slots__ = ("reference",)

    def __init__(self, reference: str) -> None:
        kind, _, rest = reference.partition(":")
        if kind not in {"env", "file"} or not rest:
            raise ValueError('a secret is written as a reference: "env:NAME" or "file:PATH"')
        self.reference = reference

    def reveal(self) -> str:
        """The secret, without a trailing line end.

        Raises ValueError with one line naming the variable or file when it is
        not there or empty.
        """
        kind, _, rest = self.reference.partition(":")
        if kind == "env":
            value = os.environ.get(rest)
            if not value:
                raise ValueError(f"the environment variable {rest} is not set")
            return value
        try:
            value = Path(rest).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ValueError(f"the secret file {rest} cannot be read: {reason}") from None
        if not value:
            raise ValueError(f"the secret file {rest} is empty")
        return value

    def __repr__(self) -> str:
        return f"Secret({self.reference!r})"

    def __str__(self) -> str:
        return self.reference

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reference == self.reference

    def __hash__(self) -> int:
        return hash(self.reference)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def build(value: Any) -> Secret:
            if isinstance(value, Secret):
                return value
            if not isinstance(value, str):
                raise ValueError('a secret is written as a reference: "env:NAME" or "file:PATH"')
            return cls(value)

        return core_schema.no_info_plain_validator_function(
            build, serialization=core_schema.to_string_ser_schema()
        )


class AccountSettings(BaseModel):
    """Base of every adapter's settings: unknown keys are refused, values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
