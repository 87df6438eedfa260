"""Collecting pages from a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.website_audit.fetch import collect
from examples.website_audit.findings import find
from examples.website_audit.site import Limits, SiteUnavailable


def write(folder: Path, name: str, *links: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'<a href="{link}">x</a>' for link in links), encoding="utf-8")


def test_all_pages_of_a_folder_are_read_in_the_order_of_their_addresses(tmp_path: Path) -> None:
    """Sub-folders count, other files do not, and the order is always the same."""
    for name in ("b.html", "a.html", "news/one two.html"):
        write(tmp_path, name)
    (tmp_path / "notes.txt").write_text("<a href='b.html'>", encoding="utf-8")
    site = collect(str(tmp_path))
    assert [page.address for page in site.pages] == ["/a.html", "/b.html", "/news/one%20two.html"]


@pytest.mark.parametrize(
    ("link", "status"),
    [
        ("other.html", 200),
        ("../index.html", 200),
        ("/index.html#top", 200),
        ("/", 200),
        ("files/list.pdf?page=2", 200),
        ("files/", 404),
        ("missing.html", 404),
        ("one%20two.html", 200),
        ("one two.html", 200),
    ],
)
def test_links_are_resolved_as_a_web_server_would(tmp_path: Path, link: str, status: int) -> None:
    """Relative links start at their page, a folder means its index page."""
    for name in ("index.html", "sub/other.html", "sub/one two.html", "sub/files/list.pdf"):
        write(tmp_path, name)
    write(tmp_path, "sub/page.html", link)
    site = collect(str(tmp_path))
    assert list(site.answers.values()) == [status]


@pytest.mark.parametrize(
    "link",
    [
        "../../secret.html",
        "/../secret.html",
        "/%2e%2e/secret.html",
        "..%2Fsecret.html",
        "//etc/passwd",
        "/%2Fetc/passwd",
        "file:///etc/passwd",
        "leads-out.html",
        "leads-out/secret.html",
        "a%00b.html",
        "x" * 5000,
    ],
)
def test_no_link_reaches_a_file_outside_the_folder(tmp_path: Path, link: str) -> None:
    """Neither dots, escapes, absolute paths nor symbolic links make an outside file exist."""
    write(tmp_path, "secret.html")
    root = tmp_path / "site"
    write(root, "index.html", link)
    (root / "leads-out.html").symlink_to(tmp_path / "secret.html")
    (root / "leads-out").symlink_to(tmp_path, target_is_directory=True)
    site = collect(str(root))
    assert [page.address for page in site.pages] == ["/index.html"]
    assert 200 not in site.answers.values()


def test_a_long_page_is_cut_and_keeps_its_size(tmp_path: Path) -> None:
    """What is read is bounded; the size reported is that of the file."""
    (tmp_path / "long.html").write_bytes(b"<p>" + b"x" * 5000)
    [page] = collect(str(tmp_path), Limits(page_bytes=100)).pages
    assert (len(page.html), page.size) == (100, 5003)


def test_pages_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    """A folder with too many pages is audited in part, and says so."""
    for number in range(5):
        write(tmp_path, f"{number}.html")
    site = collect(str(tmp_path), Limits(pages=3))
    assert (len(site.pages), site.left_out) == (3, 2)


def test_bytes_that_are_no_utf8_do_not_stop_an_audit(tmp_path: Path) -> None:
    """A page in another encoding is read with replacement characters."""
    (tmp_path / "old.html").write_bytes(b"<title>Caf\xe9</title>")
    assert "title-missing" not in {finding.rule for finding in find(collect(str(tmp_path)))}


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_pages_is_unavailable(tmp_path: Path, name: str) -> None:
    """A missing or empty folder is an error in one line, not an empty report."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(SiteUnavailable, match=f"{name}: there is no"):
        collect(str(tmp_path / name))
