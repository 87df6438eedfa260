"""Names of periods: stable, sorting, and read back to the period they name.

| rule | label | what it is |
| --- | --- | --- |
| weeks from Monday | `2026-W48` | the ISO week |
| months, quarters, years from January, all from their first day | `2026-11`, `2026-Q4`, `2026` | |
| every other rule of a day or more | `2026-11-28` | the first day by the calendar |
| hourly, cron | `2026-10-25T00:30Z` | the start in UTC: local labels would repeat in the autumn hour |
| the first period after a change of rule | `2026-11-28T23:00Z..2026-11-29T05:00Z` | its bounds |

An ISO week is used only for exactly that week: a week from Sunday begins on the last
day of the ISO week before, so that two periods around a change would share a label.
Instants have seconds only where a zone's clocks once did (Monrovia until 1972).
Labels of one rule sort as their periods do, up to the year 9999. Pure.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final, Literal, TypeAlias

from outbox.jobs.errors import InvalidPeriod

Form: TypeAlias = Literal["day", "week", "month", "quarter", "year"]
"""How a rule of a day or more writes its labels."""

FORMS: Final[dict[Form, tuple[re.Pattern[str], str]]] = {
    "day": (re.compile(r"(\d{4})-(\d\d)-(\d\d)"), "2026-11-28"),
    "week": (re.compile(r"(\d{4})-W(\d\d)"), "2026-W48"),
    "month": (re.compile(r"(\d{4})-(\d\d)"), "2026-11"),
    "quarter": (re.compile(r"(\d{4})-Q([1-4])"), "2026-Q4"),
    "year": (re.compile(r"(\d{4})"), "2026"),
}
"""What a label looks like, and an example for people."""

INSTANT_EXAMPLE: Final = "2026-10-25T00:30Z"
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?Z")
_BETWEEN: Final = ".."


def day_label(day: date, form: Form) -> str:
    """The label of the period that begins on ``day``."""
    match form:
        case "day":
            return day.isoformat()
        case "week":
            year, week, _ = day.isocalendar()
            return f"{year:04d}-W{week:02d}"
        case "month":
            return f"{day.year:04d}-{day.month:02d}"
        case "quarter":
            return f"{day.year:04d}-Q{(day.month + 2) // 3}"
        case "year":
            return f"{day.year:04d}"


def labelled_day(label: str, form: Form) -> date | None:
    """The day on which the period of that name begins, None for a text of another form."""
    found = FORMS[form][0].fullmatch(label)
    if found is None:
        return None
    numbers = [int(each) for each in found.groups()]
    try:
        match form:
            case "day" | "year":
                return date(*[*numbers, 1, 1][:3])
            case "week":
                return date.fromisocalendar(numbers[0], numbers[1], 1)
            case "month":
                return date(numbers[0], numbers[1], 1)
            case "quarter":
                return date(numbers[0], numbers[1] * 3 - 2, 1)
    except ValueError:
        return None


def repeats(label: str, last: str | None) -> bool:
    """Whether a label may be in use already, by periods up to the one labelled ``last``."""
    if last is None:
        return False
    forms = (pattern for pattern, _ in FORMS.values())
    return label <= last and any(f.fullmatch(label) and f.fullmatch(last) for f in forms)


def instant_label(start: datetime) -> str:
    """``2026-10-25T00:30Z``, with seconds if there are any.

    Raises InvalidPeriod for parts of a second, which a label does not show.
    """
    if start.microsecond:
        raise InvalidPeriod(f"{start.isoformat()} is not a whole second; periods begin at one")
    utc = start.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}Z" if utc.second else f"{utc:%Y-%m-%dT%H:%M}Z"


def labelled_instant(label: str) -> datetime | None:
    """The instant that :func:`instant_label` wrote, None for a text of another form."""
    if not _INSTANT.fullmatch(label):
        return None
    try:
        return datetime.fromisoformat(label)
    except ValueError:
        return None


def bounds_label(start: datetime, end: datetime) -> str:
    """The label of an adjusted period. Raises InvalidPeriod as :func:`instant_label` does."""
    return f"{instant_label(start)}{_BETWEEN}{instant_label(end)}"


def labelled_bounds(label: str) -> tuple[datetime, datetime] | None:
    """The bounds that :func:`bounds_label` wrote, None for a text of another form."""
    first, _, last = label.partition(_BETWEEN)
    start, end = labelled_instant(first), labelled_instant(last)
    return None if start is None or end is None else (start, end)
