"""The lines of the picture out of a job's history. Pure; times are Unix seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from statistics import fmean, median

from jupyter_mntrain.cluster import JobHistory, RankSeries
from jupyter_mntrain.model.job import Placement
from jupyter_mntrain.model.metrics import LinkSample, RankStep
from jupyter_mntrain.model.node import Capacity
from jupyter_mntrain.telemetry import formulas

MAX_POINTS = 400
"""Per line: about two per pixel column of the plot."""

MIN_LINK_WINDOW_S = 3.0
"""Link samples are averaged over this or two steps: a step sends in bursts."""

Value = Callable[[RankStep], float | None]


@dataclass(frozen=True)
class Line:
    """A line with its label; ``values[i]`` at ``times[i]``."""

    label: str
    times: list[float]
    values: list[float]

    @property
    def last(self) -> float:
        return self.values[-1]


@dataclass(frozen=True)
class LinkLines:
    """Both directions of a node's link; fractions of its capacity, or bytes per second."""

    node: str
    first_rank: int
    sent: Line
    received: Line
    capacity: Capacity | None


def rank_lines(history: JobHistory, value: Value) -> dict[int, Line]:
    """One line per rank that has any value."""
    lines = {}
    for rank, series in history.ranks.items():
        line = _line(f"r{rank}", series.steps, value)
        if line is not None:
            lines[int(rank)] = line
    return lines


def job_throughput(history: JobHistory) -> Line | None:
    """Tokens per second of the job.

    In one pipeline every rank moves the same tokens: the first rank that reports speaks for all.
    """
    for series in history.ranks.values():
        line = _line("job", series.steps, lambda s: formulas.throughput(s.tokens or 0, s.step_s))
        if line is not None and line.last > 0:
            return line
    return None


def pace(step: RankStep) -> float | None:
    """Tokens over the time this rank computed: what it could do if it never waited."""
    if not step.tokens or not step.compute_s:
        return None
    return formulas.throughput(step.tokens, step.compute_s)


def mfu_of(series: RankSeries) -> Value:
    peak = series.start.peak_flops_per_s if series.start else None
    return lambda step: formulas.mfu(step.flops, step.step_s, peak)


def mfu_lines(history: JobHistory) -> dict[int, Line]:
    lines = {}
    for rank, series in history.ranks.items():
        line = _line(f"r{rank}", series.steps, mfu_of(series))
        if line is not None:
            lines[int(rank)] = line
    return lines


def loss_line(history: JobHistory) -> Line | None:
    """The first rank that knows the loss; the default trainer tells all of them the same."""
    for series in history.ranks.values():
        line = _line("loss", series.steps, lambda s: s.loss)
        if line is not None:
            return line
    return None


def idle(step: RankStep) -> float | None:
    return None if step.compute_s is None else formulas.measured_bubble(step.compute_s, step.step_s)


def link_lines(history: JobHistory) -> list[LinkLines]:
    """One entry per participant of a job of several nodes that has data."""
    placements = history.view.attempt.placements
    if len(placements) < 2:
        return []
    found = [_node_link(history, placement) for placement in placements]
    return [lines for lines in found if lines is not None]


def has_capacity(links: Sequence[LinkLines]) -> bool:
    """Whether the axis can be a share: only if every link's capacity was measured or given."""
    return all(is_known(link.capacity) for link in links)


def is_known(capacity: Capacity | None) -> bool:
    return capacity is not None and capacity.source != "nominal"


def _node_link(history: JobHistory, placement: Placement) -> LinkLines | None:
    samples = history.links.get(placement.node, ())
    given = history.view.spec.link_capacity_bytes_per_s
    capacity = (
        Capacity(bytes_per_s=given, source="given")
        if given
        else (samples[-1].capacity if samples else None)
    )
    if ip_address(placement.address).is_loopback:
        both = _payload_lines(history, placement)
    else:
        both = _counter_lines(history, samples)
    if both is None:
        return None
    sent, received = both
    return LinkLines(placement.node, int(placement.first_rank), sent, received, capacity)


def _payload_lines(history: JobHistory, placement: Placement) -> tuple[Line, Line] | None:
    """What the node's ranks exchange with other nodes, step by step."""
    own = [history.ranks[rank] for rank in history.ranks if rank in placement.ranks]
    if not own or not own[0].steps:
        return None
    count = min(len(series.steps) for series in own)
    times = [step.time_s for step in own[0].steps[:count]]

    def rates(pick: Callable[[RankStep], dict[int, int]]) -> list[float]:
        return [
            sum(
                sum(size for peer, size in pick(s.steps[i]).items() if peer not in placement.ranks)
                / s.steps[i].step_s
                for s in own
                if s.steps[i].step_s > 0
            )
            for i in range(count)
        ]

    if not times:
        return None
    node = placement.node
    return (
        _thinned(Line(node, times, rates(lambda s: s.sent_bytes))),
        _thinned(Line(node, times, rates(lambda s: s.received_bytes))),
    )


def _counter_lines(
    history: JobHistory, samples: Sequence[LinkSample]
) -> tuple[Line, Line] | None:
    if not samples:
        return None
    steps = [step.step_s for series in history.ranks.values() for step in series.steps[-50:]]
    window_s = max(MIN_LINK_WINDOW_S, 2 * median(steps) if steps else 0.0)
    times = [sample.time_s for sample in samples]
    sent = _rolling(samples, window_s, lambda s: s.sent_bytes)
    received = _rolling(samples, window_s, lambda s: s.received_bytes)
    return _thinned(Line("sent", times, sent)), _thinned(Line("received", times, received))


def _rolling(
    samples: Sequence[LinkSample], window_s: float, size: Callable[[LinkSample], int]
) -> list[float]:
    """Mean rate over the samples of the last ``window_s``."""
    rates, begin, moved, seconds = [], 0, 0, 0.0
    items = list(samples)
    for sample in items:
        moved += size(sample)
        seconds += sample.interval_s
        while seconds > window_s and items[begin] is not sample:
            moved -= size(items[begin])
            seconds -= items[begin].interval_s
            begin += 1
        rates.append(moved / seconds if seconds > 0 else 0.0)
    return rates


def _line(label: str, steps: Sequence[RankStep], value: Value) -> Line | None:
    # The first step allocates and connects: it would set the scale of everything after it.
    points = [(step.time_s, value(step)) for step in steps[1:]]
    known = [(time_s, v) for time_s, v in points if v is not None]
    if not known:
        return None
    return _thinned(Line(label, [t for t, _ in known], [v for _, v in known]))


def _thinned(line: Line) -> Line:
    """At most :data:`MAX_POINTS`, each the mean of its neighbours; the last one as it is."""
    size = -(-len(line.times) // MAX_POINTS)
    if size <= 1:
        return line
    starts = range(0, len(line.times) - 1, size)
    return Line(
        line.label,
        [fmean(line.times[i : i + size]) for i in starts] + [line.times[-1]],
        [fmean(line.values[i : i + size]) for i in starts] + [line.values[-1]],
    )
