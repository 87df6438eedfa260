"""What is wrong with a job, a rule or a label that was typed, as wrong usage: one clear line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.cli.options import WrongUsage


@contextmanager
def told_clearly() -> Iterator[None]:
    """Turn InvalidJob, InvalidRule and InvalidPeriod into WrongUsage."""
    from outbox.jobs.errors import InvalidJob, InvalidPeriod, InvalidRule

    try:
        yield
    except (InvalidJob, InvalidPeriod, InvalidRule) as error:
        raise WrongUsage(" ".join(str(error).split())) from None


def needed(reason: str | None) -> str:
    """The reason of what somebody does. Raises WrongUsage without one."""
    if reason and reason.strip():
        return reason
    raise WrongUsage("--reason is missing: say why; it goes into the audit trail")
