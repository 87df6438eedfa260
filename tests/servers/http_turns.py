"""What the HTTP stub can do with a request: one function for each mode."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

PATIENCE = 20.0
"""Seconds after which a wait in a test is a failure and not slowness."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived; ``whole`` is False if its body broke off."""

    number: int
    connection: int
    mode: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    whole: bool

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


class Desk(Protocol):
    """What a turn needs of its server."""

    def pause(self, seconds: float) -> bool: ...
    def pass_gate(self) -> None: ...
    def knows_other_body(self, request: Received) -> bool: ...


def _head(status: int, length: int, headers: Mapping[str, str]) -> bytes:
    fields = {"Content-Type": "application/json", "Content-Length": str(length), **headers}
    lines = [f"HTTP/1.1 {status} Stub", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Turn:
    """One request that waits for its answer."""

    server: Desk
    connection: socket.socket
    request: Received
    argument: str

    def answer(
        self,
        status: int,
        body: bytes | Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> bool:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.sendall(_head(status, len(content), headers or {}) + content)
        return True


# Each returns whether the connection goes on. ------------------------------- #


def _ok(turn: Turn) -> bool:
    turn.server.pause(float(turn.argument or 0))
    return turn.answer(200, {"id": f"stub-{turn.request.key or turn.request.number}"})


def _keyed(turn: Turn) -> bool:
    if turn.server.knows_other_body(turn.request):
        return _error(replace(turn, argument="409:invalid_idempotent_request"))
    return _ok(turn)


def _gated(turn: Turn) -> bool:
    turn.server.pass_gate()
    return _ok(turn)


def _okclose(turn: Turn) -> bool:
    _ok(turn)
    return False


def _json(turn: Turn) -> bool:
    status, _, body = turn.argument.partition(":")
    return turn.answer(int(status), body.encode())


def _error(turn: Turn) -> bool:
    status, _, name = turn.argument.partition(":")
    headers = {}
    if name and (status == "503" or (status == "429" and not name.endswith("_exceeded"))):
        headers, name = {"Retry-After": name}, ""
    name = name or _NAMES.get(int(status), "stub")
    body = {"statusCode": int(status), "name": name, "message": f"the stub says {status}"}
    return turn.answer(int(status), body, headers)


def _html(turn: Turn) -> bool:
    page = b"<!DOCTYPE html><html><title>Some proxy</title></html>"
    return turn.answer(int(turn.argument), page, {"Content-Type": "text/html"})


def _empty(turn: Turn) -> bool:
    return turn.answer(int(turn.argument), b"")


def _redirect(turn: Turn) -> bool:
    status, _, url = turn.argument.partition(":")
    return turn.answer(int(status), b"", {"Location": url})


def _echo(turn: Turn) -> bool:
    sent = turn.request.headers.get("authorization", "")
    body = {"name": "invalid_api_key", "message": f"not allowed with {sent}"}
    return turn.answer(int(turn.argument), body)


def _cookie(turn: Turn) -> bool:
    return turn.answer(200, {"id": "stub"}, {"Set-Cookie": "session=1; Path=/"})


def _big(turn: Turn) -> bool:
    return turn.answer(200, b" " * int(turn.argument))


def _badjson(turn: Turn) -> bool:
    return turn.answer(200, b"welcome to the mail API", {"Content-Type": "text/plain"})


def _trunc(turn: Turn) -> bool:
    turn.connection.sendall(_head(200, 200, {}) + b'{"id":"stub-')
    return False


def _drip(turn: Turn) -> bool:
    turn.connection.sendall(_head(200, 100_000, {}))
    while not turn.server.pause(float(turn.argument)):
        turn.connection.sendall(b" ")
    return False


def _reset(turn: Turn) -> bool:
    turn.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    turn.connection.close()
    return False


def _hang(turn: Turn) -> bool:
    turn.connection.settimeout(float(turn.argument or PATIENCE))
    # Reading notices a client that has gone, so that nobody waits for this thread.
    with contextlib.suppress(TimeoutError):
        turn.connection.recv(1)
    return False


def _stall(turn: Turn) -> bool:
    turn.server.pause(PATIENCE)
    return False


BEHAVIOURS: dict[str, Callable[[Turn], bool]] = {
    "ok": _ok,
    "slowok": _ok,
    "keyed": _keyed,
    "gated": _gated,
    "okclose": _okclose,
    "json": _json,
    "error": _error,
    "html": _html,
    "empty": _empty,
    "redirect": _redirect,
    "echo": _echo,
    "cookie": _cookie,
    "big": _big,
    "badjson": _badjson,
    "trunc": _trunc,
    "drip": _drip,
    "reset": _reset,
    "close": lambda _turn: False,
    "hang": _hang,
    "stall": _stall,
}

_NAMES = {422: "validation_error", 429: "rate_limit_exceeded", 500: "application_error"}
