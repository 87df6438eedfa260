"""The crash matrix: one delivery, one dispatcher that dies at a boundary, and what became of it.

For each boundary and each kind of provider a real dispatcher process takes a delivery and is
killed with SIGKILL at that boundary, by itself or, where it only waits for an answer, by whoever
holds the answer. Its lease is then made to lapse, a plain dispatcher takes over, and works until
the delivery is final or held. What the provider has then is counted at the provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import outbox
from outbox.database import open_engine
from tests.acceptance import ledger_provider
from tests.acceptance.crashing import FROM_OUTSIDE, Boundary
from tests.acceptance.zygote import PATIENCE, Forked, Zygote
from tests.conformance.ledger import change, rows
from tests.servers.resend import ResendServer
from tests.servers.smtp import SmtpServer

SETTLED = {"accepted", "failed", "expired", "cancelled", "unresolved", "held"}
DATABASE = "CRASH_DATABASE"
API_KEY = "CRASH_API_KEY"
ENVIRON = {API_KEY: "re_crash_example"}

BODY = "A line of some length, so that the body leaves in more than one piece.\n" * 3000
"""More than two of the pieces in which the adapters hand a message to their sockets."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one delivery."""

    before: int
    """Messages the provider had when the dispatcher died."""
    after: int
    """Messages the provider had in the end."""
    state: str
    reason: str | None
    attempts: tuple[tuple[str, str], ...]
    """Kind and outcome of each."""

    @property
    def doubted(self) -> bool:
        """Whether the delivery was ever in doubt."""
        return any(outcome in {"lost", "in_doubt", "in_flight"} for _, outcome in self.attempts)

    @property
    def lost(self) -> bool:
        """Neither taken nor waiting for anybody."""
        return self.after == 0 and self.state not in {"held", "pending", "in_doubt"}


class Provider:
    """One account of a scenario, and what stands behind it."""

    toml: str = ""
    options: tuple[str, ...] = ()

    def taken(self) -> int:
        """How many messages it has."""
        raise NotImplementedError

    def wait_for_transmissions(self, count: int) -> None:
        """Return when ``count`` messages or questions have come whole."""
        raise NotImplementedError

    def serve_everybody(self) -> None:
        """Answer from now on."""


class KeyProvider(Provider):
    """The Resend emulator. ``modes`` as its own."""

    def __init__(self, server: ResendServer) -> None:
        self._server = server
        self.toml = (
            f'provider = "resend"\nbase_url = "{server.url}"\napi_key = "env:{API_KEY}"\n'
            'timeouts = { read = "20s" }'
        )

    def taken(self) -> int:
        return len(self._server.accepted)

    def wait_for_transmissions(self, count: int) -> None:
        self._server._wait(
            lambda: len(self._server.accepted) + self._server.replayed.total() >= count
        )

    def serve_everybody(self) -> None:
        self._server.script("emulated")


class SmtpAccount(Provider):
    """The SMTP sink."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server
        self.toml = f'provider = "smtp"\nhost = "127.0.0.1"\nport = {server.port}'

    def taken(self) -> int:
        return len(self._server.taken)

    def wait_for_transmissions(self, count: int) -> None:
        self._server.wait_for(lambda: len(self._server.taken) >= count)


class LookUpAccount(Provider):
    """The provider whose ledger is a file; ``how`` is ``hold``, ``lose`` or nothing."""

    options = ("--drain-margin", "0")

    def __init__(self, file: Path, how: str) -> None:
        self._file = file
        self.toml = f'provider = "ledger"\nfile = "{file}"'
        self._how = f"\n{how} = true" if how else ""
        self.toml += self._how

    def taken(self) -> int:
        return len(ledger_provider.taken(self._file))

    def wait_for_transmissions(self, count: int) -> None:
        _until(lambda: self.taken() >= count)

    def serve_everybody(self) -> None:
        self.toml = self.toml.removesuffix(self._how)


Opened = AbstractContextManager[Provider]


@dataclass(frozen=True, slots=True)
class Kind:
    """One column group: a provider, and which attempt is crashed."""

    name: str
    title: str
    attempt: int
    boundaries: tuple[Boundary, ...]
    opened: Callable[[Boundary, Path], Opened] = field(repr=False)


def _served(server: Any, account: Callable[[Any], Provider]) -> Opened:
    @contextmanager
    def opened() -> Iterator[Provider]:
        with server:
            yield account(server)

    return opened()


def _resend(boundary: Boundary, _folder: Path) -> Opened:
    mode = "emulated:gated" if boundary in FROM_OUTSIDE else "emulated"
    return _served(ResendServer(mode), KeyProvider)


def _resend_again(boundary: Boundary, _folder: Path) -> Opened:
    mode = "emulated:gated" if boundary in FROM_OUTSIDE else "emulated"
    return _served(ResendServer("emulated:close", mode), KeyProvider)


def _smtp(boundary: Boundary, _folder: Path) -> Opened:
    dots = ("hang", "250") if boundary in FROM_OUTSIDE else ("250",)
    return _served(SmtpServer(steps={"dot": dots}), SmtpAccount)


def _look_up(boundary: Boundary, folder: Path) -> Opened:
    how = "hold" if boundary in FROM_OUTSIDE else ""
    return nullcontext(LookUpAccount(folder / "ledger.jsonl", how))


def _look_up_asked(_boundary: Boundary, folder: Path) -> Opened:
    return nullcontext(LookUpAccount(folder / "ledger.jsonl", "lose"))


_ALL = tuple(Boundary)
_ASKED = (
    Boundary.BEFORE_CLAIM,
    Boundary.AFTER_CLAIM,
    Boundary.READ,
    Boundary.BEFORE_SETTLE,
    Boundary.AFTER_SETTLE,
)

KINDS = (
    Kind("key", "A provider with a key (Resend): the first attempt", 1, _ALL, _resend),
    Kind("key-replay", "A provider with a key: the replay", 2, _ALL, _resend_again),
    Kind("look-up", "A provider with look-up only: the first attempt", 1, _ALL, _look_up),
    Kind("look-up-asked", "A provider with look-up only: the look-up", 2, _ASKED, _look_up_asked),
    Kind("neither", "A provider with neither (SMTP)", 1, _ALL, _smtp),
)


@dataclass(slots=True)
class _Crash:
    """One crash under way. ``name`` is its account's; ``before`` is what the provider had then."""

    boundary: Boundary
    name: str
    provider: Provider
    process: Forked
    before: int = 0

    @property
    def key(self) -> str:
        return f"crash:{self.name}"


