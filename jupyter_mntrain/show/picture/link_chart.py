"""Link chart: utilization of links, sent above zero and received below. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jupyter_mntrain.metrics.series import JobSeries, LinkColumns
from jupyter_mntrain.metrics.summary import LinkSummary
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture.chart import Chart, Curve, Floats, Level, floats
from jupyter_mntrain.show.picture.theme import Stroke, Theme

MANY_NODES = 5
ZOOM_BELOW = 0.1
"""Links that use less than this share of their capacity are drawn on a larger scale: on a full one
they would be a flat line."""

PER_BYTE = {"Gbit/s": 8e-9, "Mbit/s": 8e-6, "kbit/s": 8e-3}


class _Side(Record, frozen=True):
    """One direction of one node's link; ``number`` is the node's."""

    name: str
    link: LinkSummary
    x: Floats
    y: Floats
    number: int
    is_above: bool

    @property
    def fullness(self) -> tuple[float, float]:
        return self.link.utilization or 0.0, self.link.bytes_per_s or 0.0


def link_chart(
    series: JobSeries, theme: Theme, *, program: str, end_s: float, now_s: float
) -> Chart | None:
    """Return a chart of the links' utilization, or of bits per second if capacities are unknown.

    ``None`` for a job on a single node, which uses no link.

    Args:
        end_s: Unix time of the job's end; later samples are not of this job.
        now_s: Unix time, for the age of the measurements.
    """
    links = series.summary.links
    if not links:
        return None
    nodes = list(dict.fromkeys(link.node for link in links))
    missing = next((link for link in links if link.capacity is None), None)
    sides = _sides(series, nodes, end_s, is_share=missing is None)
    top = max((float(np.nanmax(side.y)) for side in sides), default=0.0)
    unit = next((name for name, one in PER_BYTE.items() if top * one >= 1), "kbit/s")
    is_zoomed = missing is not None or top < ZOOM_BELOW
    limit = max(top * 1.25, 1e-6) if is_zoomed else max(1.0, top) * 1.02
    shown = sides
    if len(nodes) >= MANY_NODES:  # only the fullest link of each direction
        halves = ([side for side in sides if side.is_above is above] for above in (True, False))
        shown = [max(half, key=lambda side: side.fullness) for half in halves if half]
    curves = tuple(
        Curve(
            f"{'→' if side.is_above else '←'} {side.name}",
            formats.bit_rate(side.link.bytes_per_s)
            if missing
            else formats.percent(side.link.utilization),
            side.x,
            side.y if side.is_above else -side.y,
            Stroke(theme.fill) if len(nodes) == 2 else theme.rank(side.number),
            fill=len(nodes) == 2,
        )
        for side in shown
    )
    return Chart(
        key="links",
        title=_title(nodes) + (f", {unit}" if missing else ""),
        subtitle=_subtitle(links, len(nodes), missing, program, now_s),
        spell=(lambda value: f"{value * PER_BYTE[unit]:.4g}") if missing else _tick(limit),
        curves=curves,
        levels=() if is_zoomed else (_level(sides, 1.0), _level(sides, -1.0)),
        limits=(-limit, limit),
        note=None if curves else f"{formats.ABSENT}: {links[0].missing or 'no sample yet'}",
        mirrored=True,
        height_px=96,
    )


def _sides(series: JobSeries, nodes: Sequence[str], end_s: float, *, is_share: bool) -> list[_Side]:
    """Return the directions that have samples, in shares of the capacity or bytes per second."""
    columns = {one.node: one for one in series.links}
    sides = []
    for link in series.summary.links:
        number, is_above, name = nodes.index(link.node), link.direction == "sent", link.node
        one = columns.get(link.node, LinkColumns(node=link.node))
        y = floats(one.sent if is_above else one.received)
        if len(nodes) == 2:
            if not is_above:
                continue  # each direction by its sender: its own counters, its own capacity
            name, is_above = nodes[1 - number], number == 0
        if is_share and link.capacity is not None:
            y = y / link.capacity.bytes_per_s
        x = floats(one.time_s)[: len(y)]
        y = np.where(x <= end_s, y, np.nan)
        if np.isfinite(y).any():
            sides.append(_Side(name, link, x, y, number, is_above))
    return sides


def _level(sides: Sequence[_Side], y: float) -> Level:
    """Return the capacity of one direction, with its rate if all links have the same."""
    rates = {
        formats.bit_rate(side.link.capacity.bytes_per_s)
        for side in sides
        if side.is_above == (y > 0) and side.link.capacity
    }
    return Level(y, rates.pop() if len(rates) == 1 else "capacity")


def _title(nodes: Sequence[str]) -> str:
    if len(nodes) == 2:
        return f"Link {nodes[0]} ⇄ {nodes[1]}"
    return f"Busiest of {len(nodes)} links" if len(nodes) >= MANY_NODES else "Links"


def _subtitle(
    links: Sequence[LinkSummary],
    nodes: int,
    missing: LinkSummary | None,
    program: str,
    now_s: float,
) -> str:
    words = "→ above, ← below" if nodes == 2 else "→ sent above, ← received below"
    if missing:
        words += f"; {missing.node}'s capacity is not measured, so no %: {program} measure"
    else:
        known = formats.capacity(*(link.capacity for link in links), now_s=now_s)
        words += f"; 100{formats.NARROW}% = {known}"
    return words + ("; payload of the ranks" if links[0].basis == "ranks" else "")


def _tick(limit: float) -> Callable[[float], str]:
    digits = 0 if limit >= 0.05 else 1 if limit >= 0.005 else 2 if limit >= 0.0005 else 3
    return lambda value: "0" if abs(value) < 1e-12 else f"{value * 100:.{digits}f}{formats.NARROW}%"
