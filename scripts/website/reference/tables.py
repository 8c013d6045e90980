"""Tables: rows of Markdown whose cells may have any character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """A text as one line of a cell: docstrings' double backticks become single ones."""
    one_line = " ".join(text.split()).replace("``", "`")
    return one_line.replace("|", "\\|").replace("<", "&lt;") or "–"


def code(text: str) -> str:
    """A name or a value, to be shown as it is typed."""
    return f"`{text}`".replace("|", "\\|")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)]
    return [*lines, ""]
