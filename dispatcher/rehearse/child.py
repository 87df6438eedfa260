"""A process that exists to be killed or stopped in the middle of something.

It reads one line, the order, from its standard input; writes one line for each point that it
reaches; and stalls where it was told to until another line comes. When its input ends, it ends
at once: nobody is left who would kill it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from dispatcher.events import Event, Stopping
from dispatcher.rehearse.fakes import FakeProvider, Fault, Kind, Ledger
from dispatcher.rehearse.producer import enqueued
from dispatcher.rehearse.setup import Setup
from dispatcher.service import dispatch
from outbox.database import open_engine

Act: TypeAlias = Literal["write", "commit", "dispatch"]


@dataclass(frozen=True, slots=True)
class Order:
    """What a child does. ``passed``: how far the rehearsal's clock is ahead, in seconds.

    ``write``: enqueue, and never commit. ``commit``: enqueue, commit, and never go on.
    ``dispatch``: deliver for ``account`` until it is stopped.
    """

    act: Act
    account: str
    key: str = ""
    kind: Kind = Kind.NOTHING
    faults: tuple[Fault, ...] = ()
    slots: int = 20
    passed: float = 0.0


def main() -> None:
    """Read the order and carry it out."""
    given = json.loads(_line())
    setup = Setup.read(given["setup"])
    values = given["order"]
    order = Order(
        **{
            **values,
            "kind": Kind(values["kind"]),
            "faults": tuple(Fault(each) for each in values["faults"]),
        }
    )
    if order.act == "dispatch":
        asyncio.run(_dispatch(setup, order))
    else:
        _enqueue(setup, order)


def _enqueue(setup: Setup, order: Order) -> None:
    engine = open_engine(setup.url, schema=setup.schema)
    with engine.begin() as connection:
        enqueued(connection, order.key, order.account)
        if order.act == "write":
            _say("written")
            _stall()
    _say("committed")
    _stall()


async def _dispatch(setup: Setup, order: Order) -> None:
    released = asyncio.Event()

    def heard() -> None:
        if not os.read(0, 4096):
            os._exit(1)
        released.set()

    async def pause(point: str) -> None:
        _say(point)
        await released.wait()

    def listen(event: Event) -> None:
        if isinstance(event, Stopping):
            _say("stopping")

    asyncio.get_running_loop().add_reader(0, heard)
    fake = FakeProvider(
        order.account,
        order.kind,
        Ledger(Path(setup.folder)),
        setup.traits,
        clock=lambda: time.time() + order.passed,
        pause=pause,
        faults=order.faults,
    )
    config = setup.config(order.account, slots=order.slots)
    await dispatch(config, "forever", {order.account: ("rehearsal", fake)}, listen)
    _say("ended")


def _line() -> bytes:
    """One line, byte by byte: what follows it belongs to somebody else."""
    read = b""
    while not read.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(1)
        read += byte
    return read


def _say(word: str) -> None:
    os.write(1, word.encode() + b"\n")


def _stall() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
