"""Declared jobs, found where they are declared: in modules that the configuration names."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

from outbox.jobs.errors import InvalidJob
from outbox.jobs.job import Job


@dataclass(frozen=True, slots=True)
class Catalog:
    """Jobs by name, sorted."""

    jobs: Mapping[str, Job] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs.values())

    def __len__(self) -> int:
        return len(self.jobs)

    def get(self, name: str) -> Job | None:
        """The job of that name."""
        return self.jobs.get(name)

    def named(self, name: str) -> Job:
        """The job of that name. Raises InvalidJob, naming those that are known."""
        if (found := self.jobs.get(name)) is None:
            known = ", ".join(self.jobs) or "none"
            raise InvalidJob(f"no job {name} is declared in the configured modules; known: {known}")
        return found


def catalog_of(jobs: Iterable[Job]) -> Catalog:
    """A catalog of these. Raises InvalidJob if two of them have one name."""
    found: dict[str, Job] = {}
    for each in jobs:
        if found.setdefault(each.name, each) is not each:
            raise InvalidJob(f"two jobs are called {each.name}; their runs would be each other's")
    return Catalog(dict(sorted(found.items())))


def jobs_in(module: ModuleType) -> list[Job]:
    """The jobs that a module's names stand for, also those that it has imported."""
    return [each for each in vars(module).values() if isinstance(each, Job)]


def load_catalog(modules: Iterable[str], folder: Path | None = None) -> Catalog:
    """Import modules by name, and gather their jobs.

    folder: searched first, as Python does with a script's own folder.

    Raises InvalidJob for a module that is not there, that fails while it is imported (the
    cause follows), or that declares no job.
    """
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found: list[Job] = []
    for name in modules:
        try:
            module = import_module(name)
        except Exception as error:
            line = " ".join(str(error).split())
            raise InvalidJob(
                f"the module {name} cannot be imported: {type(error).__name__}: {line}"
            ) from error
        jobs = jobs_in(module)
        if not jobs:
            raise InvalidJob(f"the module {name} declares no job: decorate one with @outbox.job")
        found += jobs
    return catalog_of(found)
