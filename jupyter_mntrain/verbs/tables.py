"""Tables and lines for people, the same in a terminal and under a cell."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from jupyter_mntrain.cluster import JobSummary, LinkMeasurement, LinkSummary, NodeView
from jupyter_mntrain.model.job import JobView
from jupyter_mntrain.model.node import Capacity, Interface, NodeInfo
from jupyter_mntrain.plan.versions import Divergence
from jupyter_mntrain.show import formats, words


def nodes(views: Sequence[NodeView], diverging: Sequence[Divergence], *, now_s: float) -> Table:
    """One row per node; a version that diverges from the majority is marked with ``≠``."""
    table = _table("node", "state", "address", "CPU, memory", "GPUs", "interfaces", "versions")
    for view in views:
        odd = {one.key for one in diverging if one.node == view.name}
        info = view.info
        state = f"{words.NODE_MARKS[view.liveness]} {view.liveness}"
        if view.liveness != "up" and view.last_seen_s is not None:
            state += f", last seen {formats.duration(now_s - view.last_seen_s)} ago"
        if info is None:
            table.add_row(view.name, state, view.address, *[formats.ABSENT] * 4)
            continue
        own = info.inventory
        table.add_row(
            view.name,
            state,
            view.address,
            f"{own.cpu_count} cores, {formats.gibibytes(own.memory_total_bytes)}",
            _gpus(info),
            "\n".join(_interface(i) for i in own.interfaces if _is_shown(i, info)),
            "\n".join(_versions(info, odd)),
        )
    return table


def node_notes(views: Sequence[NodeView], diverging: Sequence[Divergence]) -> list[Text]:
    """What a person should know besides the table, a line each."""
    lines = [f"{view.name}: {view.reason}" for view in views if view.reason]
    for one in diverging:
        value = one.value or "not installed"
        usual = f"the others have {one.majority}" if one.majority else "no version has a majority"
        lines.append(f"{one.node}: {one.key} {value}, {usual}. Fix: install the same everywhere.")
    if any(view.info is not None and view.info.trust == "none" for view in views):
        lines.append("agents are unauthenticated and unencrypted: only for networks you trust")
    return [Text(line) for line in lines]


def jobs(views: Sequence[JobView]) -> Table:
    table = _table("job", "name", "state", "nodes (ranks)", "step", "submitted", "cause")
    for view in views:
        steps = [rank.step for part in view.parts for rank in part.ranks if rank.step is not None]
        table.add_row(
            view.job_id,
            view.spec.name,
            f"{words.STATE_MARKS[view.state]} {view.state}",
            ", ".join(f"{p.node} ({p.nproc})" for p in view.attempt.placements),
            formats.whole(min(steps)) if steps else formats.ABSENT,
            time.strftime("%H:%M:%S", time.localtime(view.attempt.submitted_s)),
            words.cause_line(view.cause_node, view.cause.summary) if view.cause else "",
        )
    return table


def status(summary: JobSummary) -> Group:
    """The cause first, if there is one; then the job, its ranks, its links."""
    parts: list[Any] = []
    if summary.cause is not None:
        parts.append(Text(f"✕ {words.cause(summary)}", style="bold red"))
    parts.append(Text(words.title(summary), style="bold"))
    parts.append(Text(f"{words.progress(summary)}   {words.numbers(summary)}"))
    parts.append(_ranks(summary))
    if summary.links:
        parts.append(_links(summary.links))
    return Group(*parts)


def links_measured(measured: Sequence[LinkMeasurement]) -> Table:
    table = _table("from", "to", "over", "carries")
    for one in measured:
        rate = formats.bit_rate(one.capacity.bytes_per_s)
        table.add_row(one.source, one.destination, one.interface, rate)
    return table


def _ranks(summary: JobSummary) -> Table:
    table = _table("rank", "node", "state", "stage: layers", "step", "tok/s", "pace", "MFU",
                   "computing", "memory")  # fmt: skip
    for rank in summary.ranks:
        stages = ", ".join(str(stage) for stage in rank.stages)
        layers = f"{rank.layers[0]}–{rank.layers[-1]}" if rank.layers else formats.ABSENT
        table.add_row(
            str(rank.rank),
            rank.node,
            f"{words.STATE_MARKS[rank.state]} {rank.state}",
            f"{stages}: {layers}" if rank.stages else formats.ABSENT,
            formats.whole(rank.step),
            formats.whole(rank.tokens_per_s),
            formats.whole(rank.pace_tokens_per_s),
            formats.percent(rank.mfu),
            formats.percent(rank.compute_share),
            formats.gibibytes(rank.memory_bytes),
        )
    return table


def _links(links: Sequence[LinkSummary]) -> Table:
    table = _table("link", "direction", "rate", "of capacity", "capacity", "counted")
    counted = {"interface": "by the interface", "ranks": "by the ranks: interface is shared"}
    for link in links:
        table.add_row(
            f"{link.node} {link.interface}",
            f"{words.DIRECTION_MARKS[link.direction]} {link.direction}",
            formats.bit_rate(link.bytes_per_s),
            formats.percent(link.utilisation),
            capacity(link.capacity),
            counted[link.basis],
        )
    return table


def capacity(value: Capacity | None) -> str:
    """A capacity and where it comes from: nobody should mistake a card's claim for a fact."""
    if value is None:
        return "not measured"
    return f"{formats.bit_rate(value.bytes_per_s)} {value.source}"


def _gpus(info: NodeInfo) -> str:
    own = info.inventory
    if not own.gpus:
        return own.gpu_note or "none"
    lines = []
    for gpu in own.gpus:
        used = f"{formats.gibibytes(gpu.memory_used_bytes)} of {formats.gibibytes(gpu.memory_total_bytes)}"
        pids = ", ".join(str(pid) for pid in gpu.process_pids)
        busy = f"busy, pid {pids}" if pids else "idle" if gpu.is_idle else "busy"
        lines.append(f"{gpu.index} {gpu.name}: {busy}, {used}")
    return "\n".join(lines)


def _is_shown(interface: Interface, info: NodeInfo) -> bool:
    """Real ones with an address; loopback only where it is all the agent listens on."""
    if interface.kind == "loopback":
        return all(address.startswith("127.") for address in info.addresses)
    return interface.kind != "virtual" and bool(interface.addresses or interface.is_up)


def _interface(interface: Interface) -> str:
    said = [interface.name, *interface.addresses]
    if not interface.is_up:
        said.append("down")
    if interface.capacity is not None:
        said.append(capacity(interface.capacity))
    elif interface.speed_mbit_per_s:
        said.append(f"{formats.bit_rate(interface.speed_mbit_per_s * 125_000)} nominal")
    return " ".join(said)


def _versions(info: NodeInfo, odd: set[str]) -> list[str]:
    own = info.inventory.versions
    shown = ("mntrain", "torch", "transformers", "cuda", "nccl", "driver", "python")
    return [
        f"{'≠ ' if key in odd else ''}{key} {value}"
        for key in shown
        if (value := getattr(own, key)) is not None or key in odd
    ]


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
