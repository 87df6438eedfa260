"""Who is audited. In an application this is a table; here it is three rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from outbox.periods import Rule, weekly

_PAGES = Path(__file__).parent / "pages"


@dataclass(frozen=True)
class Customer:
    id: str
    """Stable for as long as the customer exists: it is part of the run key."""
    name: str
    site: str
    """Where the pages are: an http(s) URL, or a folder of HTML."""
    owner: str
    """The address that gets the report."""
    timezone: str
    """IANA name; says when this customer's week begins."""

    @property
    def weeks(self) -> Rule:
        """The weeks a report is about: Monday to Monday, by this customer's clock."""
        return weekly("mon", timezone=self.timezone)

    @property
    def site_name(self) -> str:
        """The site as an input of a report: it is the same one wherever a folder lies."""
        return self.site if "://" in self.site else Path(self.site).name


def examples() -> tuple[Customer, ...]:
    """Three customers in three time zones, on the pages that ship beside this file."""
    return (
        Customer(
            id="site-42",
            name="Mill Lane Bakery",
            site=str(_PAGES / "bakery"),
            owner="ana@example.org",
            timezone="Europe/Lisbon",
        ),
        Customer(
            id="site-57",
            name="Spoke & Chain Workshop",
            site=str(_PAGES / "workshop"),
            owner="office@example.net",
            timezone="America/Chicago",
        ),
        Customer(
            id="site-63",
            name="Harbour Choir",
            site=str(_PAGES / "choir"),
            owner="secretary@example.com",
            timezone="Pacific/Auckland",
        ),
    )


def for_site(site: str) -> Customer:
    """A customer for a folder or URL of one's own.

    The id comes from the site alone, so that auditing it again is the same run.
    """
    is_url = "://" in site
    place = site if is_url else str(Path(site).resolve())
    return Customer(
        id=f"own-{hashlib.sha256(place.encode()).hexdigest()[:10]}",
        name=(urlsplit(place).hostname or place) if is_url else Path(place).name,
        site=place,
        owner="owner@example.org",
        timezone="UTC",
    )
