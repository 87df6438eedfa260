"""An HTTP provider that behaves and misbehaves on order; it keeps every octet it got.

In a test::

    with HttpServer("429:30", "ok") as server:
        ...  # server.url, server.received

As a process, which prints ``listening PORT`` and ends with SIGTERM::

    python -m tests.servers.http --port 0 --ledger FILE --mode 503 --mode ok

Each request takes the next mode; the last one repeats; ``MODE*N`` is N times
the mode. Every request is in ``received``, and as one JSON line in the ledger,
before a byte of its answer leaves, so that a client killed at any moment finds
a true count. Modes (ARG after a colon):

    ok, slowok:S            200 and an id made from the idempotency key, after S seconds
    keyed                   the same, but a key with another body is answered 409
    gated                   the same, once the test has called ``open_gate()``
    okclose                 ok, then the connection is closed without notice
    json:STATUS:BODY        any body
    STATUS, STATUS:NAME     an error of that status and name; 429 and 503: the Retry-After
    html:STATUS             a page of some proxy
    empty:STATUS            no body
    redirect:STATUS:URL     a redirect
    echo:STATUS             an error that repeats the request's Authorization header
    big:N                   200 and N octets
    badjson                 200 and a welcome page
    trunc, drip:S           half an answer, then the end; or an octet every S seconds
    reset, close, hang:S    no answer: reset, closed, or silence for S seconds
    stall                   the body is not read
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.http_turns import BEHAVIOURS, PATIENCE, Received, Turn

__all__ = ["HttpServer", "Received"]


class HttpServer:
    """The server of this module, on 127.0.0.1, in threads of its own."""

    def __init__(
        self,
        *modes: str,
        port: int = 0,
        ledger: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._modes = _expand(modes)
        self._ledger = ledger
        self._tls = tls
        self._stopping = threading.Event()
        self._gate = threading.Event()
        self._changed = threading.Condition()
        self._received: list[Received] = []
        self._bodies: dict[str, str] = {}
        self._taken = 0
        self._ports: list[int] = []
        self._live: dict[int, socket.socket] = {}
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._gate.set()
        _end(self._listener)
        with self._changed:
            open_ones = list(self._live.values())
        for connection in open_ones:
            _end(connection)

    # What a test asks ------------------------------------------------------ #

    @property
    def received(self) -> list[Received]:
        """Every request of which at least the head arrived and whose turn is over or under way."""
        with self._changed:
            return list(self._received)

    @property
    def connections(self) -> int:
        """How many connections were ever accepted."""
        with self._changed:
            return len(self._ports)

    @property
    def live(self) -> int:
        """How many connections are open now, as far as this side knows."""
        with self._changed:
            return len(self._live)

    def wait_for_live(self, count: int) -> None:
        """Wait until exactly ``count`` connections are open; blocks."""
        self._wait(lambda: len(self._live) == count)

    def script(self, *modes: str) -> None:
        """Follow ``modes`` from the next request on."""
        with self._changed:
            self._modes, self._taken = _expand(modes), 0

    def open_gate(self) -> None:
        """Let every ``gated`` request go on, those to come too."""
        self._gate.set()

    def wait_for(self, count: int) -> list[Received]:
        """The requests, once there are ``count``; blocks."""
        self._wait(lambda: len(self._received) >= count)
        return self.received

    def wait_until_quiet(self) -> list[Received]:
        """The requests, once every connection has ended; blocks. Close the client first."""
        # Connections are accepted in order, so once this one is, every earlier one is counted.
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            port: int = last.getsockname()[1]
            self._wait(lambda: port in self._ports)
        self._wait(lambda: not self._live)
        return self.received

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE):
                raise TimeoutError(f"did not happen; {len(self._received)} requests came")

    # What a turn asks ------------------------------------------------------ #

    def pause(self, seconds: float) -> bool:
        """Wait; true if the server is being stopped."""
        return self._stopping.wait(seconds)

    def pass_gate(self) -> None:
        self._gate.wait(PATIENCE)

    def knows_other_body(self, request: Received) -> bool:
        with self._changed:
            first = self._bodies.setdefault(request.key or "", request.sha256)
            return first != request.sha256

    # What it does ---------------------------------------------------------- #

    def serve_forever(self) -> None:
        self._accept()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self._ports.append(address[1])
                number = len(self._ports)
                self._live[number] = connection
                self._changed.notify_all()
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(self._ended, number)
            stack.callback(_end, connection)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                stack.callback(_end, connection)
            reader = _Reader(connection)
            while self._exchange(connection, number, reader):
                pass

    def _exchange(self, connection: socket.socket, number: int, reader: _Reader) -> bool:
        head = reader.until(b"\r\n\r\n")
        if head is None:
            return False
        line, _, rest = head.decode("latin-1").partition("\r\n")
        method, path, _ = line.split(" ", 2)
        headers = {
            name.lower(): value.strip()
            for name, _, value in (item.partition(":") for item in rest.split("\r\n") if item)
        }
        mode = self._next_mode()
        length = int(headers.get("content-length", "0"))
        body = b"" if mode == "stall" else reader.up_to(length)
        request = self._note(mode, number, method, path, headers, body, whole=len(body) == length)
        name, _, argument = mode.partition(":")
        if name.isdigit():
            name, argument = "error", mode
        return BEHAVIOURS[name](Turn(self, connection, request, argument))

    def _ended(self, number: int) -> None:
        with self._changed:
            del self._live[number]
            self._changed.notify_all()

    def _next_mode(self) -> str:
        with self._changed:
            mode = self._modes[min(self._taken, len(self._modes) - 1)]
            self._taken += 1
            return mode

    def _note(
        self,
        mode: str,
        connection: int,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        *,
        whole: bool,
    ) -> Received:
        with self._changed:
            number = len(self._received) + 1
            request = Received(number, connection, mode, method, path, headers, body, whole)
            self._received.append(request)
            if self._ledger is not None:
                with self._ledger.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_ledger_line(request)) + "\n")
            self._changed.notify_all()
            return request


class _Reader:
    """Reads a connection piece by piece; keeps what came too early."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._kept = b""

    def until(self, mark: bytes) -> bytes | None:
        while mark not in self._kept:
            if not self._more():
                return None
        found, _, self._kept = self._kept.partition(mark)
        return found

    def up_to(self, length: int) -> bytes:
        while len(self._kept) < length and self._more():
            pass
        found, self._kept = self._kept[:length], self._kept[length:]
        return found

    def _more(self) -> bool:
        try:
            piece = self._connection.recv(65536)
        except OSError:
            return False
        self._kept += piece
        return bool(piece)


def _ledger_line(request: Received) -> dict[str, object]:
    return {
        "n": request.number,
        "t": time.time(),
        "mode": request.mode,
        "method": request.method,
        "path": request.path,
        "key": request.key,
        "authorized": "authorization" in request.headers,
        "sha256": request.sha256,
        "whole": request.whole,
        "connection": request.connection,
        "body": request.body.decode("utf-8", "replace"),
    }


def _expand(modes: tuple[str, ...]) -> list[str]:
    expanded: list[str] = []
    for mode in modes or ("ok",):
        name, star, count = mode.rpartition("*")
        expanded += [name] * int(count) if star and count.isdigit() else [mode]
    return expanded


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="An HTTP provider that misbehaves on order.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--mode", action="append", default=[])
    arguments = parser.parse_args()
    server = HttpServer(*arguments.mode, port=arguments.port, ledger=arguments.ledger)
    print(f"listening {server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
