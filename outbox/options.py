"""What a producer may say about sending, beside the message. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from outbox.characters import check_line
from outbox.errors import InvalidMessage
from outbox.instants import format_instant
from outbox.states import WhenUnsure

IfExists: TypeAlias = Literal["raise", "keep"]

FIRST_YEAR, LAST_YEAR = 1970, 9998
"""Instants outside have no fixed-width form in every time zone."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to send: columns of the row, no part of the message.

    ``run_key`` is not the producer's to say: it is that of the run whose transaction this is.
    """

    account: str
    send_after: datetime | None
    send_before: datetime | None
    when_unsure: str | None
    priority: int
    tenant: str | None
    if_exists: IfExists
    run_key: str | None = None


def options(
    *,
    account: str | None = None,
    send_after: datetime | None = None,
    send_before: datetime | None = None,
    when_unsure: str | None = None,
    priority: int = 0,
    tenant: str | None = None,
    if_exists: IfExists = "raise",
) -> Options:
    """What was given, checked. Raises InvalidMessage with the name of the option."""
    if if_exists not in {"raise", "keep"}:
        raise ValueError(f'if_exists is "raise" or "keep", not {if_exists!r}')
    for name, text, maximum in (("account", account, 64), ("tenant", tenant, 255)):
        if text is not None and not check_line(name, text, maximum):
            raise InvalidMessage(name, "is empty; leave it out instead")
    if type(priority) is not int or not -100 <= priority <= 100:
        raise InvalidMessage("priority", f"{priority!r} is no whole number from -100 to 100")
    if when_unsure is not None and when_unsure not in set(WhenUnsure):
        raise InvalidMessage("when_unsure", f'{when_unsure!r} is neither "hold" nor "send_again"')
    _check_instants(send_after, send_before)
    return Options(account or "", send_after, send_before, when_unsure, priority, tenant, if_exists)


def _check_instants(send_after: datetime | None, send_before: datetime | None) -> None:
    """``send_before`` alone is judged by the database, by its clock, and only for a new key:
    a run that is repeated late asks for what is long there."""
    for name, instant in (("send_after", send_after), ("send_before", send_before)):
        if instant is None:
            continue
        if getattr(instant, "tzinfo", None) is None:
            raise InvalidMessage(name, f"{instant!r} is no datetime with a time zone")
        if not FIRST_YEAR <= instant.year <= LAST_YEAR:
            raise InvalidMessage(name, f"is not in the years {FIRST_YEAR} to {LAST_YEAR}")
    if send_after and send_before and format_instant(send_before) <= format_instant(send_after):
        raise InvalidMessage("send_before", "is not after send_after")
