"""Data: the first sequences that are trained on, with what is learned marked."""

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
    """What the data becomes, as the log of a job says it."""
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
