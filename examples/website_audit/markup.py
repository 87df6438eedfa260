"""HTML text to the few facts the checks ask about. Pure; never fails on bad markup."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser


@dataclass(frozen=True)
class Image:
    source: str
    alt: str | None
    """None when the attribute is missing; an empty text marks a decoration and is fine."""


@dataclass(frozen=True)
class Outline:
    """What one page says about itself, in document order."""

    title: str
    description: str
    language: str
    headings: tuple[int, ...]
    """Levels, 1 to 6."""
    images: tuple[Image, ...]
    links: tuple[str, ...]
    """Values of ``href`` as written, each once."""


def outline(html: str) -> Outline:
    """The outline of a page, whatever state its markup is in."""
    reader = _Reader()
    # html.parser gives up on some broken declarations ("<![x[") with an AssertionError;
    # what it has read until there still is the page.
    with suppress(AssertionError):
        reader.feed(html)
        reader.close()
    return Outline(
        title=" ".join("".join(reader.title).split()),
        description=reader.description.strip(),
        language=reader.language.strip(),
        headings=tuple(reader.headings),
        images=tuple(reader.images),
        links=tuple(dict.fromkeys(reader.links)),
    )


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.description = ""
        self.language = ""
        self.headings: list[int] = []
        self.images: list[Image] = []
        self.links: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(reversed(attrs))  # of a repeated attribute browsers take the first
        match tag:
            case "html":
                self.language = self.language or values.get("lang") or ""
            case "title" | "svg":
                self._inside.append(tag)
            case "meta" if (values.get("name") or "").lower() == "description":
                self.description = self.description or values.get("content") or ""
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self.headings.append(int(tag[1]))
            case "img":
                alt = (values["alt"] or "") if "alt" in values else None
                self.images.append(Image(values.get("src") or "", alt))
            case "a":
                if href := values.get("href"):
                    self.links.append(href)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        # A <title> inside an <svg> names the drawing, not the page.
        if self._inside == ["title"]:
            self.title.append(data)
