"""What can be wrong with a rule of periods, with what is asked of it, or with a job."""

from __future__ import annotations

from outbox.errors import OutboxError


class InvalidRule(OutboxError, ValueError):
    """A rule of periods cannot be made, or cannot be used as it is; names the part."""


class InvalidPeriod(OutboxError, ValueError):
    """No period has this label, or lies at this instant; names the form that is wanted."""


class InvalidJob(OutboxError, ValueError):
    """A job cannot be declared so, or not be found; one line that names job and argument."""
