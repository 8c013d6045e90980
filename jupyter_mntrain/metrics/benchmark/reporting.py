"""Benchmark report: built from the lines that rank 0 printed and the links' capacities. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jupyter_mntrain.metrics.benchmark.bandwidth import algorithm_bandwidth, bus_bandwidth
from jupyter_mntrain.metrics.benchmark.judging import judge
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.benchmark import (
    BenchedLine,
    BenchedPair,
    BenchedRank,
    BenchedSize,
    BenchReport,
    PairFigures,
    SizeFigures,
)
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.node import (
    Capacity,
    Interface,
    Latency,
    LinkMeasurement,
    NodeInfo,
)
from jupyter_mntrain.plan.measured_speeds import PAYLOAD_SHARE
from jupyter_mntrain.plan.networks.outdated import known_links, link_end

NodePair = tuple[str, str]


def make_report(
    job_id: JobId,
    lines: Iterable[BenchedLine],
    placements: Sequence[Placement],
    nodes: Sequence[NodeInfo],
    *,
    time_s: float,
    took_s: float = 0.0,
    unmeasured: str = "",
) -> BenchReport:
    """Build the report from the lines that rank 0 printed.

    Args:
        placements: of the job, in node-rank order.
        nodes: theirs, in the same order.
        unmeasured: why links were not measured.
    """
    found = [*lines]
    ranks = tuple(one for one in found if isinstance(one, BenchedRank))
    is_nccl = any(one.backend == "nccl" for one in ranks)
    rates = line_rates(placements, nodes, is_for_many_streams=is_nccl)
    if any(one.transport.network not in ("", "Socket") for one in ranks):
        rates = {}  # what TCP reaches says nothing of InfiniBand
    names = {rank: place.node for place in placements for rank in place.ranks}
    pairs = tuple(
        _pair(one, names, rates)
        for one in found
        if isinstance(one, BenchedPair) and {one.sender, one.receiver} <= names.keys()
    )
    between = {(one.node, other.node) for one in placements for other in placements} - {
        (one.node, one.node) for one in placements
    }
    slowest = min(rates.values()) if rates and rates.keys() >= between else None
    return BenchReport(
        job_id=job_id,
        nodes=tuple(place.node for place in placements),
        backend=ranks[0].backend if ranks else "",
        time_s=time_s,
        took_s=took_s,
        ranks=ranks,
        sizes=tuple(_size(one, slowest) for one in found if isinstance(one, BenchedSize)),
        pairs=pairs,
        line_bytes_per_s=slowest,
        unmeasured=unmeasured if slowest is None else "",
        problems=judge(ranks, pairs, nodes),
    )


def line_rates(
    placements: Sequence[Placement],
    nodes: Sequence[NodeInfo],
    *,
    is_for_many_streams: bool,
) -> dict[NodePair, float]:
    """Return the payload rate of each link in bytes per second, as measured or as given."""
    found: dict[NodePair, float] = {}
    for place, interface in _interfaces(placements, nodes):
        links = known_links(interface.links, is_for_many_streams=is_for_many_streams)
        measured = {one.receiver: one.capacity.payload_bytes_per_s for one in links}
        given = interface.given and interface.given.bytes_per_s * PAYLOAD_SHARE
        for other in placements:
            rate = measured.get(other.node, given)
            if other is not place and rate:
                found[place.node, other.node] = rate
    return found


def benched_links(
    lines: Iterable[BenchedLine],
    placements: Sequence[Placement],
    nodes: Sequence[NodeInfo],
    time_s: float,
) -> tuple[LinkMeasurement, ...]:
    """Return the bandwidth that messages between nodes reached, for the senders to keep."""
    found = [*lines]
    backends = {one.rank: one.backend for one in found if isinstance(one, BenchedRank)}
    owners: Mapping[int, tuple[Placement, Interface]] = {
        rank: (place, interface)
        for place, interface in _interfaces(placements, nodes)
        for rank in place.ranks
    }
    made = []
    for one in found:
        if not isinstance(one, BenchedPair) or not {one.sender, one.receiver} <= owners.keys():
            continue
        (place, interface), (there, other) = owners[one.sender], owners[one.receiver]
        if place.node == there.node or one.seconds <= 0:
            continue
        made.append(
            LinkMeasurement(
                sender=place.node,
                receiver=there.node,
                interface=place.interface,
                address=there.address,
                capacity=Capacity(
                    bytes_per_s=one.size_bytes / one.seconds,
                    source="measured",
                    time_s=time_s,
                    condition="alone",
                ),
                latency=Latency(one.latency_s, one.latency_p99_s, one.round_trips),
                ends=(link_end(interface), link_end(other)),
                backend=backends.get(one.sender, "gloo"),
            )
        )
    return tuple(made)


def _interfaces(
    placements: Sequence[Placement], nodes: Sequence[NodeInfo]
) -> list[tuple[Placement, Interface]]:
    """Return the placements with their interfaces; those whose node has lost it are left out."""
    return [
        (place, interface)
        for place, node in zip(placements, nodes, strict=True)
        for interface in node.inventory.interfaces
        if interface.name == place.interface
    ]


def _size(one: BenchedSize, slowest: float | None) -> SizeFigures:
    bus = bus_bandwidth(one.operation, one.size_bytes, one.seconds, one.ranks)
    return SizeFigures(
        operation=one.operation,
        size_bytes=one.size_bytes,
        seconds=one.seconds,
        algorithm_bytes_per_s=algorithm_bandwidth(one.size_bytes, one.seconds),
        bus_bytes_per_s=bus,
        line_share=bus / slowest if slowest else None,
    )


def _pair(
    one: BenchedPair, names: Mapping[int, str], rates: Mapping[NodePair, float]
) -> PairFigures:
    nodes = names[one.sender], names[one.receiver]
    return PairFigures(
        sender=one.sender,
        receiver=one.receiver,
        sender_node=nodes[0],
        receiver_node=nodes[1],
        size_bytes=one.size_bytes,
        bytes_per_s=algorithm_bandwidth(one.size_bytes, one.seconds),
        latency_s=one.latency_s,
        line_bytes_per_s=rates.get(nodes),
    )
