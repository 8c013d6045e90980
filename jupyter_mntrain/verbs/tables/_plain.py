"""The look that all tables share."""

from __future__ import annotations

from rich import box
from rich.table import Table


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without verticals; the columns named in ``right`` hold numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for column in columns:
        if column in right:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    return table
