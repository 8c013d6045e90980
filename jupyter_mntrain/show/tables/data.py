"""Training data: the first sequences, with the tokens that are learned marked."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from jupyter_mntrain.model.records.sequences import DataPreview, Mark, ShownSequence

_STYLES: dict[Mark, str] = {
    "plain": "",
    "learned": "green",
    "special": "cyan",
    "note": "dim",
}


def data_text(preview: DataPreview) -> RenderableType:
    """Render the first sequences as a job's log shows them."""
    return Group(*_parts(preview))


def _parts(preview: DataPreview) -> Iterator[RenderableType]:
    yield from map(Text, preview.summary)
    yield Text(preview.heading)
    for number, one in enumerate(preview.sequences, 1):
        yield Text(f"\nsequence {number}: {one.heading}", "bold")
        yield Padding(_sequence(one), (0, 0, 0, 2), expand=False)


def _sequence(one: ShownSequence) -> Text:
    shown = Text()
    for text, mark in one.marked():
        shown.append(text, _STYLES[mark])
    shown.rstrip()
    return shown
