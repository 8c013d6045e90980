"""Benchmark tables: bus bandwidth by operation and message size, pairs, and what is too slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.quantities import size_text
from jupyter_mntrain.model.records.doctor.benchmark import (
    OPERATIONS,
    BenchReport,
    Operation,
    PairFigures,
)
from jupyter_mntrain.model.text.foreign import shown_line, shown_name
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding, plain_table

NAMES: Final[Mapping[Operation, str]] = {
    "send": "send and receive",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
}

MOST_PAIRS: Final = 20
SLOWEST: Final = 10
"""With more pairs, only the slowest are listed."""

BACKENDS: Final[Mapping[str, str]] = {"gloo": "Gloo", "nccl": "NCCL"}


def benchmark_table(report: BenchReport) -> RenderableType:
    """Return the report in 80 columns: operations, message sizes, pairs and problems."""
    parts: list[RenderableType] = [folding([Text(heading(report))]), _operations(report)]
    parts += [Text(), _sizes(report)]
    if report.pairs:
        parts += [Text(), _pairs(report)]
    problems = [problem_text(one, mark="!", style="yellow") for one in report.problems]
    return Group(*parts, folding([*problems, *_notes(report)]))


def heading(report: BenchReport) -> str:
    """Return ranks, backend and transport in one line."""
    counts = [
        f"{node} {formats.plural(sum(one.node == node for one in report.ranks), 'rank')}"
        for node in dict.fromkeys(one.node for one in report.ranks)
    ]
    backend = BACKENDS.get(report.backend, report.backend)
    return shown_line(f"{', '.join(counts)}; {backend} over {transport_words(report)}")


def transport_words(report: BenchReport) -> str:
    """Return the transport of messages, as NCCL reports it."""
    if report.backend == "gloo":
        return "TCP"
    ways = dict.fromkeys(way for one in report.ranks for way in one.transport.ways)
    rails = dict.fromkeys(rail for one in report.ranks for rail in one.transport.rails)
    said = ", ".join(ways) or "transports that its log does not show"
    return f"{said} ({', '.join(rails)})" if rails else said


def _operations(report: BenchReport) -> RenderableType:
    """Return each operation's bandwidth for the largest message and time for the smallest."""
    head = ("operation", "largest", "bus bandwidth", "of line rate", "latency")
    table = plain_table(*head, right=head[1:])
    for operation in OPERATIONS:
        sizes = report.of(operation)
        if not sizes:
            continue
        last = sizes[-1]
        ends = [one.latency_s for one in report.pairs]
        latency = max(ends) if operation == "send" and ends else sizes[0].seconds
        table.add_row(
            NAMES[operation],
            size_text(last.size_bytes),
            formats.bit_rate(last.bus_bytes_per_s),
            formats.percent(last.line_share),
            formats.latency(latency),
        )
    return table


def _sizes(report: BenchReport) -> RenderableType:
    """Return bus bandwidth by message size, with a column per operation."""
    shown = [one for one in OPERATIONS if report.of(one)]
    table = plain_table("size", *map(NAMES.get, shown), right=("size", *NAMES.values()))  # type: ignore[arg-type]
    by_size: dict[int, dict[Operation, float]] = {}
    for one in report.sizes:
        by_size.setdefault(one.size_bytes, {})[one.operation] = one.bus_bytes_per_s
    for size, rates in sorted(by_size.items()):
        table.add_row(size_text(size), *(formats.bit_rate(rates.get(one)) for one in shown))
    return table


def _pairs(report: BenchReport) -> RenderableType:
    head = ("from", "to", "size", "reaches", "of its link", "latency")
    table = plain_table(*head, right=head[2:])
    is_short = len(report.pairs) <= MOST_PAIRS
    by_rate = sorted(report.pairs, key=lambda pair: pair.bytes_per_s)
    for one in report.pairs if is_short else by_rate[:SLOWEST]:
        table.add_row(
            *_ends(one),
            size_text(one.size_bytes),
            formats.bit_rate(one.bytes_per_s),
            formats.percent(one.line_share),
            formats.latency(one.latency_s),
        )
    if is_short:
        return table
    return Group(Text(f"The slowest {SLOWEST} of {len(by_rate)} pairs:", style="dim"), table)


def _ends(pair: PairFigures) -> tuple[str, str]:
    if pair.sender_node != pair.receiver_node:
        return shown_name(pair.sender_node), shown_name(pair.receiver_node)
    return f"rank {pair.sender}", f"rank {pair.receiver}"


def _notes(report: BenchReport) -> Iterator[Text]:
    if report.line_bytes_per_s is not None:
        rate = formats.bit_rate(report.line_bytes_per_s)
        words = f"Line rate: {rate}, the payload that the slowest link was measured to carry."
    elif report.unmeasured:
        words = f"No line rate: {shown_line(report.unmeasured)}"
    else:
        words = "No line rate is known of these ranks' links."
    stored = " Stored by the agents; plans use it." if report.pairs else ""
    yield Text(f"{words} Latency: of the smallest message, one way.{stored}", style="dim")
