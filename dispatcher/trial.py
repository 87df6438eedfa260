"""``accounts test``: one mail by one account, here and now, to see whether it works.

It is a delivery like any other, with a key of its own, so that it can be read afterwards with
``deliveries show``. It is claimed in the transaction that writes it: no dispatcher can take it
first, and nothing else is taken with it. A pause does not stop it: whoever tests an account
wants to know whether the pause may end.

It is tried once. What is not taken is cancelled, or the test would arrive hours later; what
is in doubt stays in doubt, and the dispatchers settle it. Should this process die, its lease
lapses like any other.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import decide
from dispatcher.clock import running
from dispatcher.config import Account, Config
from dispatcher.envelope import envelope, parsed
from dispatcher.identity import myself
from dispatcher.kept import frozen
from dispatcher.transactions import writing
from outbox import Email, enqueue, migrations
from outbox.database import open_async_engine
from outbox.records import Claimed, Dispatcher, Lane, Mark, Refused, Settlement
from outbox.schema import deliveries
from outbox.states import State, StopRequest
from outbox.store import accounts, audit, claim, marks, reads, settle
from providers import registry
from providers.contract import InDoubt, Provider, Result, Unavailable, Withheld, digest

MARGIN = timedelta(seconds=30)
"""How much longer the lease is than the longest send: nobody renews it."""
_FIRST = datetime(1000, 1, 1, tzinfo=UTC)
"""A due time before any other: the claim takes the highest priority, then the oldest."""


class NoTrial(Exception):
    """The test could not be made; the text is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """What one trial stands on."""

    engine: AsyncEngine
    account: Account
    provider: Provider
    me: Dispatcher

    @property
    def longest_send(self) -> timedelta:
        return timedelta(seconds=self.provider.longest_send)

    @property
    def lease(self) -> timedelta:
        return self.longest_send + MARGIN


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of it. ``outcome`` as in the journal; ``taken``: the provider has it."""

    account: str
    provider: str
    key: str
    id: int
    state: State
    outcome: str
    reason: str | None
    status_code: int | None
    detail: str | None
    provider_message_id: str | None
    seconds: float

    @property
    def taken(self) -> bool:
        return self.state is State.ACCEPTED


async def trial(config: Config, account: str, *, to: str, sender: str | None, actor: str) -> Tried:
    """Send one mail to ``to`` by ``account`` and say what came of it.

    sender: the From address; left out, the configuration's ``[defaults] from``.

    Raises :class:`NoTrial`, InvalidMessage for an address, ValueError when a secret cannot be
    read, InvalidDatabase, SchemaTooOld or SchemaTooNew.
    """
    known = config.accounts[account]
    if sender is None and config.defaults.sender is None:
        raise NoTrial('there is no sender: pass --from, or set "from" under [defaults]')
    mail = Email(
        to=to,
        from_=sender or config.defaults.sender,
        subject=f"Test of account {account}",
        text=f"Postroom sent this by the account {account} ({known.provider}), as a test.\n",
    )
    provider = registry.open_account(known.name, known.provider, known.settings)
    engine = open_async_engine(config.database_url(), schema=config.schema)
    try:
        return await _tried(_Ground(engine, known, provider, myself(1)), mail, actor)
    finally:
        await engine.dispose()
        await provider.aclose()


async def _tried(ground: _Ground, mail: Email, actor: str) -> Tried:
    started = running()
    claimed = await writing(ground.engine, lambda c: _born(c, ground, mail, actor))
    permit = _Permit(ground, claimed, started)
    result = await _sent(ground, claimed, permit)
    settled = await writing(ground.engine, lambda c: _settled(c, ground, claimed, result))
    return Tried(
        account=ground.account.name,
        provider=ground.account.provider,
        key=claimed.key,
        id=claimed.id,
        state=settled.state,
        outcome=settled.end.outcome.value,
        reason=settled.end.reason,
        status_code=settled.end.status_code,
        detail=settled.end.detail,
        provider_message_id=settled.end.provider_message_id,
        seconds=running() - started,
    )


def _born(connection: Connection, ground: _Ground, mail: Email, actor: str) -> Claimed:
    """The delivery, written and claimed in one transaction."""
    migrations.check(connection)
    name = ground.account.name
    key = f"postroom:test:{name}:{secrets.token_hex(8)}"
    made = enqueue(connection, mail, key=key, account=name, priority=100)
    connection.execute(deliveries.update().where(deliveries.c.id == made.id).values(due_at=_FIRST))
    taken = claim.claim(
        connection,
        [Lane(name, ground.provider.identity, 1)],
        owner=ground.me.owner,
        lease=ground.lease,
        default_from=None,
        namespace=reads.namespace(connection),
    )
    if [each.id for each in taken] != [made.id]:
        raise NoTrial(
            f"{name} may not send for this sender's domain at present: "
            f'see "postroom accounts show {name}"'
        )
    at = reads.database_now(connection)
    entry = audit.Entry("account test", name, after={"key": key})
    audit.write(connection, [entry], actor=actor, note="test mail", at=at)
    return taken[0]


async def _sent(ground: _Ground, claimed: Claimed, permit: _Permit) -> Result:
    """The provider's answer; whatever an adapter raises is an answer, too."""
    message = parsed(claimed)
    outgoing = envelope(claimed, message, message.blobs(), provider=ground.account.provider)
    permit.idempotency_key = outgoing.idempotency_key
    try:
        return await ground.provider.send(outgoing, permit)
    except Withheld as withheld:
        return Result(Unavailable(f"not sent: {withheld.reason}"))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (as in dispatcher.send)
        words = f"adapter_error: {type(error).__name__}: {error}"
        return Result(InDoubt(words) if permit.marked else Unavailable(words))


