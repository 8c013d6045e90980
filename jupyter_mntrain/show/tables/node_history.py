"""Node history table: a sparkline per figure, with its newest, mean and highest value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.metrics.node_history import (
    Figure,
    HistoryGap,
    HistoryJob,
    HistoryLine,
    HistoryPart,
    NodeHistory,
)
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import folding, plain_table

SPARK_POINTS: Final = 30
"""Points of a line, so that a table fits 80 columns."""

LISTED: Final = 5
"""Jobs and gaps that are named, the newest."""

_BLOCKS: Final = "▁▂▃▄▅▆▇█"

_NAMES: Final[dict[Figure, str]] = {
    "cpu_share": "CPU",
    "memory_bytes": "memory",
    "utilization": "use",
    "power_w": "power",
    "temperature_c": "temperature",
    "sent_bytes_per_s": "out",
    "received_bytes_per_s": "in",
}
"""What ranks send is a part of what the interface does, and has no line of its own."""

_STATES: Final = {
    "off": "the agent did not run",
    "suspended": "the node was suspended, or its agent could not run",
    "before": "the node had recorded none yet",
}


def history_table(history: NodeHistory, last_s: float, now_s: float) -> RenderableType:
    """Return one row per figure, and below the jobs and gaps in this period.

    Args:
        last_s: seconds that were asked for.
        now_s: Unix time.
    """
    step = formats.duration(history.step_s)
    title = Text.assemble(
        (history.node, "bold"), f", last {formats.duration(last_s)}, one block is {step}"
    )
    table = plain_table("", "", "now", "mean", "most", right=("now", "mean", "most"))
    for part in history.parts:
        for line in part.lines:
            if line.figure in _NAMES:
                table.add_row(line_name(part, line.figure), *_cells(part, line))
    if not history.parts:
        return Group(title, Text("Its agent has recorded no values in this period."))
    return Group(title, table, folding(_notes(history, now_s)))


def line_name(part: HistoryPart, figure: Figure) -> str:
    """Return the label of a line: GPU 0 use; eno1 out; CPU."""
    name = _NAMES[figure]
    if part.kind == "gpu":
        return f"GPU {part.index} {name}"
    return f"{part.key} {name}" if part.key else name


def _cells(part: HistoryPart, line: HistoryLine) -> Iterator[str]:
    known = [value for value in line.mean if value is not None]
    highest = max(value for value in line.high or line.mean if value is not None)
    top = _top(part, line.figure, highest)
    yield sparkline(line.mean, top)
    write = _format(line.figure)
    yield formats.ABSENT if line.mean[-1] is None else write(line.mean[-1])
    yield write(sum(known) / len(known))
    yield write(highest)


def _top(part: HistoryPart, figure: Figure, highest: float) -> float:
    """Return the value of a full block: the total, if that is known."""
    if figure in ("cpu_share", "utilization"):
        return 1.0
    if figure == "memory_bytes" and part.total:
        return part.total
    return highest


def sparkline(values: Sequence[float | None], top: float) -> str:
    """Return one block per value from 0 to ``top``; a blank where it is not known."""
    last = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[max(0, min(last, round(value / (top or 1.0) * last)))]
        for value in values
    )


def _format(figure: Figure) -> Callable[[float], str]:
    match figure:
        case "cpu_share" | "utilization":
            return lambda value: formats.percent(value, 0)
        case "memory_bytes":
            return formats.memory
        case "power_w":
            return lambda value: f"{formats.count(value)}{formats.SPACE}W"
        case "temperature_c":
            return lambda value: f"{formats.count(value)}{formats.SPACE}°C"
        case _:
            return formats.bit_rate


def _notes(history: NodeHistory, now_s: float) -> Iterator[Text]:
    if history.gpu_note and not any(part.kind == "gpu" for part in history.parts):
        yield Text(f"GPUs: {formats.ABSENT}, {history.gpu_note}", style="dim")
    for gap in history.gaps[-LISTED:]:
        yield Text(_gap(gap), style="yellow")
    yield from (Text(_job(job, now_s), style="dim") for job in history.jobs[-LISTED:])
    hidden = max(0, len(history.jobs) - LISTED) + max(0, len(history.gaps) - LISTED)
    if hidden:
        yield Text(f"{hidden} older ones: add --json", style="dim")


def _gap(gap: HistoryGap) -> str:
    begin, end = formats.clock(gap.begin_s), formats.clock(gap.end_s)
    return f"{begin} to {end}: no values, {_STATES[gap.state]}"


def _job(job: HistoryJob, now_s: float) -> str:
    length = formats.duration((job.end_s or now_s) - job.begin_s)
    until = "now" if job.end_s is None else formats.clock(job.end_s)
    ranks = f"rank{'' if len(job.ranks) == 1 else 's'} {formats.spans(job.ranks)}"
    return (
        f"{formats.clock(job.begin_s)} to {until}: {job.job_id} {job.name}, {ranks}, "
        f"{job.state}, {length}"
    )
