"""Collecting a website, wherever it is: over HTTP or from a folder."""

from __future__ import annotations

from pathlib import Path

from examples.website_audit.crawl import collect_url
from examples.website_audit.folder import collect_folder
from examples.website_audit.site import Limits, Site


def collect(site: str, limits: Limits | None = None) -> Site:
    """The pages of ``site``, an http(s) URL or the path of a folder of HTML.

    This can take as long as ``limits`` allow: never call it inside a
    transaction. Raises SiteUnavailable when there is nothing to audit.
    """
    limits = limits or Limits()
    if "://" in site:
        return collect_url(site, limits)
    return collect_folder(Path(site), limits)
