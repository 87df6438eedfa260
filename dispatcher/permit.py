"""One attempt's leave to send: the mark, and the last look before bytes leave.

Between the mark's commit and the first byte lie a queue in this process and a
socket that may block; between the first and the last byte lies a whole
transfer. So what the mark checked at the database is checked again here,
without I/O, against the instant the mark returned plus this process's own
elapsed time: ``send_before``, and the lease as far as this process knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from dispatcher.clock import running
from dispatcher.rounds import Rounds
from outbox.records import Claimed, Refused
from providers.contract import Message, Withheld


class SendPermit:
    """The permit of one claimed delivery; see :class:`providers.contract.Permit`."""

    def __init__(
        self, claimed: Claimed, message: Message, rounds: Rounds, stopping: Callable[[], bool]
    ) -> None:
        self._claimed = claimed
        self._message = message
        self._rounds = rounds
        self._stopping = stopping
        self._latest: float | None = None
        self._started = False
        self.marked = False

    async def transmitting(self, recipients: Sequence[str], request_digest: str) -> None:
        """Commit that bytes may leave. Raises Withheld when the mark was refused."""
        if self._stopping():
            raise Withheld("shutdown")
        wanted = set(recipients)
        positions = [r.position for r in self._claimed.open_recipients if r.address in wanted]
        asked = running()
        answer = await self._rounds.mark(
            self._claimed,
            recipients=tuple(positions),
            idempotency_key=self._message.idempotency_key,
            request_digest=request_digest,
        )
        if isinstance(answer, Refused):
            raise Withheld(answer.reason)
        self.marked = True
        send_before = self._claimed.send_before
        if send_before is not None:
            left: timedelta = send_before - answer.at
            self._latest = asked + left.total_seconds()

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
