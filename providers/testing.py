"""One conformance suite for every adapter, ours and yours.

An adapter's own tests show that it knows its provider. This suite shows that it
keeps the promises of the seam (:mod:`providers.contract`), which a dispatcher
relies on when it decides that something may be sent again.

Bring a :class:`Bench`: the adapter, a far side that records what arrived, and
the outcomes that the far side can be made to cause. Then, with pytest::

    @pytest.mark.parametrize("check", checks(MyBench()), ids=str)
    async def test_conformance(check):
        await check.run()

Every check opens the bench anew. A check fails with AssertionError and one
sentence that says which promise was broken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from functools import partial

from providers.contract import Accepted, Provider, Result, Withheld
from providers.testing_bench import (
    ACCEPTED,
    Arrived,
    Bench,
    RecordingPermit,
    Scenario,
    Site,
    sample_message,
)

__all__ = [
    "ACCEPTED",
    "PROMISES",
    "Arrived",
    "Bench",
    "Check",
    "RecordingPermit",
    "Scenario",
    "Site",
    "checks",
    "sample_message",
]

_BLIND_FIELD = re.compile(rb"""(?i)bcc["']?\s*:""")


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, to be tried on one bench."""

    name: str
    run: Callable[[], Awaitable[None]]

    def __str__(self) -> str:
        return self.name


def checks(bench: Bench) -> list[Check]:
    """Every check for ``bench``: one for each scenario, then one for each promise."""
    named = [Check(f"outcome-{name}", partial(_comes_to, bench, name)) for name in bench.scenarios]
    return named + [Check(name, partial(promise, bench)) for name, promise in PROMISES.items()]


def _require(condition: object, promise: str) -> None:
    if not condition:
        raise AssertionError(promise)


# --------------------------------------------------------------------------- #
# The promises
# --------------------------------------------------------------------------- #


async def _comes_to(bench: Bench, name: str) -> None:
    scenario = bench.scenarios[name]
    permit = RecordingPermit()
    async with bench.open(name) as site:
        result = await site.provider.send(sample_message(), permit)
        arrived = await site.finish()
    outcome = result.outcome
    _require(type(outcome) is scenario.outcome, f"{name}: {outcome} is no {scenario.outcome}")
    for key, value in scenario.values.items():
        found = getattr(outcome, key)
        _require(found == value, f"{name}: {key} is {found!r} and not {value!r}")
    _require(permit.marks == int(scenario.marked), f"{name}: marked {permit.marks} times")
    _require(not arrived or permit.marks, f"{name}: octets left without a mark")
    _require(len(arrived) <= 1, f"{name}: one send transmitted {len(arrived)} times")
    _keeps_secrets(bench, site.provider, result)


async def _marks_before_octets(bench: Bench) -> None:
    begun: list[int] = []
    async with bench.open(ACCEPTED) as site:
        permit = RecordingPermit(
            at_mark=lambda: begun.append(site.begun()),
            at_check=lambda number: begun.append(site.begun()) if number == 1 else None,
        )
        result = await site.provider.send(sample_message(), permit)
        await site.finish()
    _require(isinstance(result.outcome, Accepted), f"the sample was not accepted: {result}")
    _require(permit.events[:2] == ["mark", "check"], f"asked in this order: {permit.events}")
    _require(begun == [0, 0], "octets of the message left before mark and first check")
    wanted = sample_message().recipients
    _require(sorted(permit.recipients) == sorted(wanted), "marked other recipients")
    _require(len(permit.request_digest) == 64, "the mark has no SHA-256 of the request")


async def _refusal_at_mark(bench: Bench) -> None:
    await _refused(bench, lambda error: RecordingPermit(at_mark=partial(_raise, error)))


async def _refusal_at_first_check(bench: Bench) -> None:
    await _refused(bench, lambda error: RecordingPermit(at_check=lambda _: _raise(error)))


async def _refused(bench: Bench, permit: Callable[[BaseException], RecordingPermit]) -> None:
    """What the permit raises comes out as it is; nothing left; the account goes on working."""
    async with bench.open(ACCEPTED) as site:
        for error in (Withheld("stopped"), LookupError("database"), asyncio.CancelledError()):
            try:
                result = await site.provider.send(sample_message(), permit(error))
            except BaseException as raised:  # noqa: BLE001 - it is what is looked at
                _require(raised is error, f"{error!r} became {raised!r}")
            else:
                _require(False, f"{error!r} was swallowed and became {result.outcome}")
        _require(site.begun() == 0, "octets of the message left though the permit was refused")
        result = await site.provider.send(sample_message(), RecordingPermit())
        _require(isinstance(result.outcome, Accepted), f"afterwards the account gave {result}")
        arrived = await site.finish()
    _require(len(arrived) == 1, f"{len(arrived)} transmissions began, one was allowed")


async def _refusal_at_last_check(bench: Bench) -> None:
    message = sample_message(text="long line of text\n" * 20_000)
    async with bench.open(ACCEPTED) as site:
        permit = RecordingPermit()
        await site.provider.send(message, permit)
        await site.finish()

    def refuse(number: int) -> None:
        if number == permit.checks:
            raise Withheld("lease")

    async with bench.open(ACCEPTED) as site:
        try:
            result = await site.provider.send(message, RecordingPermit(at_check=refuse))
        except Withheld:
            pass
        else:
            _require(False, f"a refusal at the last check became {result.outcome}")
        arrived = await site.finish()
    _require(not any(one.whole for one in arrived), "a withheld message arrived whole")


async def _only_the_recipients(bench: Bench) -> None:
    for wanted in (("ben@example.org",), ("ana@example.org", "aud@example.net")):
        async with bench.open(ACCEPTED) as site:
            permit = RecordingPermit()
            result = await site.provider.send(sample_message(recipients=wanted), permit)
            arrived = await site.finish()
        _require(isinstance(result.outcome, Accepted), f"recipients {wanted}: {result}")
        _require(set(permit.recipients) == set(wanted), f"marked {permit.recipients}")
        got = [one.recipients for one in arrived]
        _require(got == [frozenset(wanted)], f"meant for {wanted}, addressed to {got}")


async def _same_octets(bench: Bench) -> None:
    contents, digests = [], []
    for metadata in ({"site": "42", "period": "2026-W13"}, {"period": "2026-W13", "site": "42"}):
        async with bench.open(ACCEPTED) as site:
            permit = RecordingPermit()
            await site.provider.send(sample_message(metadata=metadata), permit)
            contents += [one.content for one in await site.finish()]
            digests.append(permit.request_digest)
    _require(len(contents) == 2, f"two sends, {len(contents)} transmissions")
    _require(contents[0] == contents[1], "two attempts of one message differ")
    _require(digests[0] == digests[1], "two attempts of one message have different digests")
    async with bench.open(ACCEPTED) as site:
        permit = RecordingPermit()
        await site.provider.send(sample_message(subject="Another"), permit)
        await site.finish()
    _require(permit.request_digest != digests[0], "another message has the same digest")


async def _blind_recipients(bench: Bench) -> None:
    async with bench.open(ACCEPTED) as site:
        await site.provider.send(sample_message(), RecordingPermit())
        arrived = await site.finish()
    _require(
        [one.recipients for one in arrived] == [frozenset(sample_message().recipients)],
        "the blind recipients were not addressed",
    )
    visible = bench.visible(arrived[0].content).lower()
    for shown in (b"aud@example.net", b"aud2@example.net"):
        _require(shown not in visible, f"every recipient can read {shown!r}")
    _require(not _BLIND_FIELD.search(visible), "every recipient can read a Bcc field")


async def _texts_arrive(bench: Bench) -> None:
    message = sample_message()
    async with bench.open(ACCEPTED) as site:
        await site.provider.send(message, RecordingPermit())
        arrived = await site.finish()
    text, html = bench.texts(arrived[0].content)
    _require(text == message.text, "the text that arrived is another")
    _require(html == message.html, "the HTML that arrived is another")


async def _many_at_once(bench: Bench) -> None:
    permits = [RecordingPermit() for _ in range(8)]
    keys = [f"{sample_message().correlation}.{number}" for number in range(8)]
    async with bench.open(ACCEPTED) as site:
        results = await asyncio.gather(
            *(
                site.provider.send(sample_message(idempotency_key=key), permit)
                for key, permit in zip(keys, permits, strict=True)
            )
        )
        arrived = await site.finish()
    _require(
        all(isinstance(result.outcome, Accepted) for result in results),
        f"eight sends at once came to {results}",
    )
    _require(all(permit.marks == 1 for permit in permits), "a send was not marked once")
    _require(len(arrived) == 8, f"eight sends at once, {len(arrived)} transmissions")


async def _says_what_it_is(bench: Bench) -> None:
    async with bench.open(ACCEPTED) as site:
        provider = site.provider
        before = provider.identity
        result = await provider.send(sample_message(), RecordingPermit())
        _require(isinstance(provider, Provider), "it is no Provider")
        _require(before and provider.identity == before, "the identity changed by itself")
        _keeps_secrets(bench, provider, result)
        known = provider.capabilities
        await site.finish()
    replays, remembers = known.replay != "none", known.key_retention > 0
    _require(replays == remembers, f"replay {known.replay} with retention {known.key_retention}")


def _keeps_secrets(bench: Bench, provider: Provider, result: Result) -> None:
    shown = f"{provider!r} {provider.identity} {provider.name} {result!r} {_words(result)}"
    for secret in bench.secrets:
        _require(secret not in shown, "a secret shows in repr, identity, outcome or detail")


def _words(result: Result) -> str:
    outcome = result.outcome
    return " ".join(str(getattr(outcome, item.name)) for item in fields(outcome))


def _raise(error: BaseException) -> None:
    raise error


PROMISES: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "marks-before-octets": _marks_before_octets,
    "refusal-at-mark": _refusal_at_mark,
    "refusal-at-first-check": _refusal_at_first_check,
    "refusal-at-last-check": _refusal_at_last_check,
    "only-the-recipients": _only_the_recipients,
    "same-octets": _same_octets,
    "blind-recipients": _blind_recipients,
    "texts-arrive": _texts_arrive,
    "many-at-once": _many_at_once,
    "says-what-it-is": _says_what_it_is,
}
"""Each promise of the seam, by the name under which a test reports it."""
