"""Table style shared by all tables."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import RenderableType
from rich.table import Table


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return a table without vertical lines; columns in ``right`` are right-aligned numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for column in columns:
        if column in right:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    return table


def folding(lines: Iterable[RenderableType]) -> Table:
    """Return lines that wrap at the width of the tables."""
    grid = Table.grid()
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(line)
    return grid
