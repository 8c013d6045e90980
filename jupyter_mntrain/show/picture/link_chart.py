"""Link chart: utilization per direction, mirrored at zero. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jupyter_mntrain.cluster import JobHistory, JobSummary, LinkSummary
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture.chart import Chart, Curve, Level, thin
from jupyter_mntrain.show.picture.columns import Columns, Floats, floats
from jupyter_mntrain.show.picture.theme import Stroke, Theme

Spell = Callable[[float], str]

LEAST_WINDOW_S = 3.0
"""Counters are averaged over this, or two steps: a step sends in bursts."""

MANY_NODES = 5
LEAST_SHARE = 0.001
ZOOM_BELOW = 0.1
"""A link this empty is shown enlarged: on a full scale it would be a flat line."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One direction of one node, above zero if it is sent."""

    name: str
    x: Floats
    y: Floats
    node: str
    is_above: bool


def link_chart(
    columns: Columns, history: JobHistory, summary: JobSummary, theme: Theme, *, program: str
) -> Chart | None:
    """A fraction of the measured or given capacity; without one, bits per second and why.

    ``None`` for a single node: it uses no link.
    """
    placements = history.view.attempt.placements
    if len(placements) < 2:
        return None
    capacities = _capacities(summary.links)
    missing = [p.node for p in placements if p.node not in capacities]
    sides = [side for side in _sides(columns, placements, summary.links) if side.x.size]
    if not missing:
        sides = [_divided(side, capacities[side.node]) for side in sides]
    top = max((float(np.nanmax(side.y)) for side in sides if np.isfinite(side.y).any()), default=0)
    unit = _unit(top)
    curves = tuple(_curves(sides, placements, unit if missing else _share(capacities), theme))
    is_zoomed = bool(missing) or top < ZOOM_BELOW
    limit = max(top * 1.25, 1e-6) if is_zoomed else max(1.0, top) * 1.02
    return Chart(
        key="links",
        title=_title(placements) + (f", {unit.name}" if missing else ""),
        subtitle=_subtitle(placements, summary.links, missing, program),
        spell=unit.tick if missing else _tick(limit),
        curves=curves,
        levels=() if is_zoomed else _levels(capacities, placements),
        limits=(-limit, limit),
        note=None if curves else "no sample yet",
        mirrored=True,
        height_px=96,
    )


@dataclass(frozen=True, slots=True)
class _Unit:
    """Of bits per second: one for the whole chart."""

    name: str
    factor: float

    def tick(self, bytes_per_s: float) -> str:
        return f"{bytes_per_s * 8 / self.factor:.4g}"

    def __call__(self, _side: _Side, bytes_per_s: float) -> str:
        return f"{bytes_per_s * 8 / self.factor:.3g}"


def _unit(top_bytes_per_s: float) -> _Unit:
    units = (_Unit("Gbit/s", 1e9), _Unit("Mbit/s", 1e6), _Unit("kbit/s", 1e3))
    return next((unit for unit in units if top_bytes_per_s * 8 >= unit.factor), units[-1])


def _share(capacities: dict[str, float]) -> Callable[[_Side, float], str]:
    """A share that would round to nothing is told as a rate."""

    def spell(side: _Side, share: float) -> str:
        if 0 < share < LEAST_SHARE:
            return formats.bit_rate(share * capacities[side.node])
        return formats.percent(share)

    return spell


def _capacities(links: tuple[LinkSummary, ...]) -> dict[str, float]:
    """Bytes per second by node; what only a card claims is no capacity."""
    return {
        link.node: link.capacity.bytes_per_s
        for link in links
        if link.capacity is not None and link.capacity.source != "nominal"
    }


def _sides(
    columns: Columns, placements: tuple[Placement, ...], links: tuple[LinkSummary, ...]
) -> list[_Side]:
    by_ranks = {link.node for link in links if link.basis == "ranks"}
    window = _window_s(columns)
    if len(placements) == 2:
        # Each direction by its sender: its own counters, its own capacity.
        one, other = placements
        return [
            _side(columns, one, other.node, window, is_sent=True, is_above=True, by=by_ranks),
            _side(columns, other, one.node, window, is_sent=True, is_above=False, by=by_ranks),
        ]
    return [
        _side(columns, placement, placement.node, window, is_sent=sent, is_above=sent, by=by_ranks)
        for sent in (True, False)
        for placement in placements
    ]


def _side(
    columns: Columns,
    placement: Placement,
    name: str,
    window: float,
    *,
    is_sent: bool,
    is_above: bool,
    by: set[str],
) -> _Side:
    line = _payload if placement.node in by else _counters
    x, y = line(columns, placement, window, is_sent=is_sent)
    return _Side(name, x, y, placement.node, is_above)


