"""One suite over every adapter: the promises that a dispatcher relies on."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from providers import file, registry
from providers.contract import (
    Accepted,
    Capabilities,
    InDoubt,
    Message,
    Permit,
    Result,
    Unavailable,
    Withheld,
)
from providers.memory import BeforeMark, MemoryProvider, Step, request_bytes
from providers.testing import PROMISES, Bench, Check, RecordingPermit, checks, sample_message
from tests.conformance.benches import FileBench, MemoryBench, ResendBench, SmtpBench

BENCHES: dict[str, Bench] = {
    "file": FileBench(),
    "memory": MemoryBench(),
    "resend": ResendBench(),
    "smtp": SmtpBench(),
}
CASES = [
    pytest.param(check, id=f"{name}-{check}")
    for name, bench in BENCHES.items()
    for check in checks(bench)
]


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESEND_API_KEY", "re_example_KEY_123")
    monkeypatch.setenv("SMTP_PASSWORD", "s3cr3t-Example!")


@pytest.mark.parametrize("check", CASES)
async def test_every_adapter_keeps_the_promises_of_the_seam(check: Check) -> None:
    """Each adapter comes to each of its outcomes and keeps each promise (B01, B02, B10, B12, B96)."""
    await check.run()


def test_no_adapter_is_left_out() -> None:
    """Whatever the registry knows has a bench here."""
    assert set(BENCHES) == set(registry.names())


# --------------------------------------------------------------------------- #
# The suite notices adapters that break a promise
# --------------------------------------------------------------------------- #


class SendsFirst(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        self.sent.append(message)
        await permit.transmitting(message.recipients, request_bytes(message))
        permit.check()
        return Result(Accepted())


class NeverChecks(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        await permit.transmitting(message.recipients, request_bytes(message))
        self.sent.append(message)
        return Result(Accepted())


class NeverMarks(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        permit.check()
        self.sent.append(message)
        return Result(Accepted())


class MarksTwice(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        await permit.transmitting(message.recipients, request_bytes(message))
        return await super().send(message, permit)


class SwallowsRefusals(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        try:
            return await super().send(message, permit)
        except Exception as error:  # noqa: BLE001 - the fault itself
            return Result(InDoubt(str(error)))


class SendsTwice(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        result = await super().send(message, permit)
        self.sent.append(message)
        return result


class SendsToEverybody(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        result = await super().send(message, permit)
        self.sent[-1] = replace(message, recipients=sample_message().recipients)
        return result


class ShowsBlindRecipients(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        result = await super().send(message, permit)
        self.sent[-1] = replace(message, headers=(("X-Bcc", "aud@example.net"),))
        return result


class ChangesTexts(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        result = await super().send(message, permit)
        self.sent[-1] = replace(message, text="another")
        return result


class DependsOnTheAttempt(MemoryProvider):
    numbers = itertools.count()

    async def send(self, message: Message, permit: Permit) -> Result:
        return await super().send(replace(message, subject=str(next(self.numbers))), permit)


class TellsSecrets(MemoryProvider):
    async def send(self, message: Message, permit: Permit) -> Result:
        result = await super().send(message, permit)
        return replace(result, detail="the key is hunter2")


class ChangesItsIdentity(MemoryProvider):
    @property
    def identity(self) -> str:
        return f"memory:{len(self.sent)}"


class ReplaysForNoTime(MemoryProvider):
    def __init__(self, name: str, script: Iterable[Step]) -> None:
        super().__init__(name, script, capabilities=Capabilities(replay="same_response"))


BROKEN = [
    (SendsFirst, "marks-before-octets"),
    (SendsFirst, "refusal-at-mark"),
    (NeverChecks, "refusal-at-first-check"),
    (NeverChecks, "refusal-at-last-check"),
    (NeverMarks, "outcome-accepted"),
    (NeverMarks, "refusal-at-mark"),
    (MarksTwice, "outcome-accepted"),
    (SwallowsRefusals, "refusal-at-mark"),
    (SendsTwice, "outcome-accepted"),
    (SendsToEverybody, "only-the-recipients"),
    (ShowsBlindRecipients, "blind-recipients"),
    (ChangesTexts, "texts-arrive"),
    (DependsOnTheAttempt, "same-octets"),
    (SendsTwice, "many-at-once"),
    (TellsSecrets, "says-what-it-is"),
    (ChangesItsIdentity, "says-what-it-is"),
    (ReplaysForNoTime, "says-what-it-is"),
]


@pytest.mark.parametrize(("careless", "promise"), BROKEN)
async def test_the_suite_notices_a_broken_promise(
    careless: type[MemoryProvider], promise: str
) -> None:
    """Each check fails for an adapter that breaks what it checks."""
    bench = MemoryBench(["hunter2"], lambda steps: careless("main", steps))
    (check,) = (check for check in checks(bench) if check.name == promise)
    with pytest.raises((AssertionError, ValueError)):
        await check.run()


def test_every_promise_is_seen_to_be_broken() -> None:
    """No promise is without an adapter here that breaks it."""
    assert set(PROMISES) <= {promise for _, promise in BROKEN}


# --------------------------------------------------------------------------- #
# The two adapters without a provider
# --------------------------------------------------------------------------- #


async def test_a_script_is_followed_step_by_step() -> None:
    """Steps are taken in order, exceptions are raised, functions are awaited, then all is accepted."""
    gate = asyncio.Event()

    async def slow(message: Message) -> Result:
        await gate.wait()
        return Result(InDoubt("late"), detail=message.subject)

    provider = MemoryProvider(
        script=[BeforeMark(Unavailable("dns")), OSError("broken"), slow, BeforeMark(OSError("x"))]
    )
    permit = RecordingPermit()
    assert await provider.send(sample_message(), permit) == Result(Unavailable("dns"))
    assert permit.events == []
    with pytest.raises(OSError, match="broken"):
        await provider.send(sample_message(), permit)
    assert permit.events == ["mark", "check"]
    waiting = asyncio.create_task(provider.send(sample_message(subject="S"), RecordingPermit()))
    await asyncio.sleep(0)
    gate.set()
    assert await waiting == Result(InDoubt("late"), detail="S")
    with pytest.raises(OSError, match="x"):
        await provider.send(sample_message(), RecordingPermit())
    result = await provider.send(sample_message(), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert len(provider.sent) == 3


def contents(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """Every file below ``folder`` by its path in there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob(pattern)
        if path.is_file()
    }


