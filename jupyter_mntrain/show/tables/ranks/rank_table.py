"""Rank table: a job's ranks with their recent figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import STATE_ICONS, STATE_STYLES, count, percent
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.show.tables.ranks.rank_groups import (
    MOST_NODES,
    MOST_RANKS,
    NodeRanks,
    by_node,
    counted,
    standing_out,
    states_counted,
    states_text,
)

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import JobSummary, RankSummary

Row = TypeVar("Row")

NARROW_WIDTH = 78
FULL_WIDTH = 120
"""Columns from which the table has most of its columns, and all."""

FIRST_LEFT_OUT: Final = ("memory", "computing")
"""Columns that are left out first, before a state or a node's name is wrapped."""


def state_text(state: JobState) -> Text:
    text = Text(STATE_ICONS[state], style=STATE_STYLES.get(state, "dim"))
    return text.append(f" {state}", style="default")


class RankTable:
    """One row per rank, and below pids and reserved memory.

    Narrow terminals show fewer columns; for ranks that report no steps, unknown columns are left
    out.

    Many ranks are shown by node, and only those that stand out have rows of their own.

    Args:
        every: a row per rank, however many there are.
        hint: how to get that.
    """

    def __init__(self, summary: JobSummary, *, every: bool = False, hint: str = "") -> None:
        self._ranks = summary.ranks
        self._slowest = summary.slowest_rank
        self._is_grouped = not every and len(summary.ranks) > MOST_RANKS
        self._hint = hint

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._is_grouped:
            yield from self._by_node(console, options)
            return
        yield self._rows(self._ranks, console, options)
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

    def _rows(
        self, ranks: Sequence[RankSummary], console: Console, options: ConsoleOptions
    ) -> Table:
        room = options.max_width
        is_told = any(rank.step for rank in self._ranks)
        columns = [
            column
            for column in RANK_COLUMNS
            if room >= column.from_width
            and (is_told or any(column.cell(rank) != formats.ABSENT for rank in ranks))
        ]
        table = self._table(ranks, columns, room)
        unbroken = options.update(max_width=10 * FULL_WIDTH)
        for title in FIRST_LEFT_OUT:
            if Measurement.get(console, unbroken, table).maximum <= room:
                break
            columns = [column for column in columns if column.title != title]
            table = self._table(ranks, columns, room)
        return table

    def _table(
        self, ranks: Sequence[RankSummary], columns: Sequence[_Column[RankSummary]], room: int
    ) -> Table:
        numbers = tuple(column.title for column in columns if column.is_number)
        table = plain_table(*(column.title for column in columns), right=numbers)
        mark = " ◀ slowest" if room >= FULL_WIDTH else " ◀"
        for rank in ranks:
            cells = {column.title: column.cell(rank) for column in columns}
            if rank.rank == self._slowest and "pace" in cells:
                cells["pace"] = f"{cells['pace']}{mark}"
            table.add_row(*cells.values())
        return table

    def _by_node(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        room = options.max_width
        rows = by_node(self._ranks)
        columns = [column for column in NODE_COLUMNS if room >= column.from_width]
        numbers = tuple(column.title for column in columns if column.is_number)
        table = plain_table(*(column.title for column in columns), right=numbers)
        for row in rows[:MOST_NODES]:
            table.add_row(*(column.cell(row) for column in columns))
        yield table
        if rest := rows[MOST_NODES:]:
            yield Text(f"and {formats.plural(len(rest), 'node')} more: {counted(rest)}", "dim")
        yield Text(
            "of each node: its lowest step and pace, mean MFU, highest share of computing and most "
            "memory; the worst states first, then the slowest",
            "dim",
        )
        odd, more = standing_out(self._ranks, self._slowest)
        if odd:
            yield Text()
            yield self._rows(odd, console, options)
        if more:
            states = states_counted(Counter(rank.state for rank in more))
            yield Text(f"and {formats.plural(len(more), 'rank')} more: {states}", "dim")
        if self._hint:
            yield Text(f"each of the {len(self._ranks)} ranks: {self._hint}", "dim")


class _Column(Record, Generic[Row], frozen=True):
    title: str
    cell: Callable[[Row], Text | str]
    from_width: int = 0
    is_number: bool = True


RANK_COLUMNS: Final[tuple[_Column[RankSummary], ...]] = (
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

NODE_COLUMNS: Final[tuple[_Column[NodeRanks], ...]] = (
    _Column("node", lambda one: one.node, is_number=False),
    _Column("ranks", lambda one: formats.spans(one.ranks), is_number=False),
    _Column("state", lambda one: states_text(one.states), is_number=False),
    _Column("step", lambda one: count(one.step)),
    _Column("pace", lambda one: formats.rate(one.pace_tokens_per_s)),
    _Column("MFU", lambda one: percent(one.mfu)),
    _Column("computing", lambda one: percent(one.compute), NARROW_WIDTH),
    _Column("memory", lambda one: formats.memory(one.memory_bytes), NARROW_WIDTH),
)
