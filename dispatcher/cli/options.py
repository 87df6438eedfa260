"""Options that several commands have, and the configuration they all read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from dispatcher.config import Config

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]


class WrongUsage(Exception):
    """What was typed makes no sense; the text is one line that says what to type."""


def given_file(context: typer.Context) -> Path | None:
    """The file named by ``--config``."""
    file: Path | None = context.find_object(Path)
    return file


def configuration(context: typer.Context) -> Config:
    """The configuration of this command. Raises ConfigError."""
    from dispatcher.config import load

    return load(given_file(context))
