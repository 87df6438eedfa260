"""One command from its arguments to its exit code; every error becomes one clear line."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from enum import IntEnum

from dispatcher.cli.options import WrongUsage
from dispatcher.cli.output import cleaned

_USERINFO = re.compile(r"(://)[^/\s\"'<>]+@")
_EVERYWHERE = {"--config": 1, "--debug": 0}
"""Options of every command, and how many values follow them."""


class Exit(IntEnum):
    """What an exit code means, for every command."""

    FINE = 0
    NEEDS_A_PERSON = 1
    WRONG_USAGE = 2
    CANNOT_TELL = 3


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Prints errors; raises none."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show an arrow must not stop a command.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    ordered = hoisted(arguments)
    try:
        code = _run(ordered)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # Whoever read our output has seen enough; nothing is wrong. typer, asked not to end the
        # process, does so all the same for this one error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FINE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - no traceback for people
        if "--debug" in ordered:
            sys.stderr.write(_USERINFO.sub(r"\1", "".join(traceback.format_exception(error))))
        code, lines = explained(error)
        sys.stderr.write("".join(f"{cleaned(line)}\n" for line in lines))
    return code


def hoisted(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--config`` and ``--debug`` in front, wherever they stood."""
    front: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += [word, *left]
            break
        values = _EVERYWHERE.get(word.partition("=")[0])
        if values is None:
            rest.append(word)
            continue
        front.append(word)
        if values and "=" not in word and left:
            front.append(left.pop(0))
    return front + rest


def _run(arguments: list[str]) -> int:
    from typer.main import get_command

    from dispatcher.cli.app import app

    code = get_command(app).main(args=arguments, prog_name="postroom", standalone_mode=False)
    return int(code or Exit.FINE)


# --------------------------------------------------------------------------- #
# Errors
# --------------------------------------------------------------------------- #


def explained(error: BaseException) -> tuple[Exit, list[str]]:
    """The exit code of an error and what to say; usually one line."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return Exit.CANNOT_TELL, ["postroom: interrupted"]
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        # The command line's own errors. Their classes moved from click into typer, their
        # methods did not change.
        return Exit.WRONG_USAGE, [f"postroom: {_usage(error)}"]
    if isinstance(error, WrongUsage):
        return Exit.WRONG_USAGE, [f"postroom: {error}"]
    return _ours(error) or _database(error) or _others(error)


def _usage(error: BaseException) -> str:
    text = " ".join(str(error.format_message()).split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "postroom")
    return f'{text[:1].lower()}{text[1:].rstrip(".")}; see "{path} --help"'


def _ours(error: BaseException) -> tuple[Exit, list[str]] | None:
    from dispatcher.config_file import ConfigError
    from outbox.errors import InvalidKey, InvalidMessage, KeyConflict, OutboxError

    if isinstance(error, ConfigError):
        return Exit.WRONG_USAGE, _problems([str(problem) for problem in error.problems])
    if isinstance(error, KeyConflict):
        first = " ".join(str(error).partition(";")[0].split())
        text = f"{first}; the first stays. Give the new content a key of its own"
        return Exit.WRONG_USAGE, [f"postroom: {text}"]
    if isinstance(error, InvalidMessage | InvalidKey):
        return Exit.WRONG_USAGE, [f"postroom: {_one_line(error)}"]
    if isinstance(error, OutboxError):
        return Exit.CANNOT_TELL, [f"postroom: {_one_line(error)}"]
    return None


def _database(error: BaseException) -> tuple[Exit, list[str]] | None:
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    if isinstance(error, DBAPIError):
        return Exit.CANNOT_TELL, [f"postroom: the database cannot be used: {_one_line(error.orig)}"]
    if isinstance(error, SQLAlchemyError):
        return Exit.CANNOT_TELL, [f"postroom: the database cannot be used: {_one_line(error)}"]
    return None


def _others(error: BaseException) -> tuple[Exit, list[str]]:
    if isinstance(error, OSError) and error.filename is not None:
        return Exit.CANNOT_TELL, [f"postroom: {error.filename}: {error.strerror}"]
    hint = "this is a defect; --debug shows where"
    text = f"{type(error).__name__}: {_one_line(error)}"
    return Exit.CANNOT_TELL, [f"postroom: {text} ({hint})"]


def _problems(problems: list[str]) -> list[str]:
    if len(problems) == 1:
        return [f"postroom: {problems[0]}"]
    head = f"postroom: the configuration has {len(problems)} problems:"
    return [head, *(f"  {problem}" for problem in problems)]


def _one_line(error: object) -> str:
    text = str(error).strip()
    return _USERINFO.sub(r"\1", text.partition("\n")[0] if text else type(error).__name__)
