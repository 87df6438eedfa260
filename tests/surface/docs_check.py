"""Check the documentation against the project: ``python -m tests.surface.docs_check``.

What is checked, in every Markdown file of the tree:

- a relative link leads to a file, and its fragment to a heading of that file;
- no line ends in white space, tabs are not used, the file ends in one line end;
- a code block says its language (``text`` if it has none) and is closed;
- a ``make`` target and a ``postroom`` command that code names exist.

And the other way round: every ``make`` target and every ``postroom`` command is
named somewhere. Each problem is one line, ``file:line: what is wrong``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*)$")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_MAKE = re.compile(r"(?:^|[\s$;&(])make\s+((?:[A-Z_]+=\S*\s+|-\S+\s+)*)([a-z][a-z0-9-]*)\b")
_POSTROOM = re.compile(r"(?:^|[\s$;&|(/])postroom((?:\s+[^\s`|;&<>#()]+(?:\|[a-z-]+)*)*)")
_EITHER = re.compile(r"\\?\|")
_TARGET = re.compile(r"^([a-z][a-z-]*):.*## ", re.MULTILINE)
_WORD = re.compile(r"[a-z][a-z-]*")


@dataclass(frozen=True, slots=True)
class Commands:
    """What exists: the targets of make, and postroom's commands by group.

    ``postroom`` maps each first word to the words that may follow it; a plain
    command maps to nothing.
    """

    make: frozenset[str]
    postroom: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file, taken apart."""

    path: Path
    lines: Sequence[str]
    prose: list[tuple[int, str]] = field(default_factory=list)
    code: list[tuple[int, str]] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)


def read(path: Path) -> Page:
    """Take a file apart into prose, code, and what is wrong with its form."""
    text = path.read_text(encoding="utf-8")
    page = Page(path, text.splitlines())
    fence = ""
    for number, line in enumerate(page.lines, 1):
        if line != line.rstrip():
            page.problems.append((number, "white space at the end of the line"))
        match = _FENCE.match(line)
        if fence:
            if match and match[2].startswith(fence) and not match[3]:
                fence = ""
            else:
                page.code.append((number, line))
        elif match:
            fence = match[2]
            if not match[3]:
                page.problems.append((number, "a code block without a language"))
        else:
            if "\t" in line:
                page.problems.append((number, "a tab"))
            page.code.extend((number, span[2]) for span in _SPAN.finditer(line))
            page.prose.append((number, _SPAN.sub("``", line)))
    if fence:
        page.problems.append((len(page.lines), "a code block that is never closed"))
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        page.problems.append((len(page.lines), "the file must end in one line end"))
    return page


def anchors(page: Page) -> frozenset[str]:
    """The fragments that headings make, as the usual hosts derive them."""
    seen: dict[str, int] = {}
    found = set()
    for _, line in ((n, page.lines[n - 1]) for n, _ in page.prose):
        if not (match := _HEADING.match(line)):
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        repeated = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{repeated}" if repeated else slug)
    return frozenset(found)


def _broken_links(page: Page) -> Iterator[tuple[int, str]]:
    for number, line in page.prose:
        targets = _LINK.findall(line) + _REFERENCE.findall(line)
        for target in (t for t in targets if not _SCHEME.match(t)):
            name, _, fragment = unquote(target).partition("#")
            goal = (page.path.parent / name).resolve() if name else page.path
            if not goal.exists():
                yield number, f"the link {target} leads nowhere"
            elif fragment and goal.suffix == ".md" and fragment not in anchors(read(goal)):
                yield number, f"{name or 'this page'} has no heading #{fragment}"


def _words(rest: str) -> list[str]:
    """The leading words of a command line; options and their values are left out."""
    words: list[str] = []
    skip = False
    for part in rest.split():
        if skip:
            skip = False
        elif part.startswith("-"):
            skip = part == "--config"
        else:
            words.append(part)
    return words


def _unknown_commands(page: Page, commands: Commands) -> Iterator[tuple[int, str]]:
    for number, code in page.code:
        for match in _MAKE.finditer(code):
            if match[2] not in commands.make:
                yield number, f"make has no target {match[2]}"
        for match in _POSTROOM.finditer(code):
            firsts, seconds = (_EITHER.split(word) for word in [*_words(match[1]), "", ""][:2])
            for first in filter(_WORD.fullmatch, firsts):
                below = commands.postroom.get(first)
                if below is None:
                    yield number, f"there is no command postroom {first}"
                for second in filter(_WORD.fullmatch, seconds if below else ()):
                    if second not in (below or ()):
                        yield number, f"there is no command postroom {first} {second}"


def _unnamed(pages: Sequence[Page], commands: Commands) -> Iterator[str]:
    code = "\n".join(line for page in pages for _, line in page.code)
    for target in sorted(commands.make):
        if not re.search(rf"\bmake\b[^\n]*\s{target}\b", code):
            yield f"no page names make {target}"
    names = [f"{a} {b}" if b else a for a, bs in commands.postroom.items() for b in bs or {""}]
    for name in sorted(names):
        group, _, word = name.partition(" ")
        pattern = rf"\bpostroom\b[^\n]*\s{group}\b" + (rf"[^\n]*\b{word}\b" if word else "")
        if not re.search(pattern, code):
            yield f"no page names postroom {name}"


def check(pages: Sequence[Page], commands: Commands, root: Path = ROOT) -> list[str]:
    """Every problem, one line each."""
    found = []
    for page in pages:
        problems = [
            *page.problems,
            *_broken_links(page),
            *_unknown_commands(page, commands),
        ]
        name = page.path.relative_to(root)
        found += [f"{name}:{number}: {problem}" for number, problem in sorted(problems)]
    return found + list(_unnamed(pages, commands))


def existing_commands(root: Path = ROOT) -> Commands:
    """Ask the Makefile and the command line itself."""
    from typer.main import get_command

    top: Any = get_command(import_module("dispatcher.cli.app").app)
    postroom = {
        name: frozenset(getattr(command, "commands", ())) for name, command in top.commands.items()
    }
    return Commands(targets(root / "Makefile"), postroom)


def targets(makefile: Path) -> frozenset[str]:
    """The targets that a Makefile describes for its help."""
    return frozenset(_TARGET.findall(makefile.read_text(encoding="utf-8")))


def markdown_files(root: Path = ROOT) -> list[Path]:
    """Those that belong to the project: committed, or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.md"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(root / name for name in listed.stdout.split("\0") if (root / name).is_file())


def main() -> int:
    """0 if nothing is wrong, else 1 and the problems on standard output."""
    pages = [read(path) for path in markdown_files()]
    problems = check(pages, existing_commands())
    for problem in problems:
        print(problem)
    print(f"{len(pages)} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
