"""Rank table: a job's ranks with their recent figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import STATE_ICONS, STATE_STYLES, count, percent
from jupyter_mntrain.show.tables._plain import plain_table

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import JobSummary, RankSummary

NARROW_WIDTH = 78
FULL_WIDTH = 120
"""Columns from which the table has most of its columns, and all."""


def state_text(state: JobState) -> Text:
    text = Text(STATE_ICONS[state], style=STATE_STYLES.get(state, "dim"))
    return text.append(f" {state}", style="default")


class RankTable:
    """One row per rank; below, pids and reserved memory. Narrow terminals show fewer columns."""

    def __init__(self, summary: JobSummary) -> None:
        self._ranks = summary.ranks
        self._slowest = summary.slowest_rank

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        columns = [column for column in RANK_COLUMNS if room >= column.from_width]
        numbers = tuple(column.title for column in columns if column.is_number)
        table = plain_table(*(column.title for column in columns), right=numbers)
        mark = " ◀ slowest" if room >= FULL_WIDTH else " ◀"
        for rank in self._ranks:
            cells = {column.title: column.cell(rank) for column in columns}
            if rank.rank == self._slowest and "pace" in cells:
                cells["pace"] = f"{cells['pace']}{mark}"
            table.add_row(*cells.values())
        yield table
        # Below, because a column would not fit into 80.
        pids = [f"r{rank.rank} {rank.pid}" for rank in self._ranks if rank.pid is not None]
        if pids:
            yield Text(f"pids: {', '.join(pids)}", style="dim")
        reserved = [
            f"r{rank.rank} {formats.memory(rank.reserved_bytes)}"
            for rank in self._ranks
            if rank.reserved_bytes is not None
        ]
        if reserved:
            yield Text(f"reserved by torch's allocator: {', '.join(reserved)}", style="dim")


class _Column(Record, frozen=True):
    title: str
    cell: Callable[[RankSummary], Text | str]
    from_width: int = 0
    is_number: bool = True


RANK_COLUMNS: Final = (
    _Column("rank", lambda one: f"r{one.rank}", is_number=False),
    _Column("node", lambda one: one.node, is_number=False),
    _Column("state", lambda one: state_text(one.state), is_number=False),
    _Column("step", lambda one: count(one.step)),
    _Column("tok/s", lambda one: formats.rate(one.tokens_per_s)),
    _Column("pace", lambda one: formats.rate(one.pace_tokens_per_s), NARROW_WIDTH),
    _Column("MFU", lambda one: percent(one.mfu)),
    _Column("computing", lambda one: percent(one.compute), NARROW_WIDTH),
    _Column("memory", lambda one: formats.memory(one.memory_bytes), NARROW_WIDTH),
    _Column("stage", lambda one: formats.spans(one.stages), FULL_WIDTH, is_number=False),
    _Column("layers", lambda one: formats.spans(one.layers), FULL_WIDTH, is_number=False),
    _Column("device", lambda one: one.device or formats.ABSENT, FULL_WIDTH, is_number=False),
)
