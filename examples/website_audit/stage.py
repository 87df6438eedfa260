"""Where the demo plays: a folder with a database and mails, and the processes run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from examples.website_audit import schema
from examples.website_audit.__main__ import open_engine
from examples.website_audit.customers import Customer
from examples.website_audit.job import delivery_key
from examples.website_audit.ledger import Books, read_books

REPOSITORY = Path(__file__).resolve().parents[2]

_PATIENCE = 300
"""Seconds for one command; a site of one's own may take a minute to read."""

_CONFIGURATION = """\
# Written by the demo, each time: mail goes into files, so that nothing leaves this machine.
[database]
url = {database}

[defaults]
account = "main"
from = "Website audit <audit@example.com>"

[accounts.main]
provider = "file"
directory = {mail_folder}
"""


class DemoFailed(Exception):
    """Something is not as the demo says; one line."""


@dataclass(frozen=True)
class Stage:
    folder: Path
    week: str
    customers: tuple[Customer, ...]
    site: str | None = None
    lease: int | None = None
    """Seconds for which a run stays a silent process's own; None: as the job says."""

    @property
    def config(self) -> Path:
        return self.folder / "postroom.toml"

    @property
    def mail_folder(self) -> Path:
        return self.folder / "mail"

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'postroom.db'}"

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(
            delivery_key(customer, customer.weeks.period(self.week)) for customer in self.customers
        )

    def prepare(self) -> None:
        """Make the folder and its configuration, and migrate; what is in the database stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = _CONFIGURATION.format(
            database=json.dumps(self.database),  # a JSON string is a TOML string, too
            mail_folder=json.dumps(str(self.mail_folder)),
        )
        self.config.write_text(content, encoding="utf-8")
        self._postroom("migrate")
        engine = open_engine(self.database)
        schema.create(engine)
        engine.dispose()

    def run_job(self, *, module: str = "examples.website_audit", expect: int = 0) -> str:
        """Start the job as a process; return the last line it printed."""
        command = [sys.executable, "-m", module, "--database", self.database, "--week", self.week]
        if self.lease is not None:
            command += ["--lease", str(self.lease)]
        if self.site is not None:
            command += ["--site", self.customers[0].site]
        output = self._run(command, f"python -m {module} --week {self.week}", expect=expect)
        return output.splitlines()[-1].strip() if output else ""

    def dispatch(self) -> None:
        """Let the dispatcher deliver everything that is due."""
        self._postroom("dispatch", "--drain")

    def books(self) -> Books:
        """What the database and the mail folder hold now."""
        engine = open_engine(self.database)
        try:
            return read_books(engine, self.keys, self.mail_folder)
        finally:
            engine.dispose()

    def _postroom(self, *words: str) -> None:
        # The command "postroom" of this interpreter, whatever else is on the PATH.
        command = [sys.executable, "-m", "dispatcher", *words, "--config", str(self.config)]
        self._run(command, " ".join(("postroom", *words)))

    def _run(self, command: list[str], title: str, *, expect: int = 0) -> str:
        """Run a command, show it and what it says; return that."""
        print(f"   $ {title}", flush=True)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")
        }
        try:
            done = subprocess.run(  # noqa: S603  (the program is ours, and no shell reads it)
                command,
                cwd=REPOSITORY,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"{title} did not end within {_PATIENCE} s") from None
        except OSError as problem:
            raise DemoFailed(f"{command[0]} cannot be started: {problem.strerror}") from None
        for line in done.stdout.splitlines():
            print(f"     {line}", flush=True)
        check(done.returncode == expect, f"{title} ended with {done.returncode}, not {expect}")
        return done.stdout


def check(holds: object, otherwise: str) -> None:
    """Raise DemoFailed with the line ``otherwise`` unless ``holds``."""
    if not holds:
        raise DemoFailed(otherwise)


def shown(path: Path) -> str:
    """A path as people type it: relative to the repository when it is inside."""
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)
