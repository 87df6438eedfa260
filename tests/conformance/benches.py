"""Benches for the suite of ``providers.testing``: each of our adapters with its far side."""

from __future__ import annotations

import asyncio
import contextlib
import email
import email.policy
import json
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from pathlib import Path

from providers import file, memory, resend, smtp
from providers.contract import (
    Accepted,
    AccountBlocked,
    Duplicate,
    InDoubt,
    InFlight,
    KeyMismatch,
    Message,
    Provider,
    Rejected,
    Throttled,
    Unavailable,
)
from providers.testing import ACCEPTED, Arrived, Scenario
from tests.servers.http import HttpServer, Received
from tests.servers.smtp import SmtpServer


@dataclass
class OpenSite:
    """One open account; what it is to its far side is given as functions."""

    provider: Provider
    begun: Callable[[], int]
    arrived: Callable[[], Awaitable[list[Arrived]]]

    async def finish(self) -> list[Arrived]:
        await self.provider.aclose()
        return await self.arrived()


def unused_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


class MimeReader:
    """What the adapters that write MIME have in common."""

    def visible(self, content: bytes) -> bytes:
        return content

    def texts(self, content: bytes) -> tuple[str | None, str | None]:
        message = email.message_from_bytes(content, policy=email.policy.default)
        return self._text(message, "plain"), self._text(message, "html")

    def _text(self, message: EmailMessage, kind: str) -> str | None:
        part = message.get_body((kind,))
        payload = part.get_payload(decode=True) if part else None
        return payload.decode().replace("\r\n", "\n") if isinstance(payload, bytes) else None


@dataclass
class FileBench(MimeReader):
    """Files in a folder."""

    secrets: Sequence[str] = ()
    scenarios: Mapping[str, Scenario] = field(
        default_factory=lambda: {
            ACCEPTED: Scenario(Accepted, {"replayed": False}),
            "no-folder": Scenario(Unavailable, {"reason": "unwritable", "counted": True}),
        }
    )

    @contextlib.asynccontextmanager
    async def open(self, scenario: str) -> AsyncIterator[OpenSite]:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "mail"
            if scenario == "no-folder":
                folder.write_text("a file where the folder should be")
                folder /= "inside"
            provider = file.open_account("main", file.Settings(directory=folder))

            async def arrived() -> list[Arrived]:
                return [self._read(path) for path in sorted(folder.glob("*.eml"))] + [
                    Arrived(frozenset(), path.read_bytes(), whole=False)
                    for path in folder.glob(".*")
                ]

            yield OpenSite(provider, lambda: len(list(folder.glob("*"))), arrived)

    def _read(self, path: Path) -> Arrived:
        envelope = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return Arrived(frozenset(envelope["recipients"]), path.read_bytes())


MEMORY_SCRIPTS: dict[str, tuple[memory.Step, Scenario]] = {
    ACCEPTED: (Accepted("<1>"), Scenario(Accepted)),
    "replayed": (Accepted("<1>", replayed=True), Scenario(Accepted, {"replayed": True})),
    "duplicate": (Duplicate("known"), Scenario(Duplicate)),
    "rejected": (Rejected("no", "550"), Scenario(Rejected, {"code": "550"})),
    "refused-before": (memory.BeforeMark(Rejected("no")), Scenario(Rejected, marked=False)),
    "throttled": (Throttled(3.0), Scenario(Throttled, {"retry_after": 3.0})),
    "unavailable": (memory.BeforeMark(Unavailable("dns")), Scenario(Unavailable, marked=False)),
    "blocked": (AccountBlocked("quota", "day"), Scenario(AccountBlocked, {"kind": "quota"})),
    "in-doubt": (InDoubt("read_timeout"), Scenario(InDoubt)),
    "in-flight": (InFlight(1.0), Scenario(InFlight)),
    "mismatch": (KeyMismatch(), Scenario(KeyMismatch)),
}


@dataclass
class MemoryBench:
    """No far side but a list."""

    secrets: Sequence[str] = ()
    make: Callable[[Sequence[memory.Step]], memory.MemoryProvider] = field(
        default=lambda steps: memory.MemoryProvider("main", steps)
    )

    @property
    def scenarios(self) -> Mapping[str, Scenario]:
        return {name: scenario for name, (_, scenario) in MEMORY_SCRIPTS.items()}

    @contextlib.asynccontextmanager
    async def open(self, scenario: str) -> AsyncIterator[OpenSite]:
        steps = () if scenario == ACCEPTED else (MEMORY_SCRIPTS[scenario][0],)
        provider = self.make(steps)

        async def arrived() -> list[Arrived]:
            return [self._read(message) for message in provider.sent]

        yield OpenSite(provider, lambda: len(provider.sent), arrived)

    def _read(self, message: Message) -> Arrived:
        shown = replace(message, bcc=(), recipients=(), metadata={})
        parts = {"text": message.text, "html": message.html, "shown": repr(shown)}
        whole = memory.request_bytes(message).decode()
        content = json.dumps({**parts, "whole": whole}, sort_keys=True)
        return Arrived(frozenset(message.recipients), content.encode())

    def visible(self, content: bytes) -> bytes:
        shown: str = json.loads(content)["shown"].replace("bcc=()", "")
        return shown.encode()

    def texts(self, content: bytes) -> tuple[str | None, str | None]:
        parts = json.loads(content)
        return parts["text"], parts["html"]


