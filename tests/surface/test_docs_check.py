"""The check of the documentation finds what it claims to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surface.docs_check import Commands, check, existing_commands, read, targets

COMMANDS = Commands(
    make=frozenset({"demo"}),
    postroom={"status": frozenset(), "deliveries": frozenset({"list", "show"})},
)
CLEAN = """# A page

Run `make demo`, look at `postroom status`, `postroom deliveries list|show`.

See [below](#the-end), [that](other.md#more) and [the web](https://example.com).

```sh
SITE=folder make demo
postroom --config other.toml deliveries list --json
postroom deliveries show KEY
```

## The `end`
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A second page to link to."""
    (tmp_path / "other.md").write_text("# Other\n\n## More\n")
    return tmp_path


def problems_of(folder: Path, text: str) -> list[str]:
    """What is found in a page with this text."""
    page = folder / "page.md"
    page.write_text(text)
    return check([read(page)], COMMANDS, folder)


def test_a_clean_page_has_no_problem(other: Path) -> None:
    """A page in order is left in peace."""
    assert problems_of(other, CLEAN) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[x](missing.md)", "the link missing.md leads nowhere"),
        ("[x]: missing.md", "the link missing.md leads nowhere"),
        ("[x](other.md#less)", "other.md has no heading #less"),
        ("[x](#nowhere)", "this page has no heading #nowhere"),
        ("trailing ", "white space at the end of the line"),
        ("a\ttab", "a tab"),
        ("```\nx\n```", "a code block without a language"),
        ("```sh\nx", "a code block that is never closed"),
        ("`make tea`", "make has no target tea"),
        ("```sh\nmake ARGS=-x tea\n```", "make has no target tea"),
        ("`postroom brew`", "there is no command postroom brew"),
        ("`postroom --config a.toml brew`", "there is no command postroom brew"),
        ("`postroom deliveries brew`", "there is no command postroom deliveries brew"),
        ("`postroom status|brew`", "there is no command postroom brew"),
        ("`postroom deliveries list|brew`", "there is no command postroom deliveries brew"),
    ],
)
def test_a_problem_is_named_with_its_line(other: Path, line: str, problem: str) -> None:
    """Each kind of mistake is found, and only that one, with file and line."""
    first = CLEAN.count("\n") + 2
    last = first + line.count("\n")
    found = problems_of(other, f"{CLEAN}\n{line}\n")
    assert found in [[f"page.md:{n}: {problem}"] for n in range(first, last + 1)]


def test_a_page_ends_in_one_line_end(other: Path) -> None:
    """A missing or a second line end at the end is found."""
    for text in (CLEAN.rstrip("\n"), CLEAN + "\n"):
        [problem] = problems_of(other, text)
        assert problem.endswith("the file must end in one line end")


def test_a_link_in_code_is_not_followed(other: Path) -> None:
    """What stands in a code block or span is no link."""
    assert problems_of(other, f"{CLEAN}\n`[x](missing.md)`\n\n```md\n[x](missing.md)\n```\n") == []


def test_what_no_page_names_is_found(other: Path) -> None:
    """A target or command that no page mentions is a problem of its own."""
    found = problems_of(other, "# Nothing\n")
    assert found == [
        "no page names make demo",
        "no page names postroom deliveries list",
        "no page names postroom deliveries show",
        "no page names postroom status",
    ]


def test_targets_are_those_with_a_description(tmp_path: Path) -> None:
    """A target is what the Makefile's help lists."""
    makefile = tmp_path / "Makefile"
    makefile.write_text("one: two ## first\nhidden:\n\ttrue\ntwo: ## second\n")
    assert targets(makefile) == {"one", "two"}


def test_commands_are_read_from_the_command_line() -> None:
    """What exists is asked of the program itself, groups included."""
    commands = existing_commands().postroom
    assert commands["migrate"] == frozenset()
    assert {"list", "show"} <= commands["deliveries"]
