"""What is explored: every kind of provider under every policy, and where a short run begins.

All that can happen within five steps of an enqueue is little of what can go wrong. So a short
run starts over from milestones: states that take many steps to reach and that most of the rules
are about.
"""

from __future__ import annotations

from dataclasses import dataclass

from outbox.states import WhenUnsure
from tests.explorer.world import KINDS, Setting

SETTINGS = (
    *(Setting(kind, policy) for kind in KINDS for policy in WhenUnsure),
    Setting("key", WhenUnsure.HOLD, recipients=2),
    Setting("neither", WhenUnsure.SEND_AGAIN, recipients=2),
)
WITH_PEOPLE = (
    Setting("key", WhenUnsure.HOLD, people=True),
    Setting("neither", WhenUnsure.HOLD, people=True),
    Setting("look-up", WhenUnsure.SEND_AGAIN, people=True),
)

_SENT = ("A claims", "A, attempt 1 marks", "A, attempt 1 sends; the provider takes it")
_LAPSED = (*_SENT, "60 s pass: the lease's end", "B sweeps")
_IN_DOUBT = (*_SENT, "A, attempt 1 gets no answer")
_LATE = (
    *_SENT[:2],
    "A, attempt 1 sends; the provider will get it late",
    "A, attempt 1 gets no answer",
)
_TWO = ("A claims", "60 s pass: the lease's end", "B sweeps", "B claims")


@dataclass(frozen=True, slots=True)
class Milestone:
    """A state by the steps that lead to it, and how many steps from it a short run goes."""

    name: str
    via: tuple[str, ...]
    depth: int = 3


MILESTONES = (
    Milestone("one delivery is due", ()),
    Milestone("taken, and no answer came", _IN_DOUBT),
    Milestone("taken, and the dispatcher stopped past its lease", _LAPSED, depth=2),
    Milestone("no answer came, and the message is on its way", _LATE),
    Milestone("stopped before its mark, and claimed by the other", _TWO, depth=2),
)
VERB_MILESTONES = (
    Milestone("taken, no answer came, a person may act", _IN_DOUBT, depth=2),
    Milestone("no answer came, and the message is on its way", (*_LATE, "A claims"), depth=2),
    Milestone("being sent", _SENT, depth=2),
    Milestone(
        "refused",
        (*_SENT[:2], "A, attempt 1 sends; the provider rejects it", "A, attempt 1 gets Rejected"),
        depth=2,
    ),
)
"""Where what a person types matters most."""
MIXED = tuple(
    Setting(kind, WhenUnsure.HOLD, recipients=2, mixed=True) for kind in ("key", "neither")
)
_PARTLY = "A, attempt 1 sends; the provider refuses it, but takes it for ana@example.org"
_BARELY = "A, attempt 1 sends; the provider takes it, and does not know of ben@example.org"
MIXED_MILESTONES = (
    Milestone("taken for one, refused as a whole, told late", (*_SENT[:2], _PARTLY), depth=4),
    Milestone("taken for both, known of one", (*_SENT[:2], _BARELY), depth=4),
)
"""Where an answer for each recipient by itself matters most."""