RESEND_MODES: dict[str, tuple[str, Scenario]] = {
    ACCEPTED: ("ok", Scenario(Accepted)),
    "rejected": ("422", Scenario(Rejected, {"code": "validation_error"})),
    "throttled": ("429:30", Scenario(Throttled, {"retry_after": 30.0})),
    "quota": ("429:daily_quota_exceeded", Scenario(AccountBlocked, {"kind": "quota"})),
    "credentials": ("echo:403", Scenario(AccountBlocked, {"kind": "credentials"})),
    "domain": (
        "403:validation_error",
        Scenario(AccountBlocked, {"kind": "sender_domain", "scope": "example.com"}),
    ),
    "empty-401": ("empty:401", Scenario(AccountBlocked, {"kind": "credentials"})),
    "busy": ("409:concurrent_idempotent_requests", Scenario(InFlight)),
    "mismatch": ("409:invalid_idempotent_request", Scenario(KeyMismatch)),
    "unknown-409": ("409", Scenario(InDoubt)),
    "server-error": ("html:502", Scenario(InDoubt)),
    "unreadable": ("badjson", Scenario(InDoubt)),
    "truncated": ("trunc", Scenario(InDoubt, {"reason": "truncated"})),
    "reset": ("reset", Scenario(InDoubt, {"reason": "reset"})),
    "closed": ("close", Scenario(InDoubt, {"reason": "closed"})),
    "silent": ("hang", Scenario(InDoubt, {"reason": "read_timeout"})),
    "moved": ("redirect:308:http://127.0.0.1:9/", Scenario(Unavailable)),
    "refused": ("", Scenario(Unavailable, {"reason": "refused"})),
}


@dataclass
class ResendBench:
    """The HTTP stub. The environment has to hold the key."""

    secrets: Sequence[str] = ("re_example_KEY_123",)

    @property
    def scenarios(self) -> Mapping[str, Scenario]:
        return {name: scenario for name, (_, scenario) in RESEND_MODES.items()}

    @contextlib.asynccontextmanager
    async def open(self, scenario: str) -> AsyncIterator[OpenSite]:
        mode = RESEND_MODES[scenario][0]
        with HttpServer(mode or "ok") as server:
            url = server.url if mode else f"http://127.0.0.1:{unused_port()}"
            settings = resend.Settings.model_validate(
                {
                    "api_key": "env:RESEND_API_KEY",
                    "base_url": url,
                    "connections": 2,
                    "timeouts": {"read": "1s" if mode == "hang" else "60s"},
                }
            )
            provider = resend.open_account("main", settings)

            async def arrived() -> list[Arrived]:
                requests = await asyncio.to_thread(server.wait_until_quiet)
                return [self._read(request) for request in requests if request.body]

            yield OpenSite(
                provider, lambda: sum(bool(one.body) for one in server.received), arrived
            )

    def _read(self, request: Received) -> Arrived:
        body = json.loads(request.body) if request.whole else {}
        entries = [*body.get("to", ()), *body.get("cc", ()), *body.get("bcc", ())]
        addresses = frozenset(re.sub(r".*<(.*)>", r"\1", entry) for entry in entries)
        return Arrived(addresses, request.body, request.whole)

    def visible(self, content: bytes) -> bytes:
        body = json.loads(content)
        body.pop("bcc", None)
        return json.dumps(body).encode()

    def texts(self, content: bytes) -> tuple[str | None, str | None]:
        body = json.loads(content)
        return body.get("text"), body.get("html")


SMTP_STEPS: dict[str, tuple[dict[str, Sequence[str]], Scenario]] = {
    ACCEPTED: ({}, Scenario(Accepted)),
    "busy-greeting": ({"greeting": ["421"]}, Scenario(Unavailable, marked=False)),
    "sender-refused": ({"mail": ["553"]}, Scenario(Rejected, {"code": "553"}, marked=False)),
    "all-refused": ({"rcpt": ["550"]}, Scenario(Rejected, {"code": "550"}, marked=False)),
    "all-later": ({"rcpt": ["451"]}, Scenario(Unavailable, marked=False)),
    "later": ({"dot": ["451"]}, Scenario(Unavailable, {"counted": True})),
    "rejected": ({"dot": ["554"]}, Scenario(Rejected, {"code": "554"})),
    "lost-after-dot": ({"dot": ["drop"]}, Scenario(InDoubt)),
    "credentials": (
        {"auth": ["535 5.7.8 no s3cr3t-Example!"]},
        Scenario(AccountBlocked, {"kind": "credentials"}, marked=False),
    ),
}


@dataclass
class SmtpBench(MimeReader):
    """The SMTP sink. The environment has to hold the password."""

    secrets: Sequence[str] = ("s3cr3t-Example!", "czNjcjN0LUV4YW1wbGUh")

    @property
    def scenarios(self) -> Mapping[str, Scenario]:
        return {name: scenario for name, (_, scenario) in SMTP_STEPS.items()}

    @contextlib.asynccontextmanager
    async def open(self, scenario: str) -> AsyncIterator[OpenSite]:
        steps = SMTP_STEPS[scenario][0]
        extensions = ("AUTH PLAIN", "8BITMIME") if "auth" in steps else ("8BITMIME",)
        login = {"username": "user", "password": "env:SMTP_PASSWORD"} if "auth" in steps else {}
        with SmtpServer(steps=steps, extensions=extensions) as server:
            settings = smtp.Settings.model_validate(
                {"host": "127.0.0.1", "port": server.port, **login}
            )
            provider = smtp.open_account("main", settings)

            def begun() -> int:
                return len(server.taken) + len(server.refused) + sum(map(bool, server.unfinished))

            async def arrived() -> list[Arrived]:
                await asyncio.to_thread(server.wait_for, lambda: server.open == 0)
                halves = [*server.refused, *filter(None, server.unfinished)]
                return [Arrived(frozenset(one.recipients), one.content) for one in server.taken] + [
                    Arrived(frozenset(), half, whole=False) for half in halves
                ]

            yield OpenSite(provider, begun, arrived)
