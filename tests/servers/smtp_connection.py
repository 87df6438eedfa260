"""One connection of the SMTP sink: commands in, scripted replies out."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

_TEXTS = {
    "211": "System status",
    "220": "sink.example ESMTP",
    "221": "2.0.0 Bye",
    "235": "2.7.0 Authentication successful",
    "250": "2.0.0 Ok",
    "334": "",
    "354": "End data with <CR><LF>.<CR><LF>",
    "421": "4.4.2 Closing",
}
_PATH = re.compile(r"<([^>]*)>")


@dataclass(frozen=True, slots=True)
class Taken:
    """One message whose final dot arrived and was not refused."""

    number: int
    connection: int
    sender: str
    options: tuple[str, ...]
    recipients: tuple[str, ...]
    content: bytes = field(repr=False)
    wire: bytes = field(repr=False)
    """The octets between 354 and the reply, the final dot included."""


class Desk(Protocol):
    """What a connection needs of its server."""

    stopping: threading.Event
    tls_context: ssl.SSLContext
    extensions: tuple[str, ...]
    tls: str
    delay: float
    body_octets: int

    def action(self, *steps: str) -> str | None: ...
    def note_command(self, connection: int, line: str) -> None: ...
    def note_unfinished(self, body: bytes) -> None: ...
    def note_ignored(self, octets: bytes) -> None: ...
    def note_refused(self, body: bytes) -> None: ...
    def note_taken(
        self, connection: int, sender: str, recipients: list[str], wire: bytes, content: bytes
    ) -> int: ...


class Ended(Exception):
    """This connection is over."""


def unstuffed(wire: bytes) -> bytes:
    """The message in ``wire`` (final dot included), as a server stores it."""
    lines = wire.removesuffix(b".\r\n").split(b"\r\n")
    return b"\r\n".join(line[1:] if line.startswith(b".") else line for line in lines)


class Connection:
    """Serves one client until it leaves or the script says so."""

    def __init__(self, number: int, connection: socket.socket, desk: Desk) -> None:
        self.number = number
        self.socket = connection
        self._desk = desk
        self._buffer = bytearray()
        self._sender = ""
        self._recipients: list[str] = []
        self._messages = 0
        self._secure = False
        self._verbs: dict[str, Callable[[str], object]] = {
            "EHLO": self._ehlo,
            "HELO": lambda _: self._answer("helo", "250"),
            "STARTTLS": self._starttls,
            "AUTH": self._auth,
            "MAIL": self._mail,
            "RCPT": self._rcpt,
            "DATA": self._data,
            "RSET": self._rset,
            "NOOP": lambda _: self._answer("noop", "250"),
            "QUIT": self._quit,
        }

    def serve(self) -> None:
        try:
            if self._desk.tls == "implicit":
                self._wrap()
            self._answer("greeting", "220")
            while True:
                self._command(self._line())
        except (Ended, OSError):
            pass  # The client left, or the script ended the connection.
        finally:
            self.socket.close()

    def _command(self, line: str) -> None:
        self._desk.note_command(self.number, line)
        verb, _, rest = line.partition(" ")
        if self._messages and verb.upper() != "QUIT":
            action = self._desk.action("reused")
            if action is not None and action != "go":
                self._do(action)
                if action.startswith("421"):
                    raise Ended
                return
        handler = self._verbs.get(verb.upper())
        if handler is None:
            self._say("500 5.5.2 What?")
        else:
            handler(rest)

    # Reading and answering

    def _line(self) -> str:
        while (end := self._buffer.find(b"\n")) < 0:
            self._receive()
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line.decode("utf-8", "replace").rstrip("\r\n")

    def _receive(self) -> None:
        received = self.socket.recv(65536)
        if not received:
            raise Ended
        self._buffer += received

    def _say(self, reply: str) -> None:
        code, _, text = reply.partition(" ")
        text = text or _TEXTS.get(code, "refused by the script")
        self.socket.sendall(f"{code} {text}\r\n".encode())

    def _answer(self, step: str, default: str) -> str:
        """Do what the script says at ``step``; returns the action."""
        action = self._desk.action(step) or default
        self._do(action)
        return action

    def _do(self, action: str) -> None:
        """A reply, or ``drop``, ``reset``, ``hang`` (until the client leaves), ``raw:TEXT``."""
        if action == "drop":
            raise Ended
        if action == "reset":
            self._reset()
        if action == "hang":
            self._ignore()
        if action.startswith("raw:"):
            self.socket.sendall(action[4:].encode().decode("unicode_escape").encode())
            return
        self._say(action)
        if action.startswith("421"):
            raise Ended

    def _ignore(self) -> None:
        before = len(self._buffer)
        try:
            while True:
                self._receive()
        finally:
            self._desk.note_ignored(bytes(self._buffer[before:]))

    def _reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Ended

    # Commands

    def _wrap(self) -> None:
        self.socket = self._desk.tls_context.wrap_socket(self.socket, server_side=True)
        self._buffer.clear()
        self._secure = True

    def _ehlo(self, _: str) -> None:
        action = self._desk.action("ehlo")
        if action is not None and not action.startswith("250"):
            self._do(action)
            return
        offered = list(self._desk.extensions)
        if self._desk.tls == "starttls" and not self._secure:
            offered.append("STARTTLS")
        lines = ["sink.example", *offered]
        said = [f"250-{line}\r\n" for line in lines[:-1]] + [f"250 {lines[-1]}\r\n"]
        self.socket.sendall("".join(said).encode())

    def _starttls(self, _: str) -> None:
        if self._answer("starttls", "220 2.0.0 Ready").startswith("220"):
            self._wrap()

    def _auth(self, rest: str) -> None:
        mechanism, _, initial = rest.partition(" ")
        if mechanism.upper() == "CRAM-MD5":
            self._say("334 PDE+")
            self._line()
        elif mechanism.upper() == "LOGIN" and initial:
            self._say("334 UGFzc3dvcmQ6")
            self._line()
        action = self._desk.action(f"auth:{mechanism.lower()}", "auth") or "235"
        self._do(action.replace("{quoted}", rest))

    def _mail(self, rest: str) -> None:
        if self._answer("mail", "250 2.1.0 Ok").startswith("2"):
            self._sender, self._recipients = rest, []

    def _rcpt(self, rest: str) -> None:
        found = _PATH.search(rest)
        address = found[1] if found else rest
        action = self._desk.action(f"rcpt:{address}", "rcpt") or "250 2.1.5 Ok"
        self._do(action)
        if action.startswith("2"):
            self._recipients.append(address)

    def _rset(self, _: str) -> None:
        self._sender, self._recipients = "", []
        self._answer("rset", "250")

    def _quit(self, _: str) -> None:
        self._answer("quit", "221")
        raise Ended

    def _data(self, _: str) -> None:
        if not self._recipients:
            self._say("554 5.5.1 No valid recipients")
            return
        if not self._answer("data", "354").startswith("354"):
            return
        wire = self._body()
        self._settle(wire)
        self._sender, self._recipients = "", []

    def _body(self) -> bytes:
        action = self._desk.action("body")
        seen = 0
        try:
            while True:
                if action is not None and len(self._buffer) >= self._desk.body_octets:
                    self._in_body(action)
                    action = None
                if self._buffer.startswith(b".\r\n"):
                    end = 3
                    break
                tail = self._buffer.find(b"\r\n.\r\n", max(0, seen - 4))
                if tail >= 0:
                    end = tail + 5
                    break
                seen = len(self._buffer)
                self._receive()
        except (Ended, OSError):
            self._desk.note_unfinished(bytes(self._buffer))
            raise
        wire = bytes(self._buffer[:end])
        del self._buffer[:end]
        return wire

    def _in_body(self, action: str) -> None:
        if action == "stall":
            self._desk.stopping.wait()
            raise Ended
        if action[0].isdigit():
            # Not closed, whatever the code: RST would take the reply back.
            self._say(action)
        elif action != "go":
            self._do(action)

    def _settle(self, wire: bytes) -> None:
        action = self._desk.action("dot") or "250"
        content = unstuffed(wire)
        if action[0] in "45":
            self._desk.note_refused(content)
        else:
            number = self._desk.note_taken(
                self.number, self._sender, self._recipients, wire, content
            )
            if action == "250":
                action = f"250 2.0.0 Ok: queued as SINK{number}"
        self._messages += 1
        if self._desk.delay:
            self._desk.stopping.wait(self._desk.delay)
        self._do(action)
