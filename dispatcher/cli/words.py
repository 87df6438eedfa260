"""Numbers, sizes and times as people write and read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_SPANS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def instant(value: datetime | None) -> str:
    """``2026-11-29 03:07:12Z``; "" for none."""
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def span(value: timedelta) -> str:
    """``4 s``, ``3 min 10 s``, ``2 h 04 min``, ``3 d 01 h``."""
    seconds = int(max(0.0, value.total_seconds()))
    for large, unit, small, lesser in _SPANS:
        if seconds >= large:
            return f"{seconds // large} {unit} {seconds % large // small:02d} {lesser}"
    return f"{seconds} s"


def ago(value: datetime | None, at: datetime) -> str:
    """``2 h 04 min ago``; "" for none."""
    return "" if value is None else f"{span(at - value)} ago"


def seconds(value: float | None) -> str:
    """``0.4 s``; ``-`` for none."""
    return "-" if value is None else f"{value:,.1f} s"


def size(octets: int) -> str:
    """``18.2 kB``."""
    for limit, unit in ((10**6, "MB"), (10**3, "kB")):
        if octets >= limit:
            return f"{octets / limit:,.1f} {unit}"
    return plural(octets, "byte")


def plural(count: int, word: str, many: str | None = None) -> str:
    """``1 delivery``, ``2,000 deliveries``."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def next_clock_time(text: str, now: datetime) -> datetime | None:
    """The next ``06:00`` (UTC) after ``now``; None for a text of another form."""
    try:
        at = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  (only the time of day is used)
    except ValueError:
        return None
    today = now.astimezone(UTC).replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


def parse_instant(text: str, *, now: datetime, ahead: bool) -> datetime:
    """An instant somebody typed: ISO 8601 with a time zone, or a duration from now.

    ahead: whether a duration (``2h``) lies in the future or in the past.

    Raises ValueError with what to write instead.
    """
    from providers.settings import parse_duration

    try:
        duration = parse_duration(text.removeprefix("+"))
    except ValueError:
        pass
    else:
        try:
            return now + duration if ahead else now - duration
        except OverflowError:
            raise ValueError(f"{text} is too far away") from None
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        given = None
    if given is None:
        raise ValueError(
            f'"{text}" is neither a duration like 2h nor an instant like 2026-11-29T03:00:00Z'
        )
    if given.tzinfo is None:
        raise ValueError(f'"{text}" has no time zone: write {text}Z or {text}+01:00')
    return given
