"""Takes one step from one state, by the real code.

``Rounds``, ``Sweep``, ``SendPermit`` and the part of ``Sender`` that makes a permit are the real
ones. They are asynchronous, but nothing here ever waits: their engine answers at once
(:class:`~tests.explorer.stores.Direct`), so each call is run to its end, or to the point where
it would wait for a round. What they hold in memory is put in before a step and taken out after
it, since a coroutine cannot be copied and a state must be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, cast
from uuid import UUID

from sqlalchemy.exc import DBAPIError

import outbox
from dispatcher.doubt import Means
from dispatcher.envelope import envelope, parsed
from dispatcher.events import Event, RoundSplit
from dispatcher.rounds import Rounds
from dispatcher.send import Sender
from dispatcher.sweep import Sweep
from dispatcher.verb_subjects import Act
from dispatcher.wishes import (
    End,
    InvalidEnd,
    LookUpEnd,
    Terms,
    WantedMark,
    WantedSettle,
    WithheldEnd,
)
from outbox.errors import InvalidMessage
from outbox.records import Claimed, Dispatcher, Granted, Lane, Mark, Refused
from outbox.store import accounts, reads
from providers.contract import Accepted, Found, InDoubt, Result, Withheld
from tests.explorer import people
from tests.explorer.clock import instant
from tests.explorer.desk import Answer, Asked, Desk, finished, remember
from tests.explorer.provider import Provider
from tests.explorer.stores import Direct, Store
from tests.explorer.world import (
    EVIDENCE_WAIT,
    LEASE,
    LONGEST_SEND,
    MARGIN,
    Lease,
    Process,
    Setting,
    Task,
    World,
)

T = TypeVar("T")
KEY = "website-audit:site-42:2026-W48:owner"
ADDRESSES = ("ana@example.org", "ben@example.org")


class Violation(AssertionError):
    """Something happened that must not happen in any order of steps; ``name`` is the rule's."""

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True, slots=True)
class Seen:
    """What a step did besides changing the state: for the invariants that speak of deeds.

    ``marked``: tasks whose mark was granted in it. ``left``: the task whose bytes left.
    ``settled``: tasks whose end was written. ``mixed``: the same
    round did something else, or may have. ``typed``: a person's verb did it.
    """

    marked: tuple[Task, ...] = ()
    left: Task | None = None
    settled: tuple[Task, ...] = ()
    mixed: bool = False
    typed: bool = False