def _settled(
    connection: Connection, ground: _Ground, claimed: Claimed, result: Result
) -> Settlement:
    """The answer written as any other is; what would wait for a retry is cancelled."""
    at = reads.database_now(connection)
    row = settle.load(connection, [(claimed.id, claimed.attempt)], at=at)[claimed.id]
    jitter = random.random()  # noqa: S311  (spreads retries)

    def decided(stop: StopRequest | None) -> Settlement:
        asked = replace(row, stop_requested=stop or row.stop_requested)
        return decide.settle(asked, result, ground.account.retry, now=at, jitter=jitter)

    settlement = decided(None)
    if settlement.state is State.PENDING:
        settlement = decided(StopRequest.CANCEL)
    settle.apply(connection, [settlement], at=at, shard=0)
    if settlement.pause is not None:
        accounts.pause(connection, [settlement.pause], at=at, by=row.attempt_owner)
    return settlement


class _Permit:
    """Leave to send for one attempt that nobody renews: its lease outlasts the send."""

    def __init__(self, ground: _Ground, claimed: Claimed, started: float) -> None:
        self._ground = ground
        self._claimed = claimed
        self._deadline = started + ground.lease.total_seconds()
        self.idempotency_key = ""
        self.marked = False

    async def transmitting(self, recipients: object, request: bytes) -> None:
        """See :class:`providers.contract.Permit`; there is one recipient."""
        del recipients
        claimed, ground = self._claimed, self._ground
        replays = ground.provider.capabilities.replay != "none"
        wanted = Mark(
            claimed.id,
            claimed.attempt,
            claimed.token,
            claimed.carried,
            self.idempotency_key,
            digest(request),
            deadline=ground.longest_send,
            kept=frozen(request, {}) if replays else None,
        )
        asked = running()

        def work(connection: Connection) -> object:
            at = reads.database_now(connection)
            answers = marks.mark(
                connection, [wanted], owner=ground.me.owner, at=at, lease=ground.lease
            )
            return answers[claimed.id]

        answer = await writing(ground.engine, work)
        if isinstance(answer, Refused):
            raise Withheld(answer.reason)
        self.marked = True
        self._deadline = asked + ground.lease.total_seconds()

    def check(self) -> None:
        """See :class:`providers.contract.Permit`."""
        if running() >= self._deadline:
            raise Withheld("lease")
