"""One PostgreSQL server for one test run, however many processes the run has.

pytest-xdist runs the tests in workers, and only a worker knows whether a test
needs a database. So the server starts at the first need, in whichever process
that is, and ends with the run. Three locks (``flock``, released by the kernel
however a process ends) make that safe:

``session.lock``
    held by the controlling process for as long as the run lasts;
``start.lock``
    held by the one process that is starting the server;
``keeper.lock``
    held by the *keeper*, a small process of its own that owns the server. It
    waits for ``session.lock``. When it gets it, the run is over, by its end,
    by Ctrl-C or by ``kill -9``: it stops the server and removes the folder.

At its end the controlling process lets go of ``session.lock`` and takes
``keeper.lock``: when it has that, the server is gone. The keeper inherits its
lock from the process that starts it, so there is no moment in which a keeper
exists and is not waited for.

With ``POSTROOM_TEST_POSTGRES_URL`` the keeper starts no server; it only drops
what the run has left on the given one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

from tests.postgres import NoServer, Server, reachable_by_others

VARIABLE = "POSTROOM_TEST_POSTGRES_URL"
_NAME = "postroom-tests-"
_YOUNG_SECONDS = 60.0


class NotWanted(Exception):
    """The tester said that there shall be no PostgreSQL."""


def wanted() -> None:
    """Raise :class:`NotWanted` if the tester said so."""
    if os.environ.get(VARIABLE) == "none":
        raise NotWanted(f"{VARIABLE}=none")


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """Hold the lock file ``path`` alone; wait for it as long as it takes."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


class Session:
    """The folder that all processes of one test run share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: IO[bytes] | None = None

    @classmethod
    def begin(cls) -> Session:
        """Make the folder and hold the run's lock; to be called once, before any worker."""
        folder = Path(tempfile.mkdtemp(prefix=_NAME, dir=_parent()))
        _remove_stale(folder.parent)
        folder.chmod(0o711)
        session = cls(folder)
        session._held = (folder / "session.lock").open("ab")
        fcntl.flock(session._held, fcntl.LOCK_EX)
        return session

    @property
    def prefix(self) -> str:
        """What the names of this run's databases begin with, also on a foreign server."""
        return "postroom_test_" + self.folder.name.rpartition("-")[2].lower() + "_"

    def own_folder(self) -> Path:
        """A new folder for a server that one test has to itself."""
        folder = self.folder / token_hex(4)
        folder.mkdir()
        return folder

    def server_url(self) -> str:
        """The URL of the run's server, started now if this is the first call of all.

        Raises :class:`NotWanted` when the tester asked for none, and
        :class:`~tests.postgres.NoServer`, with the same text every time, when
        there can be none.
        """
        wanted()
        answer = self.folder / "server.json"
        with locked(self.folder / "start.lock"):
            if not answer.exists():
                self._start_keeper()
            if not answer.exists():
                raise NoServer("the process that keeps PostgreSQL ended before it was ready")
            said = json.loads(answer.read_text())
        if said["problem"]:
            raise NoServer(said["problem"])
        return str(said["url"])

    def end(self) -> None:
        """Let go of the run's lock and return when the server is gone."""
        if self._held is None:
            return
        self._held.close()
        self._held = None
        self.wait_for_keeper()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait_for_keeper(self) -> None:
        """Return when no keeper is left, at once if there was none."""
        with suppress(FileNotFoundError), locked(self.folder / "keeper.lock"):
            pass

    def _start_keeper(self) -> None:
        with (
            locked(self.folder / "keeper.lock") as lock,
            (self.folder / "keeper.log").open("ab") as log,
        ):
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.session", str(self.folder)],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
        assert keeper.stdout is not None
        with keeper.stdout as ready:
            ready.readline()
        # The keeper outlives this process; it is waited for by its lock, not by its parent.
        keeper.returncode = 0


def _parent() -> str | None:
    """Where the folder goes: a server that root starts runs as somebody else."""
    if os.geteuid() != 0 or reachable_by_others(Path(tempfile.gettempdir())):
        return None
    return "/tmp"


def _remove_stale(parent: Path) -> None:
    """Remove the folders of killed runs that had no keeper.

    A folder is stale when nobody holds its lock. A run that is just beginning
    does not hold its own yet, so young folders are left alone.
    """
    for folder in parent.glob(_NAME + "*"):
        with suppress(OSError):
            young = time.time() - folder.stat().st_mtime < _YOUNG_SECONDS
            if young or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / "session.lock").open("rb") as run, suppress(BlockingIOError):
                fcntl.flock(run, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def keep(folder: Path) -> None:
    """The keeper: own the server until the run is over."""
    session = Session(folder)
    server: Server | None = None
    url, problem = os.environ.get(VARIABLE, ""), ""
    if not url:
        try:
            server = Server(session.own_folder())
            server.start()
            url = server.url
        except NoServer as error:
            problem = str(error)
    answer = folder / "server.json"
    draft = answer.with_suffix(".draft")
    draft.write_text(json.dumps({"url": _without_driver(url), "problem": problem}))
    draft.rename(answer)
    print("ready", flush=True)
    with locked(folder / "session.lock"):
        if server is not None:
            server.stop()
        elif url:
            _drop_leftovers(_without_driver(url), session.prefix)
        shutil.rmtree(folder, ignore_errors=True)


def _without_driver(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return "postgresql" + separator + rest if scheme.startswith("postgres") else url


def _drop_leftovers(url: str, prefix: str) -> None:
    from tests.databases import drop_all

    drop_all(url, prefix)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