def _payload(
    columns: Columns, placement: Placement, _window: float, *, is_sent: bool
) -> tuple[Floats, Floats]:
    """What the node's ranks say they exchanged with other nodes, per second of a step."""
    ranks = [one for rank, one in columns.ranks.items() if rank in placement.ranks]
    length = min((one.steps for one in ranks), default=0)
    if not length:
        return np.array([]), np.array([])
    sizes = [one.sent_bytes if is_sent else one.received_bytes for one in ranks]
    total = np.sum([floats(size, length) for size in sizes], axis=0)
    seconds = np.max([floats(one.step_s, length) for one in ranks], axis=0)
    return floats(ranks[0].time_s, length), total / np.where(seconds > 0, seconds, np.nan)


def _counters(
    columns: Columns, placement: Placement, window: float, *, is_sent: bool
) -> tuple[Floats, Floats]:
    """The interface's counters, over a sliding window."""
    link = columns.links.get(placement.node)
    if link is None or len(link.time_s) < 2:
        return np.array([]), np.array([])
    times, totals = floats(link.time_s), floats(link.sent_bytes if is_sent else link.received_bytes)
    begins = np.maximum(times[1:] - window, times[0])
    sizes = totals[1:] - np.interp(begins, times, totals)
    return times[1:], sizes / np.maximum(times[1:] - begins, 1e-9)


def _window_s(columns: Columns) -> float:
    steps = [np.median(floats(one.step_s)) for one in columns.ranks.values() if one.steps]
    return max(LEAST_WINDOW_S, 2.0 * float(max(steps, default=0.0)))


def _divided(side: _Side, capacity: float) -> _Side:
    return _Side(side.name, side.x, side.y / capacity, side.node, side.is_above)


def _curves(
    sides: list[_Side],
    placements: tuple[Placement, ...],
    spell: Callable[[_Side, float], str],
    theme: Theme,
) -> list[Curve]:
    if len(placements) >= MANY_NODES:
        sides = _busiest(sides)
    numbers = {placement.node: number for number, placement in enumerate(placements)}
    curves = []
    for side in sides:
        x, y = thin(side.x, side.y)
        known = y[np.isfinite(y)]
        if not known.size:
            continue
        stroke = theme.rank(numbers[side.node])
        if len(placements) == 2:
            stroke = Stroke(theme.fill, width=1.4)
        arrow = "→" if side.is_above else "←"
        curves.append(
            Curve(
                f"{arrow} {side.name}",
                spell(side, float(known[-1])),
                x,
                y if side.is_above else -y,
                stroke,
                fill=len(placements) == 2,
            )
        )
    return curves


def _busiest(sides: list[_Side]) -> list[_Side]:
    """Of many nodes only the fullest link, each direction."""
    chosen = []
    for is_above in (True, False):
        same = [side for side in sides if side.is_above == is_above and side.y.size]
        if same:
            chosen.append(max(same, key=lambda side: float(np.nanmedian(side.y))))
    return chosen


def _levels(capacities: dict[str, float], placements: tuple[Placement, ...]) -> tuple[Level, ...]:
    first, last = capacities[placements[0].node], capacities[placements[-1].node]
    if len(placements) > 2 and len(set(capacities.values())) > 1:
        return (Level(1.0, "capacity"), Level(-1.0, "capacity"))
    return (Level(1.0, formats.bit_rate(first)), Level(-1.0, formats.bit_rate(last)))


def _title(placements: tuple[Placement, ...]) -> str:
    if len(placements) == 2:
        return f"Link {placements[0].node} ⇄ {placements[1].node}"
    if len(placements) >= MANY_NODES:
        return f"Busiest of {len(placements)} links"
    return "Links"


def _subtitle(
    placements: tuple[Placement, ...],
    links: tuple[LinkSummary, ...],
    missing: list[str],
    program: str,
) -> str:
    words = "→ above, ← below" if len(placements) == 2 else "→ sent above, ← received below"
    if missing:
        claims = {link.node: link.capacity for link in links if link.capacity is not None}
        claim = next((claims[node] for node in missing if node in claims), None)
        known = f" (the card says {formats.bit_rate(claim.bytes_per_s)})" if claim else ""
        words += f"; {missing[0]}'s capacity is not measured{known}, so no %: {program} measure"
    else:
        spelled = {formats.capacity(link.capacity) for link in links}
        words += f"; 100{formats.NARROW}% = "
        words += spelled.pop() if len(spelled) == 1 else _range_of(links)
    if any(link.basis == "ranks" for link in links):
        words += "; payload of the ranks"
    return words


def _range_of(links: tuple[LinkSummary, ...]) -> str:
    known = [link.capacity for link in links if link.capacity is not None]
    low, high = min(c.bytes_per_s for c in known), max(c.bytes_per_s for c in known)
    source = " and ".join(sorted({"as given" if c.source == "given" else c.source for c in known}))
    return f"{formats.bit_rate(low)} to {formats.bit_rate(high)} {source}"


def _tick(limit: float) -> Spell:
    digits = 0 if limit >= 0.05 else 1 if limit >= 0.005 else 2 if limit >= 0.0005 else 3
    return lambda value: "0" if abs(value) < 1e-12 else f"{value * 100:.{digits}f}{formats.NARROW}%"
