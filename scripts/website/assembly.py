"""Assembly: copies the pages to where Sphinx reads them, and writes a page for each section."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from scripts.website.sections import INDEX, LINK, Section, normal, sections

PLACES = {
    PurePosixPath("README.md"): PurePosixPath("index.md"),
    INDEX: PurePosixPath("index.md"),
    PurePosixPath("notebooks"): PurePosixPath("tutorials/index.md"),
    PurePosixPath("benchmarks/METHODOLOGY.md"): PurePosixPath("benchmarks.md"),
}
"""Places that do not follow from a page's folder."""

BADGE = re.compile(r"^<a href=.+<img .+</a>\n\n", re.MULTILINE)
"""Badges lead to the repository's own pages where it is hosted, and nowhere from the site."""

Reference = Mapping[str, Callable[[], str]]
"""Generated pages, by the name of their files: what writes each."""


def place(path: PurePosixPath) -> PurePosixPath:
    """Where a file of the repository is on the site."""
    if path in PLACES:
        return PLACES[path]
    if path.parts[0] == "docs":
        return PurePosixPath(*path.parts[1:])
    if path.suffix == ".ipynb":
        return PurePosixPath("tutorials", path.name)
    if path.suffix == ".md":
        return PurePosixPath("project", path.name.lower())
    return PurePosixPath("files", path)


class Assembly:
    """Writes what Sphinx reads, and touches only what has changed: the next build is quick then.

    Args:
        root: the repository.
        target: folder that Sphinx reads.
    """

    def __init__(self, root: Path, target: Path) -> None:
        self._root = root
        self._target = target
        self._written = set[Path]()

    def assemble(self, reference: Reference) -> None:
        """Write everything, and remove what an earlier build left.

        Raises:
            ValueError: a page links to a file that does not exist.
        """
        found = sections((self._root / INDEX).read_text())
        for section in found:
            for page in section.pages:
                self._page(page)
        for name, written in reference.items():
            self._write(PurePosixPath("reference", name), written().encode())
        for section in found:
            if len(section.pages) > 1:
                self._section(section, reference if section.title == "Reference" else {})
        self._front(found)
        for path in self._target.rglob("*"):
            if path.is_file() and path not in self._written:
                path.unlink()

    def _page(self, page: PurePosixPath) -> None:
        there = place(page)
        text = self._relinked(page, (self._root / page).read_text(), there.parent)
        if page.suffix == ".ipynb":
            text = self._with_files(text, there)
        self._write(there, text.encode())

    def _with_files(self, text: str, there: PurePosixPath) -> str:
        """A notebook whose attached pictures are files: MyST-NB shows no attachment."""
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            for name, kinds in cell.pop("attachments", {}).items():
                picture = f"{there.stem}_{name}"
                self._write(there.parent / picture, base64.b64decode(*kinds.values()))
                cell["source"] = [
                    line.replace(f"(attachment:{name})", f"({picture})") for line in cell["source"]
                ]
        return json.dumps(notebook)

    def _relinked(self, page: PurePosixPath, text: str, here: PurePosixPath) -> str:
        """The text of a page with its links as they are on the site, seen from ``here``."""

        def relinked(match: re.Match[str]) -> str:
            linked = normal(page.parent / match[1])
            there = place(linked)
            if linked.suffix not in {".md", ".ipynb"} and linked not in PLACES:
                if not (self._root / linked).is_file():
                    raise ValueError(f"{page}: no file {linked} to link to")
                self._write(there, (self._root / linked).read_bytes())
            return f"]({os.path.relpath(there, here)}{match[2] or ''})"

        return LINK.sub(relinked, text)

    def _section(self, section: Section, reference: Reference) -> None:
        here = PurePosixPath(section.slug)
        made = [f"reference/{name}" for name in reference]
        lines = [f"# {section.title}", "", section.summary, ""]
        lines += [self._relinked(INDEX, section.entries, here)]
        lines += [*(f"* [](../{page})" for page in made), ""]
        lines += toctree([*(str(place(page)) for page in section.pages), *made])
        self._write(here / "index.md", "\n".join(lines).encode())

    def _front(self, found: tuple[Section, ...]) -> None:
        """The first page: the first screen of README.md, and a card for each section."""
        readme = PurePosixPath("README.md")
        text, _, _ = BADGE.sub("", (self._root / readme).read_text()).partition("\n## ")
        lines = [self._relinked(readme, text, PurePosixPath()), "", "## Read on", ""]
        lines += ["::::{grid} 1 2 2 3", ":gutter: 3", ""]
        for section in found:
            link = first_page(section).removesuffix(".md")
            lines += [f":::{{grid-item-card}} {section.title}", f":link: /{link}"]
            lines += [":link-type: doc", section.summary, ":::", ""]
        lines += ["::::", ""]
        lines += toctree([f"{section.title} <{first_page(section)}>" for section in found])
        self._write(PurePosixPath("index.md"), "\n".join(lines).encode())

    def _write(self, there: PurePosixPath, content: bytes) -> None:
        path = self._target / there
        self._written.add(path)
        if path.is_file() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def first_page(section: Section) -> str:
    """Where a section begins: at its only page, or at a list of them."""
    is_one = len(section.pages) == 1
    return str(place(section.pages[0])) if is_one else f"{section.slug}/index.md"


def toctree(pages: list[str]) -> list[str]:
    """The pages of a folder of the site, each as a path or as ``Title <path>``."""
    lines = ["```{toctree}", ":hidden:", ""]
    for page in pages:
        title, _, path = page.rpartition(" <")
        bare = re.sub(r"\.(md|ipynb)>?$", "", path)
        lines.append(f"{title} </{bare}>" if title else f"/{bare}")
    return [*lines, "```", ""]
