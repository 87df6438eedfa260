"""What is explored: every kind of provider under every policy, and where a short run begins.

All that can happen within five steps of an enqueue is little of what can go wrong. So a short
run starts over from milestones: states that take many steps to reach and that most of the rules
are about.
"""

from __future__ import annotations

from outbox.states import WhenUnsure
from tests.explorer.world import KINDS, Setting

SETTINGS = (
    *(Setting(kind, policy) for kind in KINDS for policy in WhenUnsure),
    Setting("key", WhenUnsure.HOLD, recipients=2),
    Setting("neither", WhenUnsure.SEND_AGAIN, recipients=2),
)

_SENT = ("A claims", "A, attempt 1 marks", "A, attempt 1 sends; the provider takes it")
_LAPSED = (*_SENT, "60 s pass: the lease's end", "B sweeps")
_IN_DOUBT = (*_SENT, "A, attempt 1 gets no answer")
MILESTONES: dict[str, tuple[str, ...]] = {
    "one delivery is due": (),
    "taken, and no answer came": _IN_DOUBT,
    "taken, and the dispatcher stopped past its lease": _LAPSED,
    "on its way while the answer is waited for": (
        *_SENT[:2],
        "A, attempt 1 sends; the provider will get it late",
        "A, attempt 1 gets no answer",
    ),
    "stopped before its mark, and claimed by the other": (
        "A claims",
        "60 s pass: the lease's end",
        "B sweeps",
        "B claims",
    ),
}
"""Named states by the steps that lead to them."""
