"""Draws a job: what it is now, then throughput, MFU, links, idle share and loss over time."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from jupyter_mntrain.cluster import JobHistory, JobSummary
from jupyter_mntrain.show import panels, style, words
from jupyter_mntrain.show.labels import spread
from jupyter_mntrain.show.series import link_lines, loss_line, rank_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = Callable[["Axes"], list[panels.Label]]


def draw_png(history: JobHistory, summary: JobSummary, *, opaque: bool = False) -> bytes:
    """The picture as PNG bytes, 960 pixels wide.

    Args:
        opaque: on white, for a file; else transparent, for a page of either theme.
    """
    figure = draw(history, summary)
    if opaque:
        figure.set_facecolor("white")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", transparent=not opaque)
    return buffer.getvalue()


def draw(history: JobHistory, summary: JobSummary) -> Figure:
    """The picture as a figure of its own, tied to no backend and no thread."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chosen = _panels(history)
    height = style.HEADER_IN + max(1, len(chosen)) * style.PANEL_IN + style.FOOT_IN
    if not chosen:
        height = style.HEADER_IN + style.FOOT_IN
    figure = Figure(figsize=(style.WIDTH_IN, height), dpi=style.DPI, facecolor="none")
    FigureCanvasAgg(figure)
    _header(figure, summary, height, has_data=bool(chosen))
    if chosen:
        _charts(figure, chosen, height)
    return figure


def _panels(history: JobHistory) -> list[Panel]:
    """Only charts that have something to show."""
    if not any(len(series.steps) > 1 for series in history.ranks.values()):
        return []
    found: list[Panel] = [partial(panels.throughput, history=history)]
    if panels.mfu_lines(history):
        found.append(partial(panels.mfu, history=history))
    links = link_lines(history)
    if links:
        found.append(partial(panels.links, found=links))
    if rank_lines(history, panels.idle):
        found.append(partial(panels.idle_share, history=history))
    if loss_line(history):
        found.append(partial(panels.loss, history=history))
    return found


def _header(figure: Figure, summary: JobSummary, height: float, *, has_data: bool) -> None:
    lines: list[tuple[str, dict[str, object]]] = []
    cause = words.cause(summary)
    if cause is not None:
        shown = cause if len(cause) <= 130 else cause[:129] + "…"
        lines.append((f"✕ {shown}", {"color": style.BAD, "fontweight": "bold"}))
    lines.append((words.title(summary), {"fontsize": 11, "fontweight": "bold"}))
    if has_data:
        lines.append((f"{words.progress(summary)}   {words.numbers(summary)}", {}))
    else:
        lines.append((words.waiting(summary), {}))
    for index, (text, change) in enumerate(lines):
        look: dict[str, object] = {"fontsize": 9, "color": style.TEXT, **change}
        figure.text(0.008, 1 - (0.14 + 0.23 * index) / height, text, va="top", **look)


def _charts(figure: Figure, chosen: list[Panel], height: float) -> None:
    grid = figure.add_gridspec(
        len(chosen),
        1,
        left=style.LEFT,
        right=style.RIGHT,
        top=1 - style.HEADER_IN / height,
        bottom=style.FOOT_IN / height,
        hspace=0.42,
    )
    first: Axes | None = None
    drawn: list[tuple[Axes, list[panels.Label]]] = []
    for index, panel in enumerate(chosen):
        axes = figure.add_subplot(grid[index], sharex=first)
        first = first or axes
        _plain(axes, is_last=index == len(chosen) - 1)
        drawn.append((axes, panel(axes)))
    _time_axis(drawn[-1][0])
    for axes, labels in drawn:
        _write_labels(axes, labels)


def _plain(axes: Axes, *, is_last: bool) -> None:
    axes.set_facecolor("none")
    axes.grid(color=style.GRID, linewidth=0.6)
    axes.tick_params(colors=style.TEXT, labelsize=8, length=0, labelbottom=is_last)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(style.GRID)
    axes.margins(x=0.01, y=0.12)


def _time_axis(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))


def _write_labels(axes: Axes, labels: list[panels.Label]) -> None:
    """At the right, at the lines' ends, spread so that none covers another."""
    low, high = axes.get_ylim()
    height_px = axes.get_window_extent().height
    gap = style.LABEL_GAP_PX / height_px
    wanted = [(label.value - low) / (high - low) for label in labels]
    for label, y in zip(labels, spread(wanted, gap, 0.0, 1.0), strict=True):
        axes.annotate(
            label.text,
            (1.0, y),
            (8, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=label.colour,
            annotation_clip=False,
        )
