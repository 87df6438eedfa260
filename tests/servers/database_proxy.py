"""Between a client and PostgreSQL: it cuts a session at a COMMIT, before it or after it.

For those who send COMMIT and lose the connection, both look the same.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_COMMIT = b"COMMIT"


class DatabaseProxy:
    """Forwards bytes; ``url`` is where to connect instead of ``target``.

    Once :meth:`cut_commits` was called, that many next COMMITs are each the end of
    their connection: forwarded and done, but never answered, or never forwarded.
    """

    def __init__(self, target: str) -> None:
        self._there = urlsplit(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = f"{self._there.username}@" if self._there.username else ""
        self.url = urlunsplit(self._there._replace(netloc=f"{user}127.0.0.1:{port}"))
        self.cut = 0
        self._left = 0
        self._done = True
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()

    def cut_commits(self, count: int, *, done: bool) -> None:
        """Cut the next ``count`` COMMITs; ``done``: the server has done each."""
        with self._lock:
            self._left, self._done = count, done

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            address = (self._there.hostname or "127.0.0.1", self._there.port or 5432)
            server = socket.create_connection(address)
            for work in (self._requests, self._answers):
                threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        while data := _received(client):
            if _COMMIT in data and self._is_cut():
                _close(client)
                if self._done:
                    # The server reads it, then the end, which is the session's.
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                    return
                break
            try:
                server.sendall(data)
            except OSError:
                break
        _close(server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        while data := _received(server):
            with suppress(OSError):
                client.sendall(data)
        _close(client)
        _close(server)

    def _is_cut(self) -> bool:
        with self._lock:
            cut = self._left > 0
            self._left -= cut
            self.cut += cut
            return cut


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except OSError:
        return b""


def _close(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