async def write(folder: Path, message: Message) -> Result:
    provider = file.open_account("main", file.Settings(directory=folder))
    return await provider.send(message, RecordingPermit())


async def test_a_repeated_attempt_writes_the_same_file(tmp_path: Path) -> None:
    """The same key is the same file; a later attempt with a suffix is another one."""
    message = sample_message()
    later = sample_message(idempotency_key=f"{message.correlation}.2")
    results = [await write(tmp_path, one) for one in (message, message, later)]
    names = [f"{message.correlation}.eml", f"{message.correlation}.2.eml"]
    assert [result.outcome for result in results] == [
        Accepted(names[0]),
        Accepted(names[0]),
        Accepted(names[1]),
    ]
    assert set(contents(tmp_path)) == {*names, *(name.replace(".eml", ".json") for name in names)}


@pytest.mark.parametrize("key", ["../../outside", "/etc/passwd", ".hidden", "a\0b", "x" * 500])
async def test_no_key_leads_out_of_the_folder(key: str, tmp_path: Path) -> None:
    """A name is made of harmless characters only, whatever the key is (B14)."""
    result = await write(tmp_path / "mail", sample_message(correlation=key, idempotency_key=key))
    assert isinstance(result.outcome, Accepted)
    (name,) = contents(tmp_path, "*.eml")
    folder, _, file_name = name.rpartition("/")
    assert folder == "mail"
    assert not file_name.startswith(".")


@contextmanager
def files_at_most(octets: int) -> Iterator[None]:
    """Let every file of this process grow to ``octets`` only, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    """A write that breaks off is Unavailable and leaves nothing; the last whole file stays."""
    whole = sample_message(text="short")
    await write(tmp_path, whole)
    before = contents(tmp_path)
    with files_at_most(100_000):
        result = await write(tmp_path, sample_message(text="long\n" * 100_000))
    assert result.outcome == Unavailable("disk_full")
    assert contents(tmp_path) == before


async def test_a_message_withheld_at_the_end_leaves_no_file(tmp_path: Path) -> None:
    """Refused at the last check, neither message nor envelope is there."""

    def refuse(number: int) -> None:
        if number == 2:
            raise Withheld("lease")

    provider = file.open_account("main", file.Settings(directory=tmp_path))
    with pytest.raises(Withheld):
        await provider.send(sample_message(), RecordingPermit(at_check=refuse))
    assert contents(tmp_path) == {}


async def test_the_folder_is_fixed_when_the_account_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative folder belongs to the directory in which the process was when it opened it."""
    monkeypatch.chdir(tmp_path)
    provider = file.open_account("main", file.Settings())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await provider.send(sample_message(), RecordingPermit())
    assert len(contents(tmp_path / "var" / "mail", "*.eml")) == 1
    assert provider.identity == f"file:{tmp_path}/var/mail"


async def test_who_gets_the_mail_stands_beside_it(tmp_path: Path) -> None:
    """The envelope names every recipient, blind ones too, which the message never does (B12)."""
    result = await write(tmp_path, sample_message())
    assert isinstance(result.outcome, Accepted)
    written = contents(tmp_path)
    envelope = json.loads(written[f"{sample_message().correlation}.json"])
    assert envelope["recipients"] == list(sample_message().recipients)
    assert b"aud@example.net" not in written[str(result.outcome.message_id)]
