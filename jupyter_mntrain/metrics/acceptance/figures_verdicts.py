"""Verdicts on figures: scaling compared with its prediction, bandwidth with the line rate. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    Criterion,
    Observed,
    ScalingPoint,
)
from jupyter_mntrain.metrics.acceptance.efficiency import (
    Efficiency,
    base_of,
    efficiency,
    sharing,
)
from jupyter_mntrain.metrics.acceptance.question import Question
from jupyter_mntrain.metrics.acceptance.words import share
from jupyter_mntrain.metrics.summary import OffPlanCause
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.quantities import listed, rough_bit_rate
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport

LEAST_EFFICIENCY: Final = tunables.ratio("acceptance.least_efficiency")
LEAST_BANDWIDTH: Final = tunables.ratio("acceptance.least_bandwidth")

MOST_CAUSES: Final = 3
LEAST_SHARE: Final = 0.01
"""Smallest share of a step that is mentioned."""

SCALING_HOW: Final = "the same recipe was timed on each number of nodes"
BANDWIDTH: Final = Question(
    "bandwidth",
    "all-reduce reaches the line rate",
    "all-reduce between all ranks, at the fastest message size",
)
TRANSPORT: Final = Question(
    "rdma",
    "InfiniBand or RoCE is in use",
    "the transport that NCCL reported in the benchmark",
)


def scaling(observed: Observed) -> Iterator[Criterion]:
    """Yield a criterion for each number of nodes except the smallest, which is the baseline."""
    points = {len(one.nodes): one for one in observed.scaling}
    base = base_of(observed.scaling)
    sizes = observed.sizes or (1, 2)
    for size in sizes[1:] if len(sizes) > 1 else sizes:
        asked = Question(f"scaling-{size}", f"throughput scales to {size} nodes", SCALING_HOW)
        if size > len(observed.nodes):
            yield asked.unjudged(f"only {len(observed.nodes)} nodes take part")
        elif size not in points:
            yield asked.unreached(observed, "scaling")
        else:
            yield _scaled(asked, observed, points[size], base)


def _scaled(
    asked: Question, observed: Observed, point: ScalingPoint, base: ScalingPoint | None
) -> Criterion:
    if point.problem is not None:
        return asked.failed(point.problem)
    if base is point:
        return asked.unjudged("no job on fewer nodes has figures to compare it with")
    found = None if base is None else efficiency(point, base)
    if found is None:
        return asked.unjudged("it ended before it had made enough steps for figures")
    figure = f"efficiency {share(found.measured)}, predicted {share(found.predicted)}"
    why = drop_words(point)
    hindrance = _hindrance(observed, point, base, found)
    if hindrance:
        return asked.unjudged(f"{hindrance}; {why}" if why else hindrance, figure)
    value = found.of_predicted or 0.0
    return asked.judged(
        value >= LEAST_EFFICIENCY,
        figure=f"{figure}: {share(value)} of it, at least {share(LEAST_EFFICIENCY)}",
        value=value,
        limit=LEAST_EFFICIENCY,
        why=why,
    )


def _hindrance(
    observed: Observed, point: ScalingPoint, base: ScalingPoint | None, found: Efficiency
) -> str:
    """Return the reason why the efficiency is not conclusive; empty if it is."""
    shared = sharing(observed.nodes, point.nodes)
    if shared:
        return f"{listed(shared)} share one machine and its cores"
    if found.predicted is None:
        return "nothing was predicted to compare it with"
    guesses = dict.fromkeys((*point.guesses, *(base.guesses if base else ())))
    if guesses:
        return f"the prediction had to guess: {', '.join(guesses)}"
    return ""


def drop_words(point: ScalingPoint) -> str:
    """Describe what takes time in a step besides computing, largest first, and what is off plan."""
    parts = {
        "the schedule's bubble": point.bubble,
        "sending": point.send,
        "waiting for other ranks": point.wait,
    }
    known = [(value, name) for name, value in parts.items() if value and value >= LEAST_SHARE]
    lost = [f"{name} {share(value)}" for value, name in sorted(known, reverse=True)]
    said = []
    if lost:
        said.append(f"of a step, {', '.join(lost)}")
    if point.off_plan is not None:
        causes = point.off_plan.causes[:MOST_CAUSES]
        told = ", ".join(map(_off_plan, causes)) or "ranks wait"
        slower = "longer" if point.off_plan.ratio > 1 else "shorter"
        said.append(f"a step is {slower} than planned: {told}")
    if point.bottleneck:
        said.append(f"the plan's bottleneck: {point.bottleneck}")
    return "; ".join(said)


def _off_plan(cause: OffPlanCause) -> str:
    match cause.kind:
        case "computing":
            return f"rank {cause.rank} computes {cause.ratio:.1f} times as long"
        case "link":
            longer = f"{cause.ratio:.1f} times as long"
            if cause.took_s is not None and cause.planned_s is not None:
                longer = f"{1000 * cause.took_s:.1f} ms, planned {1000 * cause.planned_s:.1f} ms"
            return f"a message from rank {cause.rank} to rank {cause.peer} takes {longer}"
        case "traffic":
            return f"others use {share(cause.ratio)} of the link of {cause.node}"


def bandwidth(observed: Observed) -> Criterion:
    """Judge the all-reduce bandwidth by what the slowest link was measured to carry."""
    if observed.bandwidth_problem is not None:
        return BANDWIDTH.failed(observed.bandwidth_problem)
    report = observed.benchmark
    if report is None:
        return BANDWIDTH.unreached(observed, "bandwidth")
    if report.failure is not None:
        return BANDWIDTH.failed(report.failure)
    best = max(report.of("all_reduce"), key=lambda one: one.bus_bytes_per_s, default=None)
    if best is None:
        return BANDWIDTH.unjudged("the benchmark reported no all-reduce")
    figure = f"bus bandwidth {rough_bit_rate(best.bus_bytes_per_s)}"
    hindrance = _unmeasurable(observed, report, best.line_share)
    if hindrance:
        return BANDWIDTH.unjudged(hindrance, figure)
    value = best.line_share or 0.0
    return BANDWIDTH.judged(
        value >= LEAST_BANDWIDTH,
        figure=f"{figure}: {share(value)} of the line rate, at least {share(LEAST_BANDWIDTH)}",
        value=value,
        limit=LEAST_BANDWIDTH,
        why="; ".join(map(str, report.problems)),
    )


def _unmeasurable(observed: Observed, report: BenchReport, line_share: float | None) -> str:
    """Return the reason why the bandwidth is not conclusive."""
    shared = sharing(observed.nodes, report.nodes)
    if shared:
        return f"{listed(shared)} share one machine: its cores, not a network, limit the rate"
    if len(report.nodes) < 2:
        return "a single node uses no network"
    if line_share is None:
        return report.unmeasured or "no line rate is known of these links"
    return ""


def transport(observed: Observed) -> Criterion:
    """Judge whether messages go over InfiniBand or RoCE, if the nodes have it."""
    able = tuple(one.name for one in observed.nodes if one.rdma_ports)
    report = observed.benchmark
    if not able:
        return TRANSPORT.unjudged("no node has an InfiniBand or RoCE port that its ranks could use")
    if report is None or report.failure is not None or not report.ranks:
        return TRANSPORT.unjudged(
            observed.left_out.get("bandwidth", "the benchmark reported nothing")
        )
    over_tcp = dict.fromkeys(
        one.node
        for one in report.ranks
        if one.node in able and one.transport.network in ("", "Socket")
    )
    ways = dict.fromkeys(way for one in report.ranks for way in one.transport.ways)
    why = f"over TCP: {listed(tuple(over_tcp))}" if over_tcp else ""
    return TRANSPORT.judged(not over_tcp, figure=", ".join(ways), why=why)
