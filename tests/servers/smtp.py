"""An SMTP server that takes mail, keeps the exact octets, and misbehaves by script.

In a test::

    with SmtpServer(steps={"dot": ("451", "250")}) as server:
        ...  # server.port
        server.wait_for(lambda: server.taken)

As a process it prints ``{"port": ...}``, appends one JSON line per message to a
ledger *before* it answers the final dot, and on SIGTERM prints its counts::

    python -m tests.servers.smtp --ledger mail.jsonl --step dot=451/250 --extension SIZE=1000

A step is ``greeting``, ``ehlo``, ``helo``, ``starttls``, ``auth`` (``auth:plain``
for one mechanism), ``mail``, ``rcpt`` (``rcpt:ADDRESS`` for one), ``data``,
``body``, ``dot``, ``reused`` (the first command after a message on the same
connection), ``rset``, ``noop``, ``quit``. Its actions are used one after the
other, the last one again and again. An action is

* a reply: ``451`` or ``451 4.3.0 Try later`` (421 ends the connection as well),
* ``drop`` (FIN), ``reset`` (RST), ``hang`` (no answer until the client leaves),
* ``stall`` (in ``body``: stop reading), ``go`` (in ``reused``: nothing special),
* ``raw:TEXT`` (these octets; backslash escapes are read).

The step ``body`` is done after the first octets of the message arrived
(``body_octets``). A message counts as taken when its dot was not answered 4yz
or 5yz: a server that drops or hangs after the dot has it.
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.servers.smtp_connection import Connection, Taken

CERTIFICATE = Path(__file__).with_name("test-only.pem")
"""Self-signed, for localhost and 127.0.0.1, with its key. Nobody trusts it but tests."""

TlsKind = Literal["none", "starttls", "implicit"]


class SmtpServer:
    """A scripted SMTP server in threads of this process; a context manager."""

    def __init__(
        self,
        *,
        steps: Mapping[str, Sequence[str]] | None = None,
        extensions: Sequence[str] = (),
        tls: TlsKind = "none",
        delay: float = 0.0,
        body_octets: int = 1,
        ledger: Path | None = None,
        port: int = 0,
    ) -> None:
        self.extensions = tuple(extensions)
        self.tls: str = tls
        self.delay = delay
        self.body_octets = body_octets
        self.tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls_context.load_cert_chain(CERTIFICATE)
        self.stopping = threading.Event()
        self.connections = 0
        self.open = 0
        self.commands: list[tuple[int, str]] = []
        self.taken: list[Taken] = []
        self.refused: list[bytes] = []
        self.unfinished: list[bytes] = []
        self.ignored: list[bytes] = []
        self._ledger = ledger
        self._steps = {step: list(actions) for step, actions in (steps or {}).items()}
        self._used: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._live: dict[int, Connection] = {}
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_all()
        for thread in self._threads:
            thread.join(timeout=30)

    # What tests ask

    def wait_for(self, condition: Callable[[], object], timeout: float = 30.0) -> None:
        """Wait until ``condition`` holds; it is asked again after everything that happens.

        Raises TimeoutError after ``timeout`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: bool(condition()), timeout):
                raise TimeoutError(f"did not happen; so far: {self.commands}")

    def count(self, verb: str) -> int:
        """How often the command ``verb`` was said."""
        return sum(line.partition(" ")[0].upper() == verb for _, line in self.commands)

    def said(self, verb: str) -> list[str]:
        """The arguments of every ``verb``."""
        return [line.partition(" ")[2] for _, line in self.commands if line.startswith(verb)]

    def drop_all(self) -> None:
        """End every open connection from this side."""
        self.drop(*list(self._live))

    def drop(self, *numbers: int) -> None:
        """End these connections, if they are still open."""
        with self._changed:
            live = [self._live[number] for number in numbers if number in self._live]
        for connection in live:
            try:
                connection.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def number_of(self, client_port: int) -> int:
        """The number of the open connection that comes from ``client_port``."""
        with self._changed:
            return next(
                number
                for number, connection in self._live.items()
                if connection.socket.getpeername()[1] == client_port
            )

    # What connections tell

    def action(self, *steps: str) -> str | None:
        with self._changed:
            for step in steps:
                actions = self._steps.get(step)
                if actions:
                    index = min(self._used[step], len(actions) - 1)
                    self._used[step] += 1
                    return actions[index]
        return None

    def note_command(self, connection: int, line: str) -> None:
        with self._changed:
            self.commands.append((connection, line))
            self._changed.notify_all()

    def note_unfinished(self, body: bytes) -> None:
        with self._changed:
            self.unfinished.append(body)
            self._changed.notify_all()

    def note_ignored(self, octets: bytes) -> None:
        with self._changed:
            self.ignored.append(octets)
            self._changed.notify_all()

    def note_refused(self, body: bytes) -> None:
        with self._changed:
            self.refused.append(body)
            self._changed.notify_all()

    def note_taken(
        self, connection: int, sender: str, recipients: list[str], wire: bytes, content: bytes
    ) -> int:
        path, *options = sender.split()
        with self._changed:
            taken = Taken(
                number=len(self.taken) + 1,
                connection=connection,
                sender=path.partition(":")[2].strip("<>"),
                options=tuple(options),
                recipients=tuple(recipients),
                content=content,
                wire=wire,
            )
            self.taken.append(taken)
            if self._ledger is not None:
                with self._ledger.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_ledger_line(taken)) + "\n")
            self._changed.notify_all()
            return taken.number

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return  # The listener was closed: the server ends.
            with self._changed:
                self.connections += 1
                self.open += 1
                connection = Connection(self.connections, accepted, self)
                self._live[connection.number] = connection
                self._changed.notify_all()
            self._start(self._serve, connection)

    def _serve(self, connection: Connection) -> None:
        connection.serve()
        with self._changed:
            self.open -= 1
            del self._live[connection.number]
            self._changed.notify_all()

    def _start(self, target: Callable[..., None], *arguments: Connection) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


def _ledger_line(taken: Taken) -> dict[str, object]:
    return {
        "number": taken.number,
        "connection": taken.connection,
        "from": taken.sender,
        "options": taken.options,
        "to": taken.recipients,
        "message": base64.b64encode(taken.content).decode("ascii"),
    }


def _step(value: str) -> tuple[str, list[str]]:
    name, _, actions = value.partition("=")
    return name, actions.split("/")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.smtp")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--tls", choices=["none", "starttls", "implicit"], default="none")
    parser.add_argument("--extension", action="append", default=[], help="SIZE=1000, 8BITMIME …")
    parser.add_argument("--step", action="append", default=[], type=_step, help="dot=451/250")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before the final reply")
    given = parser.parse_args(arguments)
    # Before any thread starts, so that every one of them leaves the signals to this one.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with SmtpServer(
        steps=dict(given.step),
        extensions=[name.replace("=", " ", 1) for name in given.extension],
        tls=given.tls,
        delay=given.delay,
        ledger=given.ledger,
        port=given.port,
    ) as server:
        print(json.dumps({"port": server.port}), flush=True)
        signal.sigwait(ends)
    counts = {"connections": server.connections, "taken": len(server.taken)}
    print(json.dumps(counts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
