"""Write ``docs/explanation/failure-table.md`` from what real crashes do: ``make failure-table``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from outbox.migrations import migrate
from tests.acceptance.crashing import Boundary
from tests.acceptance.matrix import KINDS, Kind, Seen, play
from tests.acceptance.zygote import Zygote
from tests.forked_commands import ROOT

FILE = ROOT / "docs" / "explanation" / "failure-table.md"

HEAD = """\
# What a crash leaves behind

This page is written by a program (`make failure-table`), and the tests fail when it no longer
says what happens.

In each line a dispatcher, a process of its own, takes one delivery and is killed with `kill -9`
at the boundary that the line names. Its lease lapses, another dispatcher takes over and works
until the delivery is final or held. Then the messages are counted at the provider.

- **taken at the crash**: messages the provider had when the dispatcher died.
- **lost**: neither taken by the provider, nor waiting for anybody.
- **sent twice**: the provider has more than one message.
- **in doubt**: bytes may have left, and nothing proved what became of them, at some time.
- **how it ended**: what settled the delivery, without a person. A delivery that is *held* waits
  for one: nothing can prove whether the provider took it.

The providers differ in what they offer when an answer is lost: a key under which a request can
be repeated safely, a way to ask whether they have a message, or neither.
"""

_COLUMNS = (
    "killed …",
    "taken at the crash",
    "lost",
    "sent twice",
    "in doubt",
    "how it ended",
)


def ending(seen: Seen) -> str:
    """What settled a delivery, in words."""
    if seen.state != "accepted":
        return f"{seen.state}, `{seen.reason}`" if seen.reason else seen.state
    # A look-up that proved nothing yet was asked again; how often depends on the clock.
    told = [each for each in seen.attempts if each != ("look_up", "in_doubt")]
    match told:
        case [*_, ("replay", _)]:
            return "accepted by replay"
        case [*_, ("look_up", _)]:
            return "accepted: found by look-up"
        case [*_, ("look_up", "unavailable"), ("send", _)]:
            return "accepted: not found by look-up, so sent again"
        case [_]:
            return "accepted"
        case _:
            return "accepted by the next attempt"


def table(kind: Kind, seen: Mapping[Boundary, Seen]) -> str:
    """One kind of provider, as Markdown."""
    lines = [f"## {kind.title}", "", _line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    lines += [
        _line(
            [
                str(boundary),
                str(each.before),
                _word(yes=each.lost),
                _word(yes=each.after > 1),
                _word(yes=each.doubted),
                ending(each),
            ]
        )
        for boundary, each in seen.items()
    ]
    return "\n".join(lines) + "\n"


def page(tables: Sequence[str]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *tables])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _word(*, yes: bool) -> str:
    return "yes" if yes else "no"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.failure_table")
    parser.add_argument("--file", type=Path, default=FILE)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="postroom-crashes-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'crashes.db'}"
        migrate(url)
        tables = []
        with Zygote(folder) as zygote:
            for kind in KINDS:
                (folder / kind.name).mkdir()
                seen = play(zygote, url, folder / kind.name, kind, kind.boundaries)
                tables.append(table(kind, seen))
                print(f"{kind.title}: {len(seen)} crashes", flush=True)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    given.file.write_text(page(tables), encoding="utf-8")
    print(f"wrote {given.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
