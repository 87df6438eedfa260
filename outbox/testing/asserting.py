"""Assertions about what was enqueued, that show what was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from outbox import connections
from outbox.deliveries import Delivery
from outbox.testing import looking, matching
from outbox.testing.matching import Wanted


def assert_enqueued(
    connection: Any, *, times: int | None = None, **wanted: Unpack[Wanted]
) -> Delivery:
    """A delivery with these fields was enqueued; the first such one is returned.

    connection: what :func:`outbox.enqueue` takes, on any database; what its transaction has
      written counts.
    times: how many such deliveries there have to be; left out, one or more.

    Values are equal, or patterns that are found in the text, or functions that accept it.
    Addresses come in any order, and with a name only where one is given.

    Raises AssertionError, which shows what was enqueued and which fields differ; TypeError for
    a field that no delivery has.
    """
    __tracebackhide__ = True
    found = connections.run(connection, looking.deliveries, writes=False)
    return chosen(found, wanted, times=times)


def chosen(found: Sequence[Delivery], wanted: Mapping[str, Any], *, times: int | None) -> Delivery:
    """The first of ``found`` that is as ``wanted``; see :func:`assert_enqueued`."""
    __tracebackhide__ = True
    if names := [name for name in wanted if name not in matching.FIELDS]:
        raise TypeError(matching.unknown(names))
    if times is not None and times < 1:
        raise ValueError("times is a number from 1 on; for none, use nothing_enqueued()")
    fits = [each for each in found if not matching.differences(each, wanted)]
    if not fits:
        raise AssertionError(matching.found_none(wanted, found))
    if times not in {None, len(fits)}:
        raise AssertionError(matching.found_others(wanted, fits, times or 0))
    return fits[0]


def none_of(found: Sequence[Delivery]) -> bool:
    """True if nothing was enqueued. Raises AssertionError, which shows what was."""
    __tracebackhide__ = True
    if found:
        raise AssertionError(matching.something(found))
    return True
