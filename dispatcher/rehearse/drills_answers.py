"""Drills of what a provider answers, or does not: refusals, throttling, lost answers, look-ups."""

from __future__ import annotations

from datetime import timedelta

from dispatcher.rehearse.drill import Drill, Played, played, risked, spoken, state, times, undecided
from dispatcher.rehearse.fakes import RETRY_AFTER, FakeProvider, Fault, Kind
from dispatcher.rehearse.stage import Stage


async def rejected(stage: Stage) -> Played:
    """What is refused for good is not tried again."""
    fake = stage.fake(Kind.NOTHING, Fault.REFUSED)
    await stage.enqueue("rejected", fake.name)
    row = await stage.to_the_end("rejected", fake)
    await stage.dispatch(fake)
    return played(
        ("failed: rejected", f"{state(row)}: {row.reason}"),
        ("sent once", times("sent", stage.ledger.count(fake.name, "request"))),
    )


async def throttled(stage: Stage) -> Played:
    """A provider that wants to be left alone is, and no row pays for it."""
    fake = stage.fake(Kind.NOTHING, Fault.THROTTLED)
    keys = ("throttled-1", "throttled-2")
    for key in keys:
        await stage.enqueue(key, fake.name)
    await stage.dispatch(fake, slots=1)
    paused = await stage.paused(fake.name)
    await stage.dispatch(fake, slots=1)
    waiting = spoken(await stage.states(*keys))
    asked = stage.ledger.count(fake.name, "request")
    await stage.pass_time(timedelta(seconds=RETRY_AFTER))
    rows = [await stage.to_the_end(key, fake) for key in keys]
    used = sum(row.attempts for row in rows)
    return played(
        ("paused: throttled", f"paused: {paused or 'no'}"),
        ("both wait", "both wait" if waiting == "pending" else f"they are {waiting}"),
        ("asked once", times("asked", asked)),
        ("then accepted", f"then {spoken(row.state for row in rows)}"),
        ("no attempt used", f"{used} attempts used" if used else "no attempt used"),
    )


async def lost_key(stage: Stage) -> Played:
    """An answer is lost after acceptance; asked again under the same key, the provider repeats it."""
    fake = stage.fake(Kind.KEY, Fault.ANSWER_LOST)
    row = await _lost(stage, "lost-key", fake)
    return played(
        ("in doubt", row),
        ("then accepted", f"then {state(await stage.to_the_end('lost-key', fake))}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
        ("answer repeated once", times("answer repeated", _repeated(stage, fake))),
    )


async def refused_replay(stage: Stage) -> Played:
    """That a replay was put off says nothing of the first transmission: the doubt stays."""
    fake = stage.fake(Kind.KEY, Fault.ANSWER_LOST, Fault.THROTTLED)
    first = await _lost(stage, "refused-replay", fake)
    await stage.until_due("refused-replay")
    await stage.dispatch(fake)
    between = await stage.row("refused-replay")
    await stage.until_due("refused-replay")
    row = await stage.to_the_end("refused-replay", fake)
    return played(
        ("in doubt", first),
        ("after the replay: in doubt", f"after the replay: {state(between)}"),
        ("then accepted", f"then {state(row)}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def forgotten_key(stage: Stage) -> Played:
    """Nobody was there until the key's time was nearly over: too late for a replay."""
    fake = stage.fake(Kind.KEY, Fault.ANSWER_LOST)
    first = await _lost(stage, "forgotten-key", fake)
    margin = min(stage.setup.replay_margin, stage.setup.key_retention)
    late = stage.setup.key_retention - margin / 2
    await stage.pass_time(timedelta(seconds=late))
    row = await stage.to_the_end("forgotten-key", fake)
    asked = stage.ledger.count(fake.name, "request")
    return played(
        ("in doubt", first),
        (f"then {undecided(stage)}", f"then {state(row)}"),
        (times("sent", risked(stage, before=1)), times("sent", asked)),
    )


async def lost_look_up(stage: Stage) -> Played:
    """ "Not found", asked before the look-up can know, proves nothing; "found" does."""
    fake = stage.fake(Kind.LOOK_UP, Fault.ANSWER_LOST)
    first = await _lost(stage, "lost-look-up", fake)
    row = await stage.to_the_end("lost-look-up", fake)
    answers = [each.answer for each in stage.ledger.entries(fake.name, "asked")]
    early = "not found" if answers[:1] == ["absent"] else "nothing was asked"
    return played(
        ("in doubt", first),
        ("asked early: not found", f"asked early: {early}"),
        ("later: found", "later: found" if answers[-1:] == ["found"] else "later: not found"),
        ("then accepted", f"then {state(row)}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def absent_look_up(stage: Stage) -> Played:
    """The message never arrived: "not found", asked late enough, proves it, and it is sent again."""
    fake = stage.fake(Kind.LOOK_UP, Fault.REQUEST_LOST)
    first = await _lost(stage, "absent-look-up", fake)
    row = await stage.to_the_end("absent-look-up", fake)
    asked = [each.at for each in stage.ledger.entries(fake.name, "asked")]
    sent = [each.at for each in stage.ledger.entries(fake.name, "request")]
    patient = bool(asked) and asked[-1] - sent[0] >= stage.setup.index_lag
    return played(
        ("in doubt", first),
        ("asked after the lag", "asked after the lag" if patient else "asked too early"),
        ("sent twice", times("sent", len(sent))),
        ("then accepted", f"then {state(row)}"),
        ("taken once", times("taken", stage.ledger.count(fake.name, "taken"))),
    )


async def lost_nothing(stage: Stage) -> Played:
    """Nothing can prove anything: a person decides, or the policy, at most once, and says so."""
    fake = stage.fake(Kind.NOTHING, Fault.ANSWER_LOST, Fault.ANSWER_LOST)
    first = await _lost(stage, "lost-nothing", fake)
    row = await stage.to_the_end("lost-nothing", fake)
    await stage.pass_time(timedelta(days=1))
    await stage.dispatch(fake)
    copies = risked(stage, before=1)
    return played(
        ("in doubt", first),
        ("then held", f"then {state(row)}"),
        (times("taken", copies), times("taken", stage.ledger.count(fake.name, "taken"))),
        (_risk("send_again" if copies > 1 else None), _risk(row.extra)),
    )


def _risk(taker: str | None) -> str:
    return f"risk of a copy taken by {taker or 'nobody'}"


async def _lost(stage: Stage, key: str, fake: FakeProvider) -> str:
    """A first send whose answer, or whose message, is lost; the state after it."""
    await stage.enqueue(key, fake.name)
    await stage.dispatch(fake)
    return state(await stage.row(key))


def _repeated(stage: Stage, fake: FakeProvider) -> int:
    return stage.ledger.count(fake.name, "repeated")


DRILLS = (
    Drill("rejected", "the provider refuses a message for good", rejected),
    Drill("throttled", "the provider wants to be left alone for 30 s", throttled),
    Drill("lost-key", "answer lost after acceptance; it knows the key", lost_key),
    Drill("refused-replay", "the same, and the replay is throttled", refused_replay),
    Drill("forgotten-key", "the same, and nobody asks until the key is nearly forgotten",
          forgotten_key),
    Drill("lost-look-up", "answer lost after acceptance; its look-up lags", lost_look_up),
    Drill("absent-look-up", "message lost on its way; its look-up lags", absent_look_up),
    Drill("lost-nothing", "answer lost after acceptance; it can prove nothing", lost_nothing),
)  # fmt: skip
