"""Sections of the site: read from ``docs/README.md``, the one list of all pages."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

INDEX = PurePosixPath("docs/README.md")

LINK = re.compile(r"\]\((?!https?://|#|attachment:|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
"""A link of Markdown to a file: its path and its fragment."""


class Section(NamedTuple):
    """One heading of the index.

    Args:
        summary: its first paragraph.
        entries: its list, as Markdown.
        pages: what the list links to, by path in the repository.
    """

    title: str
    summary: str
    entries: str
    pages: tuple[PurePosixPath, ...]

    @property
    def slug(self) -> str:
        return self.title.lower().replace(" ", "-")


def sections(text: str) -> tuple[Section, ...]:
    """The sections of the index."""
    return tuple(_section(part) for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:])


def _section(text: str) -> Section:
    title, _, rest = text.partition("\n")
    summary, _, entries = rest.partition("\n* ")
    pages = [normal(INDEX.parent / target) for target, _ in LINK.findall(entries)]
    kept = dict.fromkeys(page for page in pages if page.suffix in {".md", ".ipynb"})
    return Section(title.strip(), " ".join(summary.split()), f"* {entries}".strip(), tuple(kept))


def normal(path: PurePosixPath) -> PurePosixPath:
    """A path in the repository without ``..``."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)
