"""Pages from a local folder of HTML, as a web server would give them out.

Links decide which files are looked at, and pages are written by others: a link
(or a symbolic link) that leads outside the folder counts as not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from examples.website_audit.markup import outline
from examples.website_audit.site import (
    FOLDER_ORIGIN,
    NOT_FOUND,
    OK,
    Limits,
    Page,
    Site,
    SiteUnavailable,
    internal_address,
)

_INDEX = "index.html"


def collect_folder(folder: Path, limits: Limits, on_page: Callable[[int], None]) -> Site:
    """Every HTML page below ``folder``, and what its internal links lead to.

    Raises SiteUnavailable when there is no such folder, or no page in it.
    """
    if not folder.is_dir():
        raise SiteUnavailable(f"{folder}: there is no such folder")
    root = folder.resolve()
    files = sorted(path for path in root.rglob("*.html") if _is_inside(root, path))
    if not files:
        raise SiteUnavailable(f"{folder}: there is no .html file in this folder")
    pages: list[Page] = []
    for path in files[: limits.pages]:
        pages.append(_read(root, path, limits))
        on_page(len(pages))
    return Site(
        pages=tuple(pages),
        answers={address: _status(root, address) for address in _targets(pages)},
        left_out=len(files) - len(pages),
    )


def _read(root: Path, path: Path, limits: Limits) -> Page:
    with path.open("rb") as file:
        content = file.read(limits.page_bytes)
    return Page(
        address="/" + quote(path.relative_to(root).as_posix()),
        html=content.decode("utf-8", errors="replace"),
        size=path.stat().st_size,
    )


def _targets(pages: Iterable[Page]) -> Iterator[str]:
    for page in pages:
        for href in outline(page.html).links:
            address = internal_address(href, page.address, FOLDER_ORIGIN)
            if address is not None:
                yield address


def _status(root: Path, address: str) -> int:
    path = root / unquote(urlsplit(address).path).lstrip("/")
    found = _is_inside(root, path) or _is_inside(root, path / _INDEX)
    return OK if found else NOT_FOUND


def _is_inside(root: Path, path: Path) -> bool:
    """Whether ``path`` is a file below ``root`` once ``..`` and links are followed."""
    try:
        real = path.resolve(strict=True)
    except (OSError, ValueError):  # not there, a loop of links, a name no file can have
        return False
    return real.is_file() and real.is_relative_to(root)
