"""Link matrix: the capacity and latency of every link between nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table

MOST_WITH_NAMES: Final = 5
"""As many columns with names, rates and latencies fit into 80 columns; more have numbers."""

MOST_NODES: Final = 10
"""As many columns with rates alone fit; of more, only the slowest links are listed."""

MOST_LISTED: Final = 20
SLOWEST: Final = 10

GOOD, FAIR = 0.9, 0.5
"""Shares of the fastest link's capacity, from which on a link is green or yellow."""

LEGEND: Final = "▽ less than 90 % of the fastest, ▼ less than half"

_NONE: Final = "—"

Pairs = Mapping[tuple[str, str], LinkMeasurement]


def link_list(links: Sequence[LinkMeasurement]) -> RenderableType:
    """Return one line per link, with what disturbed its measurement; of many, the slowest."""
    table = plain_table(
        *("from", "to", "interface", "carries", "latency", "condition"),
        right=("carries", "latency"),
    )
    by_rate = sorted(links, key=lambda link: link.capacity.bytes_per_s)
    is_short = len(links) <= MOST_LISTED
    for link in links if is_short else by_rate[:SLOWEST]:
        table.add_row(
            shown_name(link.sender),
            shown_name(link.receiver),
            f"{link.interface} {link.address}",
            formats.bit_rate(link.capacity.bytes_per_s),
            formats.latency(link.latency.median_s if link.latency else None),
            _condition(link),
        )
    if is_short:
        return table
    return Group(Text(f"The slowest {SLOWEST} of {len(links)} links:", style="dim"), table)


def link_matrix(links: Sequence[LinkMeasurement]) -> RenderableType | None:
    """Return a matrix, senders down and receivers across; slower links are redder, and marked.

    Of several networks, the one that carries most. ``None`` for two nodes, and for more than fit.
    """
    ends = [*(link.sender for link in links), *(link.receiver for link in links)]
    nodes = list(dict.fromkeys(ends))
    if not 2 < len(nodes) <= MOST_NODES:
        return None
    by_rate = sorted(links, key=lambda link: link.capacity.bytes_per_s)
    by_pair = {(link.sender, link.receiver): link for link in by_rate}
    fastest = by_rate[-1].capacity.bytes_per_s
    has_names = len(nodes) <= MOST_WITH_NAMES
    heads = [shown_name(node) if has_names else str(at) for at, node in enumerate(nodes, start=1)]
    table = plain_table("from \\ to", *heads, right=tuple(heads))
    if not has_names:
        table.box, table.padding = None, (0, 1, 0, 0)
    is_marked = False
    for node, head in zip(nodes, heads, strict=True):
        cells = [_cell(by_pair.get((node, other)), fastest, has_names=has_names) for other in nodes]
        is_marked |= any(mark in cell.plain for cell in cells for mark in "▽▼")
        table.add_row(head if has_names else f"{head} {_short(node)}", *cells)
    return Group(table, Text(LEGEND, style="dim")) if is_marked else table


def _condition(link: LinkMeasurement) -> str:
    condition = link.capacity.condition or formats.ABSENT
    return condition if link.streams == 1 else f"{condition}, {link.streams} connections"


def _cell(link: LinkMeasurement | None, fastest: float, *, has_names: bool) -> Text:
    if link is None:
        return Text(_NONE, style="dim")
    rate = link.capacity.bytes_per_s
    share = rate / fastest if fastest else 0.0
    style = "green" if share >= GOOD else "yellow" if share >= FAIR else "red"
    mark = "" if share >= GOOD else "▽" if share >= FAIR else "▼"
    if not has_names:
        return Text(f"{mark}{_short_rate(rate)}", style=style)
    text = Text().append(f"{mark}{formats.bit_rate(rate)}", style=style)
    if link.latency is not None:
        text.append(f"\n{formats.latency(link.latency.median_s)}", style="dim")
    return text


def _short(node: str, most: int = 10) -> str:
    name = shown_name(node)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _short_rate(bytes_per_s: float) -> str:
    """Format a rate in three characters and a letter: ``941M``, ``2.4G``."""
    mbit_per_s = bytes_per_s * 8 / 1e6
    if mbit_per_s >= 1000:
        gbit_per_s = mbit_per_s / 1000
        return f"{gbit_per_s:.1f}G" if gbit_per_s < 10 else f"{gbit_per_s:.0f}G"
    return f"{mbit_per_s:.1f}M" if mbit_per_s < 10 else f"{mbit_per_s:.0f}M"