class Machine:
    """One setting on one database."""

    def __init__(self, setting: Setting, store: Store) -> None:
        self.setting = setting
        self.provider = Provider(setting.capabilities, LONGEST_SEND, mixed=setting.mixed)
        self._store = store
        self._direct = Direct(store.engine)
        self._means = {
            "main": Means(
                identity=self.provider.identity,
                capabilities=setting.believed or setting.capabilities,
                longest_send=timedelta(seconds=LONGEST_SEND),
                replay_margin=timedelta(seconds=MARGIN),
                evidence_wait=timedelta(seconds=EVIDENCE_WAIT),
            )
        }
        with store.engine.begin() as connection:
            self._terms = self._agreed(reads.namespace(connection))

    def _agreed(self, namespace: UUID) -> Terms:
        return Terms(
            owner="",
            lease=timedelta(seconds=LEASE),
            default_from=None,
            namespace=namespace,
            lanes=(Lane("main", self.provider.identity, 0, takes_unnamed=True),),
            policies={"main": self.setting.policy},
            means=self._means,
            when_unsure={"main": self.setting.when_unsure},
        )

    def start(self) -> World:
        """One delivery, committed and due; two dispatchers that know nothing."""
        self._store.empty()
        email = outbox.Email(
            from_="reports@example.com",
            to=list(ADDRESSES[: self.setting.recipients]),
            subject="Website audit 2026-W48",
            text="Three findings.",
        )
        with self._store.engine.begin() as connection:
            accounts.publish(connection, [("main", "explorer", self.provider.identity, {})])
            last = self.setting.send_before
            before = None if last is None else instant(last)
            outbox.enqueue(connection, email, key=KEY, account="main", send_before=before)
        return World(self._store.read(), (Process("A"), Process("B")))

    # -- what dispatchers do ------------------------------------------------ #

    def claim(self, world: World, at: int, *, loses: bool = False) -> tuple[World, Seen]:
        """A round that wants one delivery."""
        return self._round(world, at, want=1, loses=loses)

    def renew(self, world: World, at: int) -> tuple[World, Seen]:
        """A round that has nothing to do but to renew leases, and what was lost with the last."""
        return self._round(world, at, want=0)

    def forgotten(self, world: World, at: int) -> tuple[World, Seen]:
        """A dispatcher looks for claims that it does not know of."""
        process = world.processes[at]
        with self._at(world):
            finished(self._rounds(process).forgotten())
            rows = self._store.read()
        world = replace(world, rows=rows)
        return world.with_process(at, replace(process, suspicious=False)), Seen()

    def mark(
        self, world: World, at: int, number: int, addresses: list[str], *, loses: bool = False
    ) -> tuple[World, Seen]:
        """A sender asks that its bytes may leave."""
        process = world.processes[at]
        task = process.tasks[number]
        with self._at(world):
            try:
                mark = self._asked(process, task, addresses)
            except InvalidMessage as problem:
                ended = replace(task, stage="ended", end=InvalidEnd(str(problem)))
                return world.with_process(at, process.with_task(number, ended)), Seen()
        marking = replace(task, stage="marking", mark=mark, asked_at=world.now)
        world = world.with_process(at, process.with_task(number, marking))
        return self._round(world, at, want=0, loses=loses)

    def settle(
        self, world: World, at: int, number: int, end: End, *, want: int = 0, loses: bool = False
    ) -> tuple[World, Seen]:
        """A sender asks that the end of its attempt be written; the round may claim as well."""
        process = world.processes[at]
        settling = replace(process.tasks[number], stage="settling", end=end)
        world = world.with_process(at, process.with_task(number, settling))
        return self._round(world, at, want=want, loses=loses)

    def withheld(self, world: World, at: int, number: int) -> str | None:
        """What the permit says just before the first byte; None: go on."""
        process = world.processes[at]
        task = process.tasks[number]
        with self._at(world, loaded=False):
            permit = self._permit(process, task, None, Desk(process))
            permit._latest, permit._started, permit.marked = task.latest, task.started, True
            try:
                permit.check()
            except Withheld as withheld:
                return withheld.reason
            return None

    def sweep(self, world: World, at: int) -> tuple[World, Seen]:
        """One dispatcher's sweep; it leaves alone what it is itself at work on."""
        process = world.processes[at]
        me = Dispatcher(process.owner, "host", None, 1, None, "0", 1)
        with self._at(world):
            holds = self._rounds(process).holds
            sweep = Sweep(self._direct.engine, me, ("main",), lambda _: None, holds)
            finished(sweep.run_once())
            return replace(world, rows=self._store.read()), Seen()

    def cancel(self, world: World) -> tuple[World, Seen]:
        """The producer changes its mind."""
        with self._at(world):
            with self._store.engine.begin() as connection:
                answer = outbox.cancel(connection, KEY)
            stopped = type(answer).__name__
            return replace(world, rows=self._store.read(), stopped=stopped), Seen()

    # -- inside ------------------------------------------------------------- #

    def verb(self, world: World, wanted: Act) -> tuple[World, Seen]:
        """A person types a verb."""
        id_ = world.rows.delivery["id"]
        with self._at(world):
            with self._store.engine.begin() as connection:
                done = people.act(connection, wanted, id_, self._means["main"])
            world = replace(world, rows=self._store.read())
        if done and wanted in people.OVERRULING:
            world = replace(world, stopped="Overruled")
        return world, Seen(typed=done)

    def rules(self) -> AbstractContextManager[None]:
        """Let this machine's clock rule for many steps; else it does so for each."""
        return self._store.clock.rules()

    @contextmanager
    def _at(self, world: World, *, loaded: bool = True) -> Iterator[None]:
        clock = self._store.clock
        clock.at = world.now
        with clock.rules():
            if loaded:
                self._store.show(world.rows)
            yield

    def _rounds(self, process: Process) -> Rounds:
        terms = replace(self._terms, owner=process.owner)
        rounds = Rounds(self._direct.engine, terms, _listener)
        remember(rounds, process)
        return rounds

    def _round(
        self, world: World, at: int, *, want: int, loses: bool = False
    ) -> tuple[World, Seen]:
        """One real round, with everything that waits for one in this dispatcher."""
        process = world.processes[at]
        answers = [Answer() for _ in process.tasks]
        with self._at(world):
            rounds = self._rounds(process)
            for task, answer in zip(process.tasks, answers, strict=True):
                if task.stage == "marking" and task.mark is not None:
                    rounds._marks.append(WantedMark(task.mark, cast(Any, answer)))
                elif task.stage == "settling" and task.end is not None:
                    wanted = WantedSettle(task.claimed, task.end, cast(Any, answer))
                    rounds._settles.append(wanted)
            # A row in quarantine is claimed by a process that has nothing else in hand.
            rounds.solo = want > 0 and process.quarantined and not process.tasks
            self._direct.loses = loses
            claimed: list[Claimed] = []
            try:
                claimed = finished(rounds.run_once(want))
            except DBAPIError:
                if not loses:
                    raise
            finally:
                self._direct.loses = False
            rows = self._store.read()
            after = self._after(process, rounds, answers, claimed)
        settled = _settled(process, after, loses=loses)
        asked = {task.claimed.token for task in process.tasks if task.stage == "marking"}
        marked = tuple(
            task for task in after.tasks if task.claimed.token in asked and task.stage == "granted"
        )
        told = world.told.union(*(_named(task.end) for task in settled))
        world = replace(world.with_process(at, after), rows=rows, told=told)
        tokens = {task.claimed.token for task in settled}
        others = {task.claimed.token for task in process.tasks if task.stage == "marking"}
        if process.lease is not None:  # which the round may renew
            others.add(process.lease.claimed.token)
        mixed = want > 0 or bool(others - tokens)
        return world, Seen(marked=marked, settled=settled, mixed=mixed)

    def _after(
        self, process: Process, rounds: Rounds, answers: list[Answer], claimed: list[Claimed]
    ) -> Process:
        """What this dispatcher has in memory when the round is over."""
        known = next(iter(rounds._open.values()), None)
        lease = None if known is None else Lease(known.claimed, known.deadline, known.started)
        process = replace(
            process,
            lease=lease,
            suspicious=rounds.suspicious,
            quarantined=rounds.quarantined,
            gate=rounds._gates.get("main"),
        )
        tasks: list[Task] = []
        for task, answer in zip(process.tasks, answers, strict=True):
            if not answer.done():
                tasks.append(task)
            elif task.stage == "marking":
                tasks.append(self._answered(process, task, answer.value))
        tasks += [Task(each, process.owner) for each in claimed]
        return replace(process, tasks=tuple(tasks))

    def _asked(self, process: Process, task: Task, addresses: list[str]) -> Mark:
        """The mark that a real permit asks for, for the request that a real envelope makes."""
        message = parsed(task.claimed)
        kept = finished(self._sender(Desk(process))._kept(task.claimed, {}))
        outgoing = envelope(task.claimed, message, {}, provider="explorer", kept=kept)
        permit = self._permit(process, task, outgoing, Desk(process))
        request = outgoing.kept or f"{outgoing.idempotency_key} {outgoing.recipients}".encode()
        try:
            finished(permit.transmitting(addresses, request))
        except Asked as asked:
            return asked.mark
        raise AssertionError("the permit asked for no mark")

    def _answered(self, process: Process, task: Task, answer: Granted | Refused) -> Task:
        """What the permit makes of the answer to its mark."""
        assert task.mark is not None
        message = envelope(task.claimed, parsed(task.claimed), {}, provider="explorer")
        permit = self._permit(process, task, message, Desk(process, answer))
        with self._store.clock.turned_back(task.asked_at):
            try:
                finished(permit.transmitting([], b""))
            except Withheld as withheld:
                return replace(task, stage="ended", end=WithheldEnd(withheld.reason))
        return replace(task, stage="granted", latest=permit._latest)

    def _permit(self, process: Process, task: Task, outgoing: Any, desk: Desk) -> Any:
        del process
        return self._sender(desk)._permit(task.claimed, outgoing, self.provider, {})

    def _sender(self, desk: Desk) -> Sender:
        return Sender(
            self._direct.engine,
            cast(Rounds, desk),
            {"main": ("explorer", self.provider)},
            self._means,
            lambda: False,
        )


def _settled(before: Process, after: Process, *, loses: bool) -> tuple[Task, ...]:
    """The tasks whose end was written: one of each delivery in a round."""
    settling = tuple(task for task in before.tasks if task.stage == "settling")
    left = {task.claimed.token for task in after.tasks}
    return settling[:1] if loses else tuple(t for t in settling if t.claimed.token not in left)


def _listener(happened: Event) -> None:
    if isinstance(happened, RoundSplit):
        raise Violation(f"a round's transaction failed on its content: {happened.error}")


def _named(end: End | None) -> frozenset[str]:
    """The copies that an answer names, for every recipient of theirs."""
    match end:
        case Result(outcome, recipients):
            said = (outcome, *recipients.values())
            if any(isinstance(each, InDoubt) for each in said):
                return frozenset()
            return frozenset(o.message_id or "" for o in said if isinstance(o, Accepted))
        case LookUpEnd(Found(str(id_))):
            return frozenset({id_})
        case _:
            return frozenset()