def play(
    zygote: Zygote, url: str, folder: Path, kind: Kind, boundaries: Sequence[Boundary]
) -> dict[Boundary, Seen]:
    """One delivery and one crash for each boundary; then one plain dispatcher for all of them."""
    with ExitStack() as stack:
        crashes = []
        for boundary in boundaries:
            name = f"{kind.name}-{boundary.name.lower().replace('_', '-')}"
            (folder / name).mkdir()
            provider = stack.enter_context(kind.opened(boundary, folder / name))
            config = configuration(folder / name, {name: provider.toml})
            process = start(
                zygote, url, config, *provider.options,
                "--lease", "30", "--at", boundary, "--attempt", str(kind.attempt),
            )  # fmt: skip
            crashes.append(_Crash(boundary, name, provider, process))
        for crash in crashes:
            # Before its account is known, the others would hold a delivery that names it.
            crash.process.wait_until_ready()
            enqueue(url, [crash.key], account=crash.name, text=BODY)
        for crash in crashes:
            if crash.boundary in FROM_OUTSIDE:
                crash.provider.wait_for_transmissions(kind.attempt)
                crash.process.kill()
            ended = crash.process.wait()
            assert ended == -9, f"{crash.name} ended with {ended}: {crash.process.said}"
            crash.before = crash.provider.taken()
            crash.provider.serve_everybody()
        config = configuration(folder, {c.name: c.provider.toml for c in crashes})
        lapse(url)
        plain = start(zygote, url, config, *crashes[0].provider.options)
        until_settled(url, [crash.key for crash in crashes], plain)
        assert plain.terminate() == 0, plain.said
        return {c.boundary: _seen(url, c.key, c.before, c.provider.taken()) for c in crashes}


def start(zygote: Zygote, url: str, config: Path, *arguments: str) -> Forked:
    """A dispatcher that works until it is stopped."""
    environ = {**ENVIRON, DATABASE: url}
    return zygote.fork("--config", str(config), "--mode", "forever", *arguments, environ=environ)


def configuration(
    folder: Path, accounts: Mapping[str, str], *, concurrency: int = 4, poll: str = "50ms"
) -> Path:
    """A configuration file in ``folder`` with these accounts (name -> lines of TOML)."""
    tables = "".join(
        f"""
[accounts.{name}]
retry = {{ attempts = 50, window = "1h", first_delay = "100ms", max_delay = "100ms" }}
{lines}
"""
        for name, lines in accounts.items()
    )
    file = folder / "postroom.toml"
    file.write_text(
        f"""
[database]
url = "env:{DATABASE}"

[defaults]
account = "{next(iter(accounts))}"
from = "Reports <reports@example.com>"

[dispatcher]
poll_interval = "{poll}"
concurrency = {concurrency}
{tables}
""",
        encoding="utf-8",
    )
    return file


def enqueue(url: str, keys: Sequence[str], *, text: str = "Hello\n", **options: Any) -> None:
    """One delivery under each key, in one transaction; the subject is the key."""
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            mails = (
                (outbox.Email(to="ana@example.org", subject=key, text=text), key) for key in keys
            )
            outbox.enqueue_many(connection, mails, **options)
    finally:
        engine.dispose()


def lapse(url: str) -> None:
    """Every lease ran out a moment ago: what a test would only wait for."""
    change(
        url,
        "UPDATE outbox_deliveries SET lease_expires_at = '2026-01-01T00:00:00.000Z' "
        "WHERE lease_expires_at IS NOT NULL",
    )


def states(url: str, keys: Sequence[str]) -> Mapping[str, str]:
    """The state of each key."""
    found = rows(url, "SELECT delivery_key, state FROM outbox_deliveries")
    wanted = set(keys)
    return {str(key): str(state) for key, state in found if key in wanted}


def until_settled(url: str, keys: Sequence[str], worker: Forked) -> None:
    """Return when every key is final or held."""
    worker.wait_until_ready()

    def settled() -> bool:
        assert worker.running, worker.said
        return set(states(url, keys).values()) <= SETTLED

    _until(settled)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def attempts(url: str, key: str) -> tuple[tuple[str, str], ...]:
    """Kind and outcome of every attempt of a delivery; the phase of one that is open."""
    found = rows(
        url,
        "SELECT kind, outcome, phase FROM outbox_attempts a JOIN outbox_deliveries d "
        f"ON d.id = a.delivery_id WHERE delivery_key = '{key}' ORDER BY number",
    )
    return tuple((str(kind), str(outcome or phase)) for kind, outcome, phase in found)


def _seen(url: str, key: str, before: int, after: int) -> Seen:
    [(state, reason)] = rows(
        url, f"SELECT state, reason FROM outbox_deliveries WHERE delivery_key = '{key}'"
    )
    return Seen(before, after, str(state), reason, attempts(url, key))
