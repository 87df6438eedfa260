"""The modelled provider: whatever an honest one of its kind may do with what reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outbox.records import Mark
from providers.contract import (
    Absent,
    Accepted,
    AccountBlocked,
    Capabilities,
    Duplicate,
    Finding,
    Found,
    InDoubt,
    InFlight,
    KeyMismatch,
    Outcome,
    Rejected,
    Result,
    Throttled,
    Unavailable,
    Unknown,
)
from tests.explorer.world import DRAIN, Copy, Flying, Truth

REFUSALS: dict[str, Outcome] = {
    "rejects it": Rejected("no such user", "550"),
    "throttles": Throttled(30.0),
    "is unavailable": Unavailable("451 later"),
    "blocks the account": AccountBlocked("credentials", "401"),
}
"""Answers that prove that this request was not taken."""
LOST = InDoubt("no answer")


@dataclass(frozen=True, slots=True)
class Reply:
    """What may come of one request: what is true afterwards, and the answer that is on its way
    (None: none yet)."""

    label: str
    truth: Truth
    result: Result | None


class Provider:
    """One account at one kind of provider; knows the truth and forgets what it says it forgets."""

    name = "main"
    identity = "explorer:main"

    def __init__(
        self, capabilities: Capabilities, longest_send: float, *, mixed: bool = False
    ) -> None:
        self.capabilities = capabilities
        self.longest_send = longest_send
        self.mixed = mixed
        self.refusals = dict(REFUSALS)

    async def send(self, message: object, permit: object) -> Result:
        raise NotImplementedError("what is sent is decided step by step")

    async def aclose(self) -> None:
        raise NotImplementedError

    def replies(
        self, truth: Truth, mark: Mark, addresses: list[str], now: float
    ) -> Iterator[Reply]:
        """Everything that may become of the request of ``mark``, which leaves now."""
        key, digest = mark.idempotency_key, mark.request_digest
        known = self._known(truth, key, now)
        if known is None:
            taken, id_ = self._taken(truth, mark.attempt, mark.recipients, key, digest, now)
            yield Reply("takes it", taken, Result(Accepted(id_)))
            if len(addresses) > 1:
                yield from self._in_part(truth, mark, addresses, now)
        elif known.digest != digest:
            yield Reply("has another body under the key", truth, Result(KeyMismatch()))
        elif self.capabilities.replay == "same_response":
            yield Reply("answers again", truth, Result(Accepted(known.id, replayed=True)))
        else:
            yield Reply("calls it a duplicate", truth, Result(Duplicate("known")))
        if self._keyed and (known is not None or any(f.key == key for f in truth.flying)):
            yield Reply("is still working on the key", truth, Result(InFlight(10.0)))
        for label, outcome in self.refusals.items():
            yield Reply(label, truth, Result(outcome))
        yield Reply("never gets it", truth, Result(LOST))
        leaving = Flying(mark.attempt, mark.recipients, key, digest, now + DRAIN)
        yield Reply("will get it late", replace(truth, flying=(*truth.flying, leaving)), None)

    def arrived(self, truth: Truth, flying: Flying, now: float) -> tuple[Truth, Result]:
        """What left earlier has arrived: the truth afterwards, and the answer."""
        rest = replace(truth, flying=tuple(f for f in truth.flying if f is not flying))
        known = self._known(truth, flying.key, now)
        if known is not None:
            replayed = self.capabilities.replay == "same_response"
            again = Accepted(known.id, replayed=True)
            return rest, Result(again if replayed else Duplicate("known"))
        taken, id_ = self._taken(
            rest, flying.attempt, flying.positions, flying.key, flying.digest, now
        )
        return taken, Result(Accepted(id_))

    def findings(
        self, truth: Truth, key: str, positions: tuple[int, ...], now: float
    ) -> Iterator[Finding]:
        """What a look-up that is asked now may answer."""
        retention = self.capabilities.look_up_retention
        ours = [
            copy
            for copy in truth.copies
            if set(positions) & set(copy.positions)
            and (self.capabilities.look_up != "by_key" or copy.key == key)
            and (retention is None or now < copy.at + retention)
        ]
        indexed = [copy for copy in ours if now >= copy.at + (self.capabilities.index_lag or 0)]
        if ours:
            yield Found(ours[0].id)
        if not indexed:
            yield Absent()
        yield Unknown("503")

    @property
    def _keyed(self) -> bool:
        return self.capabilities.replay != "none"

    def _known(self, truth: Truth, key: str, now: float) -> Copy | None:
        """What it has taken under a key that it has not forgotten."""
        if not self._keyed:
            return None
        remembered = (
            copy
            for copy in truth.copies
            if copy.key == key and now < copy.at + self.capabilities.key_retention
        )
        return next(remembered, None)

    def _in_part(
        self, truth: Truth, mark: Mark, addresses: list[str], now: float
    ) -> Iterator[Reply]:
        """It takes the message for one recipient and says what becomes of the other."""
        key, digest = mark.idempotency_key, mark.request_digest
        first, second = addresses
        taken, id_ = self._taken(truth, mark.attempt, mark.recipients[:1], key, digest, now)
        for label, outcome in (("refuses", Rejected("no")), ("defers", Unavailable("later"))):
            result = Result(Accepted(id_), recipients={second: outcome})
            yield Reply(f"takes it for {first} and {label} {second}", taken, result)
        if self.mixed:
            result = Result(Rejected("no"), recipients={first: Accepted(id_)})
            yield Reply(f"refuses it, but takes it for {first}", taken, result)
            both, id_ = self._taken(truth, mark.attempt, mark.recipients, key, digest, now)
            result = Result(Accepted(id_), recipients={second: LOST})
            yield Reply(f"takes it, and does not know of {second}", both, result)

    def _taken(
        self,
        truth: Truth,
        attempt: int,
        positions: tuple[int, ...],
        key: str,
        digest: str,
        now: float,
    ) -> tuple[Truth, str]:
        id_ = f"m{len(truth.copies) + 1}"
        copy = Copy(id_, attempt, positions, key, digest, now)
        return replace(truth, copies=(*truth.copies, copy)), id_
