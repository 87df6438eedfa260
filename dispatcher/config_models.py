"""The tables of the configuration file, as pydantic checks them."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from dispatcher.listen_address import host_and_port
from outbox.addresses import mailbox
from outbox.errors import InvalidMessage
from outbox.settings import DEFAULT_URL
from outbox.states import WhenUnsure
from providers.settings import Duration, Secret, format_duration

_SCHEMA_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,63}")


class Section(BaseModel):
    """Base of every table: unknown keys are refused, values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _between(shortest: timedelta, longest: timedelta, value: timedelta) -> timedelta:
    if shortest <= value <= longest:
        return value
    bound = f"at least {format_duration(shortest)}"
    if value > longest:
        bound = f"at most {format_duration(longest)}"
    raise ValueError(f"is {format_duration(value)}; {bound}")


def _from_to(shortest: timedelta, longest: timedelta) -> AfterValidator:
    return AfterValidator(partial(_between, shortest, longest))


_Lease = Annotated[Duration, _from_to(timedelta(seconds=5), timedelta(hours=1))]
_Poll = Annotated[Duration, _from_to(timedelta(milliseconds=50), timedelta(minutes=10))]
_Grace = Annotated[Duration, _from_to(timedelta(0), timedelta(hours=1))]
_Delay = Annotated[Duration, _from_to(timedelta(milliseconds=100), timedelta(days=7))]
_Window = Annotated[Duration, _from_to(timedelta(seconds=1), timedelta(days=365))]


def _dotted_name(value: str) -> str:
    if all(part.isidentifier() for part in value.split(".")):
        return value
    raise ValueError('is no module: write its name like "myapp.jobs"')


def _address(value: str) -> str:
    try:
        return str.__str__(mailbox("alerts_to", value))
    except InvalidMessage as error:
        raise ValueError(error.problem) from None


def _listen_address(value: str) -> str:
    host_and_port(value)
    return value


_Module = Annotated[str, AfterValidator(_dotted_name)]
_Address = Annotated[str, AfterValidator(_address)]
_Listen = Annotated[str, AfterValidator(_listen_address)]


class Database(Section):
    """``[database]``. ``url`` may be a reference; ``Config.database_url`` resolves it."""

    url: str = DEFAULT_URL
    schema_name: str | None = Field(default=None, alias="schema")

    @field_validator("schema_name")
    @classmethod
    def _schema(cls, value: str | None) -> str | None:
        if value is not None and not _SCHEMA_NAME.fullmatch(value):
            raise ValueError("is no schema's name: 1 to 63 characters, no control characters")
        return value


class Defaults(Section):
    """``[defaults]``: what a delivery gets when its producer does not say."""

    account: str = "main"
    sender: str | None = Field(default=None, alias="from")
    when_unsure: WhenUnsure = WhenUnsure.HOLD

    @field_validator("sender")
    @classmethod
    def _sender(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            return str.__str__(mailbox("from", value))
        except InvalidMessage as error:
            raise ValueError(error.problem) from None


class Dispatcher(Section):
    """``[dispatcher]``."""

    lease: _Lease = timedelta(seconds=60)
    poll_interval: _Poll = timedelta(seconds=1)
    concurrency: int = Field(default=100, ge=1, le=10_000)
    shutdown_grace: _Grace = timedelta(seconds=30)

    @model_validator(mode="after")
    def _polls_within_a_lease(self) -> Dispatcher:
        if self.poll_interval >= self.lease:
            raise ValueError(
                f"poll_interval ({format_duration(self.poll_interval)}) must be shorter than "
                f"lease ({format_duration(self.lease)})"
            )
        return self


class Jobs(Section):
    """``[jobs]``: where jobs are declared, and how a process works on them."""

    modules: tuple[_Module, ...] = ()
    concurrency: int = Field(default=4, ge=1, le=1_000)
    alerts_to: tuple[_Address, ...] = ()
    poll_interval: _Poll = timedelta(seconds=1)
    shutdown_grace: _Grace = timedelta(seconds=30)


class WebPublic(Section):
    """``[web.public]``: what may be reached from anywhere, each route with its own proof."""

    listen: _Listen = "127.0.0.1:8026"
    tick_token: Secret | None = None


class Web(Section):
    """``[web]``: a table for each listener of ``postroom web``."""

    public: WebPublic = WebPublic()


class Retry(Section):
    """``retry`` of an account; :class:`dispatcher.backoff.RetryPolicy` says what it does."""

    attempts: int = Field(default=50, ge=1, le=1000)
    window: _Window = timedelta(hours=24)
    first_delay: _Delay = timedelta(seconds=5)
    max_delay: _Delay = timedelta(hours=1)

    @model_validator(mode="after")
    def _delays_grow(self) -> Retry:
        if self.first_delay > self.max_delay:
            raise ValueError(
                f"first_delay ({format_duration(self.first_delay)}) must not be longer than "
                f"max_delay ({format_duration(self.max_delay)})"
            )
        return self


class AccountHead(Section):
    """What every account can set, whatever its provider."""

    provider: str
    when_unsure: WhenUnsure | None = None
    retry: Retry = Retry()
    evidence_wait: _Window = timedelta(minutes=15)
    replay_margin: _Window = timedelta(minutes=5)
    assume_absent_after: _Window | None = None
