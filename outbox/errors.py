"""What can go wrong for a producer, one class per cure."""

from __future__ import annotations

from datetime import timedelta


class OutboxError(Exception):
    """Base of every error this package raises on purpose."""


class InvalidMessage(OutboxError, ValueError):
    """A field of the message is not usable. ``field`` is its path (``to[1]``)."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidKey(OutboxError, ValueError):
    """A delivery key breaks the grammar of keys."""


class NotInTransaction(OutboxError):
    """The connection would commit the delivery on its own."""


class UnsupportedConnection(OutboxError, TypeError):
    """The object passed as a connection is of no kind this package knows."""


class KeyConflict(OutboxError):
    """The key is known with another message. ``fields`` names what differs."""

    def __init__(self, key: str, message: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.key = key
        self.fields = fields


class RetryTransaction(OutboxError):
    """The database asks for the whole transaction to be run again."""


class SchemaTooOld(OutboxError):
    """The database has not been migrated to what this version needs."""


class SchemaTooNew(OutboxError):
    """The database was migrated by a newer version than this one."""


class InvalidDatabase(OutboxError):
    """The database URL or the database behind it cannot be used; says why."""


class LeaseLost(OutboxError):
    """This attempt does not own its run any more; nothing of its transaction is written."""


class InputChanged(OutboxError):
    """A run that has succeeded was asked for with other inputs.

    ``key`` is the run's, ``fields`` are the inputs that differ, ``was`` and ``now`` the hashes.
    """

    def __init__(self, key: str, message: str, fields: tuple[str, ...], was: str, now: str) -> None:
        super().__init__(message)
        self.key = key
        self.fields = fields
        self.was = was
        self.now = now


class RunNotFinished(OutboxError):
    """The work on a run ended without an error and without ``run.finish``, or with less than
    the run has to have; it is not complete."""


class Permanent(OutboxError):
    """Raised by a job: trying again would not help, so the run fails for good."""


class RetryAfter(OutboxError):
    """Raised by a job: try this run again, but not before ``delay`` has passed.

    ``delay`` is a timedelta; ``reason`` is for people.
    """

    def __init__(self, delay: timedelta, reason: str = "") -> None:
        super().__init__(reason or f"to be tried again in {delay}")
        self.delay = delay
        self.reason = reason
