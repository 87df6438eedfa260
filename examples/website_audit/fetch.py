"""Collecting a website, wherever it is: over HTTP or from a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from examples.website_audit.crawl import collect_url
from examples.website_audit.folder import collect_folder
from examples.website_audit.site import Limits, Site


def collect(
    site: str, limits: Limits | None = None, *, on_page: Callable[[int], None] | None = None
) -> Site:
    """The pages of ``site``, an http(s) URL or the path of a folder of HTML.

    ``on_page`` is told how many have been read, after each of them.

    This can take as long as ``limits`` allow: never call it inside a
    transaction. Raises SiteUnavailable when there is nothing to audit.
    """
    limits, tell = limits or Limits(), on_page or _nobody
    if "://" in site:
        return collect_url(site, limits, tell)
    return collect_folder(Path(site), limits, tell)


def _nobody(pages: int) -> None:
    del pages
