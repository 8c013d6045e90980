"""How full each node's link was, each direction by itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address
from statistics import median
from typing import Literal

from jupyter_mntrain.metrics.history import JobHistory, RankSeries
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.metrics import LinkSample, RankStep
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.telemetry import formulas

Direction = Literal["sent", "received"]
Basis = Literal["interface", "ranks"]


class LinkSummary(Record, frozen=True):
    """One direction of the interface a node trains over.

    Args:
        bytes_per_s: what the interface's counters say, averaged from the end of the warm-up steps
            to the last step (``basis`` "interface"), or the payload that the node's ranks
            exchanged with other nodes, median per step (``basis`` "ranks": several nodes share
            the counters of a loopback interface).
        utilization: of the measured or given capacity, 0..1; ``None`` if there is none. What a
            network card calls itself is not a capacity: virtual cards say nonsense.
    """

    node: str
    interface: str
    direction: Direction
    bytes_per_s: float | None
    utilization: float | None
    capacity: Capacity | None
    basis: Basis


def summarize_links(history: JobHistory, *, warm_up_steps: int) -> tuple[LinkSummary, ...]:
    """Both directions of every participant, in node-rank order; none for a single node."""
    placements = history.view.attempt.placements
    if len(placements) < 2:
        return ()
    return tuple(
        _summarize(history, placement, direction, warm_up_steps)
        for placement in placements
        for direction in ("sent", "received")
    )


def _summarize(
    history: JobHistory, placement: Placement, direction: Direction, warm_up_steps: int
) -> LinkSummary:
    samples = history.links.get(placement.node, ())
    series = [history.ranks[r] for r in history.ranks if r in placement.ranks]
    basis: Basis = "ranks" if ip_address(placement.address).is_loopback else "interface"
    rate = (
        _rank_rate(series, placement, direction, warm_up_steps)
        if basis == "ranks"
        else _interface_rate(samples, series, direction, warm_up_steps)
    )
    capacity = _capacity(history, samples)
    usable = capacity is not None and capacity.source != "nominal"
    return LinkSummary(
        node=placement.node,
        interface=placement.interface,
        direction=direction,
        bytes_per_s=rate,
        utilization=(
            formulas.link_utilization(rate, capacity.bytes_per_s)
            if rate is not None and capacity is not None and usable
            else None
        ),
        capacity=capacity,
        basis=basis,
    )


def _capacity(history: JobHistory, samples: Sequence[LinkSample]) -> Capacity | None:
    given = history.view.spec.link_capacity_bytes_per_s
    if given is not None:
        return Capacity(bytes_per_s=given, source="given")
    return samples[-1].capacity if samples else None


def _rank_rate(
    series: list[RankSeries], placement: Placement, direction: Direction, warm_up_steps: int
) -> float | None:
    def payload(step: RankStep) -> int:
        by_peer = step.sent_bytes if direction == "sent" else step.received_bytes
        return sum(size for peer, size in by_peer.items() if peer not in placement.ranks)

    rates = []
    for one in series:
        steady = [s for s in one.steps[warm_up_steps:] if s.step_s > 0]
        if not steady:
            return None
        rates.append(median(payload(step) / step.step_s for step in steady))
    return sum(rates) if rates else None


def _interface_rate(
    samples: Sequence[LinkSample],
    series: list[RankSeries],
    direction: Direction,
    warm_up_steps: int,
) -> float | None:
    """Bytes over time between the end of warm-up and the last step, all on the node's own clock.

    A mean, not a median of samples: a step longer than a second sends in bursts.
    """
    trained = [one.steps for one in series if len(one.steps) > warm_up_steps]
    if trained:
        begin = min(steps[max(0, warm_up_steps - 1)].time_s for steps in trained)
        end = max(steps[-1].time_s for steps in trained)
        inside = [s for s in samples if s.time_s - s.interval_s >= begin and s.time_s <= end]
        # A run too short for a whole sample inside is told by those that touch it.
        samples = inside or [
            s for s in samples if s.time_s > begin and s.time_s - s.interval_s < end
        ]
    seconds = sum(sample.interval_s for sample in samples)
    if seconds <= 0:
        return None
    size: Callable[[LinkSample], int] = (
        (lambda s: s.sent_bytes) if direction == "sent" else (lambda s: s.received_bytes)
    )
    return sum(size(sample) for sample in samples) / seconds
