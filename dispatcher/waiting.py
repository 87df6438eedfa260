"""Why a ``pending`` row is not being sent this instant. Pure.

One word per situation, because they call for different people: rows that wait
for a ``slot`` want more dispatchers, for their ``schedule`` nobody, for a
``retry`` patience, for their ``account`` somebody who looks after it.
"""

from __future__ import annotations

from outbox.states import WaitingFor


def waiting_for(*, due: bool, attempted: bool, account_paused: bool) -> WaitingFor:
    """What a pending row waits for.

    due: its time (``due_at``) has come.
    attempted: it was claimed before, so a time in the future is a retry's.
    account_paused: its account as a whole is paused at this instant. A row whose
      own time has not come waits for that first.
    """
    if not due:
        return WaitingFor.RETRY if attempted else WaitingFor.SCHEDULE
    return WaitingFor.ACCOUNT if account_paused else WaitingFor.SLOT
