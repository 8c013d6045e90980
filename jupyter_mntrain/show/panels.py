"""The five charts of the picture. Each takes its axes and the history, and returns its labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from jupyter_mntrain.cluster import JobHistory
from jupyter_mntrain.show import formats, style
from jupyter_mntrain.show.series import (
    Line,
    LinkLines,
    has_capacity,
    idle,
    job_throughput,
    loss_line,
    mfu_lines,
    pace,
    rank_lines,
)
from jupyter_mntrain.telemetry import formulas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Show = Callable[[float], str]


@dataclass(frozen=True)
class Label:
    """Text at the right end of a line, at ``value`` on the chart's axis."""

    text: str
    value: float
    colour: str


def throughput(axes: Axes, history: JobHistory) -> list[Label]:
    _title(axes, "Throughput, tok/s", "job, and each rank's pace while computing")
    labels = _ranks(axes, rank_lines(history, pace), formats.whole)
    job = job_throughput(history)
    if job is not None:
        axes.plot(_dates(job), job.values, color=style.TEXT, linewidth=2.4)
        labels.append(Label(f"job {formats.whole(job.last)}", job.last, style.TEXT))
    _format(axes, formats.whole)
    return labels


def mfu(axes: Axes, history: JobHistory) -> list[Label]:
    _title(axes, "MFU", _peaks(history))
    labels = _ranks(axes, mfu_lines(history), formats.percent)
    axes.set_ylim(bottom=0)
    _format(axes, _tick_percent)
    return labels


def links(axes: Axes, found: list[LinkLines]) -> list[Label]:
    """Sent above zero, received below: directions of a full-duplex link never add up."""
    shares = has_capacity(found)
    labels: list[Label] = []

    def value(link: LinkLines, rate: float) -> float:
        capacity = link.capacity.bytes_per_s if link.capacity else None
        share = formulas.link_utilisation(rate, capacity) if shares else None
        return rate if share is None else share

    def text(number: float) -> str:
        return formats.percent(abs(number)) if shares else formats.bit_rate(abs(number))

    for link in found:
        drawn = style.rank_style(link.first_rank)
        for line, sign, mark in ((link.sent, 1, "→"), (link.received, -1, "←")):
            values = [sign * value(link, rate) for rate in line.values]
            axes.plot(_dates(line), values, **drawn)
            axes.fill_between(_dates(line), values, color=drawn["color"], alpha=0.12, linewidth=0)
            shown = f"{link.node} {mark} {text(values[-1])}"
            labels.append(Label(shown, values[-1], str(drawn["color"])))
    axes.axhline(0, color=style.TEXT, linewidth=0.8)
    _title(axes, "Links", _capacities(found) if shares else "not measured: 'measure' finds out")
    top = max(abs(bound) for bound in axes.get_ylim())
    axes.set_ylim(-top, top)
    _format(axes, (lambda v: _tick_percent(abs(v))) if shares else (lambda v: text(v)))
    return labels


def idle_share(axes: Axes, history: JobHistory) -> list[Label]:
    view = history.view
    starts = [series.start for series in history.ranks.values() if series.start]
    ideal = None
    if starts and starts[0].microbatches and starts[0].stages:
        ideal = formulas.ideal_bubble(
            view.spec.world_size, starts[0].microbatches, len(starts[0].stages)
        )
    said = "share of a step without forward or backward"
    _title(axes, "Idle", said + (f"; bubble of the schedule {formats.percent(ideal)}" if ideal else ""))
    labels = _ranks(axes, rank_lines(history, idle), formats.percent)
    if ideal:
        axes.axhline(ideal, color=style.TEXT, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_ylim(bottom=0)
    _format(axes, _tick_percent)
    return labels


def loss(axes: Axes, history: JobHistory) -> list[Label]:
    _title(axes, "Loss", "")
    line = loss_line(history)
    if line is None:
        return []
    axes.plot(_dates(line), line.values, color=style.TEXT, linewidth=1.8)
    _format(axes, lambda value: f"{value:.2f}")
    return [Label(f"loss {formats.loss(line.last)}", line.last, style.TEXT)]


def _ranks(axes: Axes, lines: Mapping[int, Line], show: Show) -> list[Label]:
    """One line per rank, or, above eight, the band of all and the slowest rank."""
    if len(lines) <= style.MANY_RANKS:
        for rank, line in lines.items():
            axes.plot(_dates(line), line.values, **style.rank_style(rank))
        return [
            Label(f"{line.label} {show(line.last)}", line.last, style.RANK_COLOURS[rank % 4])
            for rank, line in lines.items()
        ]
    return _band(axes, lines, show)


def _band(axes: Axes, lines: Mapping[int, Line], show: Show) -> list[Label]:
    count = min(len(line.values) for line in lines.values())
    columns = list(zip(*(line.values[-count:] for line in lines.values()), strict=True))
    any_line = next(iter(lines.values()))
    dates = _dates(any_line)[-count:]
    low = [min(column) for column in columns]
    middle = [median(column) for column in columns]
    high = [max(column) for column in columns]
    colour = style.RANK_COLOURS[0]
    axes.fill_between(dates, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(dates, middle, color=colour, linewidth=1.8)
    slowest = min(lines, key=lambda rank: median(lines[rank].values))
    drawn = style.rank_style(1)
    axes.plot(dates, lines[slowest].values[-count:], **drawn)
    return [
        Label(f"max {show(high[-1])}", high[-1], colour),
        Label(f"median {show(middle[-1])}", middle[-1], colour),
        Label(f"lowest r{slowest} {show(lines[slowest].last)}", lines[slowest].last,
              str(drawn["color"])),
    ]  # fmt: skip


def _peaks(history: JobHistory) -> str:
    """Whose peak the share is of: a measured product and a data sheet are different things."""
    starts = [series.start for series in history.ranks.values() if series.start]
    sources = sorted({start.peak_source for start in starts if start.peak_source})
    unknown = any(start.peak_flops_per_s is None for start in starts)
    said = f"per rank, of its own peak ({'; '.join(sources)})" if sources else "per rank"
    return said + (" · no number where the peak is unknown" if unknown else "")


def _capacities(found: list[LinkLines]) -> str:
    """``of 941 Mbit/s measured``, once if all are alike."""
    said = {
        f"{formats.bit_rate(link.capacity.bytes_per_s)} {link.capacity.source}"
        for link in found
        if link.capacity
    }
    return f"→ sent above, ← received below, of {' / '.join(sorted(said))}"


def _title(axes: Axes, name: str, note: str) -> None:
    axes.set_title(name, loc="left", fontsize=9, fontweight="bold", color=style.TEXT, pad=4)
    axes.annotate(
        note,
        (1, 1),
        (0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        fontsize=7.5,
        color=style.TEXT,
    )


def _format(axes: Axes, show: Show) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))


def _tick_percent(share: float) -> str:
    number = 100 * share
    digits = 0 if number >= 10 or number == int(number) else 1
    return f"{number:.{digits}f}{formats.NARROW}%"


def _dates(line: Line) -> list[float]:
    """Days since the epoch in local time, as matplotlib counts; its own conversion is slow."""
    import time

    offset_s = time.localtime(line.times[0]).tm_gmtoff if line.times else 0
    return [(moment + offset_s) / 86400 for moment in line.times]
