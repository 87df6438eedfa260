"""One attempt's leave to send: the mark, and the last look before bytes leave.

Between the mark's commit and the first byte lie a queue in this process and a
socket that may block; between the first and the last byte lies a whole
transfer. So what the mark checked at the database is checked again here,
without I/O, against the instant the mark returned plus this process's own
elapsed time: ``send_before``, and the lease as far as this process knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from dispatcher.clock import running
from dispatcher.rounds import Rounds
from outbox.records import Claimed, Mark, Refused
from providers.contract import Message, Withheld, digest


class SendPermit:
    """The permit of one claimed delivery; see :class:`providers.contract.Permit`."""

    def __init__(
        self,
        claimed: Claimed,
        message: Message,
        rounds: Rounds,
        stopping: Callable[[], bool],
        *,
        longest_send: timedelta = timedelta(),
        keep: Callable[[bytes], bytes] | None = None,
        latest_end: datetime | None = None,
    ) -> None:
        """``keep`` makes a request storable, for accounts that replay; ``latest_end`` is the
        instant before which a replay has to end."""
        self._claimed = claimed
        self._longest_send = longest_send
        self._keep = keep
        self._latest_end = latest_end
        self._message = message
        self._rounds = rounds
        self._stopping = stopping
        self._latest: float | None = None
        self._started = False
        self.marked = False

    async def transmitting(self, recipients: Sequence[str], request: bytes) -> None:
        """Commit that bytes may leave. Raises Withheld when the mark was refused."""
        if self._stopping():
            raise Withheld("shutdown")
        wanted = set(recipients)
        positions = [r.position for r in self._claimed.for_recipients if r.address in wanted]
        asked = running()
        answer = await self._rounds.mark(
            Mark(
                self._claimed.id,
                self._claimed.attempt,
                self._claimed.token,
                tuple(positions),
                self._message.idempotency_key,
                digest(request),
                deadline=self._longest_send,
                kept=None if self._keep is None else self._keep(request),
                extra=self._claimed.extra,
            )
        )
        if isinstance(answer, Refused):
            raise Withheld(answer.reason)
        self.marked = True
        ends = [self._claimed.send_before]
        if self._latest_end is not None:
            ends.append(self._latest_end - self._longest_send)
        for end in ends:
            if end is not None:
                latest = asked + (end - answer.at).total_seconds()
                self._latest = min(latest, self._latest or latest)

    def check(self) -> None:
        """Raises Withheld unless bytes may leave at this instant.

        A stopping process starts no message any more; one that is on its way is
        finished.
        """
        now = running()
        if now >= self._rounds.lease_deadline(self._claimed):
            raise Withheld("lease")
        if self._latest is not None and now >= self._latest:
            raise Withheld("too_late")
        if not self._started and self._stopping():
            raise Withheld("shutdown")
        self._started = True
