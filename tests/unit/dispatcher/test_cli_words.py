"""The pure parts of the command line: words, layout, order of arguments, errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.cli.dispatch import left_over
from dispatcher.cli.output import Column, cleaned, layout, paired, plain
from dispatcher.cli.run import Exit, explained, hoisted
from dispatcher.cli.words import ago, parse_instant, plural, seconds, size, span
from outbox.errors import InvalidDatabase, OutboxError
from outbox.records import Backlog
from outbox.states import State

NOW = datetime(2026, 11, 29, 3, 7, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ahead", "instant"),
    [
        ("2h", True, NOW + timedelta(hours=2)),
        ("+2h", True, NOW + timedelta(hours=2)),
        ("2h", False, NOW - timedelta(hours=2)),
        ("2026-12-01T00:00:00Z", True, datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01T01:00:00+01:00", True, datetime(2026, 12, 1, tzinfo=UTC)),
    ],
)
def test_an_instant_is_typed_as_a_time_or_a_duration(
    text: str,
    ahead: bool,  # noqa: FBT001 - a table of cases
    instant: datetime,
) -> None:
    """A duration counts from now: ahead for a schedule, back for "since"."""
    assert parse_instant(text, now=NOW, ahead=ahead) == instant


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tomorrow", "neither a duration like 2h nor an instant"),
        ("2026-12-01T00:00:00", "has no time zone: write 2026-12-01T00:00:00Z"),
        ("2026-12-01", "has no time zone"),
        ("5", "neither"),
        ("99999999d", "too far away"),
        ("", "neither"),
    ],
)
def test_what_is_no_instant_is_refused(text: str, words: str) -> None:
    """A time without a zone is a guess, and a number without a unit, too."""
    with pytest.raises(ValueError, match=words):
        parse_instant(text, now=NOW, ahead=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (59.9, "59 s"),
        (190, "3 min 10 s"),
        (2 * 3600 + 240, "2 h 04 min"),
        (3 * 86400 + 3600, "3 d 01 h"),
    ],
)
def test_spans(value: float, text: str) -> None:
    """Two units at most; a clock that runs backwards shows nothing negative."""
    assert span(timedelta(seconds=value)) == text
    assert ago(NOW - timedelta(seconds=value), NOW) == f"{text} ago"


def test_numbers_in_words() -> None:
    """Sizes, seconds and plurals as people write them."""
    assert [size(n) for n in (1, 999, 18_200, 2_500_000)] == [
        "1 byte",
        "999 bytes",
        "18.2 kB",
        "2.5 MB",
    ]
    assert (seconds(0.44), seconds(None)) == ("0.4 s", "-")
    assert (plural(1, "row"), plural(2000, "row")) == ("1 row", "2,000 rows")


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["status", "--config", "x"], ["--config", "x", "status"]),
        (["status", "--config=x", "--json"], ["--config=x", "status", "--json"]),
        (["a", "--debug", "b"], ["--debug", "a", "b"]),
        (["a", "--", "--config"], ["a", "--", "--config"]),
        (["a", "--config"], ["--config", "a"]),
        ([], []),
    ],
)
def test_global_options_may_stand_anywhere(given: list[str], ordered: list[str]) -> None:
    """--config and --debug work before and after the command."""
    assert hoisted(given) == ordered


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äöü 日本", "plain äöü 日本"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x9b31mred", "red"),
        ("a\x00b\nc\td", "a�b�c�d"),
        ("\u202egnp.exe", "�gnp.exe"),
        ("\ud800", "�"),
        ("\x1b", "�"),
    ],
)
def test_control_sequences_do_not_survive(text: str, shown: str) -> None:
    """What a terminal would obey, or what would reorder a line, is taken out."""
    assert cleaned(text) == shown


COLUMNS = [
    Column("N", right=True),
    Column("TO", folds=True, spare=True),
    Column("KEY", folds=True),
]
ROWS = [["1", "ana@example.org", "k"], ["20", "Q" * 30, "Z" * 50]]


def test_a_table_without_a_width_is_as_wide_as_it_is() -> None:
    """Piped, nothing is folded, and the last column ends without spaces."""
    assert layout(COLUMNS, ROWS, None) == [
        f" N  {'TO':30}  KEY",
        f" 1  {'ana@example.org':30}  k",
        f"20  {'Q' * 30}  {'Z' * 50}",
    ]


@pytest.mark.parametrize("width", range(24, 100, 3))
def test_a_table_fits_and_loses_nothing_but_spare_columns(width: int) -> None:
    """At every width the key is whole, in pieces under each other."""
    lines = layout(COLUMNS, ROWS, width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).count("Z") == 50
    assert "".join(lines).count("Q") in {0, 30}


def test_wide_characters_take_two_cells() -> None:
    """A column of Japanese text is aligned by cells, not by characters."""
    head, line = layout([Column("A"), Column("B")], [["日本", "x"]], None)
    assert head == "A     B"
    assert line == "日本  x"


def test_labels_hang() -> None:
    """Wrapped text stays beside its label; piped it is one line."""
    assert paired("Known", "aa bb", 8, 2, None) == ["  Known   aa bb"]
    assert paired("Known", "a" * 15 + " " + "b" * 15, 8, 0, 30) == [
        "Known   " + "a" * 15,
        "        " + "b" * 15,
    ]


def test_frozen_data_becomes_json() -> None:
    """Instants in their fixed form, members by name, tuples as lists."""
    backlog = Backlog(1, 2, 3, 4, 5)
    assert plain({"at": NOW, State.HELD: (backlog, None)}) == {
        "at": "2026-11-29T03:07:12.000Z",
        "held": [{"due": 1, "sending": 2, "waiting": 3, "in_doubt": 4, "held": 5}, None],
    }


def test_what_is_left_is_one_line() -> None:
    """After a drain: only what is there, with its sum."""
    assert left_over(Backlog(0, 0, 0, 0, 0)) == "nothing is left"
    assert left_over(Backlog(0, 0, 1200, 1, 0)) == (
        "1,201 deliveries are left: 1,200 waiting for a retry, a time or an account, 1 in doubt"
    )


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidDatabase("no file\nmore"), Exit.CANNOT_TELL, "postroom: no file"),
        (OutboxError(""), Exit.CANNOT_TELL, "postroom: OutboxError"),
        (KeyboardInterrupt(), Exit.CANNOT_TELL, "postroom: interrupted"),
        (
            PermissionError(13, "Permission denied", "var"),
            Exit.CANNOT_TELL,
            "postroom: var: Permission denied",
        ),
        (
            RuntimeError("http://u:p@h failed"),
            Exit.CANNOT_TELL,
            "postroom: RuntimeError: http://h failed (this is a defect; --debug shows where)",
        ),
    ],
)
def test_every_error_is_one_line(error: BaseException, code: Exit, line: str) -> None:
    """No traceback and no password, whatever is raised."""
    assert explained(error) == (code, [line])
