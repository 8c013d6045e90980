"""Node list: state, hardware, links and differing versions of the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.node import (
    Availability,
    Gpu,
    Heartbeat,
    Interface,
    InterfaceRate,
    Inventory,
    NodeInfo,
    Versions,
)
from jupyter_mntrain.plan.agent_hosts import listed_interfaces
from jupyter_mntrain.plan.software.versions import KEYS, Divergence, divergences, version_problem
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import LIVENESS_ICONS, LIVENESS_STYLES, SPACE
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding, plain_table
from jupyter_mntrain.show.tables.node_crowd import MOST_WHOLE, crowd_table, hardware_lines

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import NodeView

NOT_ENCRYPTED = "Training traffic between nodes is neither encrypted nor authenticated."
"""Shown where people choose nodes; all other traffic uses mutual TLS."""


WIDE_COLUMNS = 100
INTERFACE_COLUMNS = 24
"""``eno1 192.168.100.109/24``."""

NO_JOBS = "none"
UNKNOWN = (Text(formats.ABSENT),) * 4
"""The cells of a node whose hardware is not known yet."""


class Surroundings(Record, frozen=True):
    """Reasons why nodes may be missing from the list.

    Args:
        discovery_problem: why discovery may miss nodes.
        strangers: nodes of other clusters on this network.
    """

    discovery_problem: Problem | None = None
    strangers: tuple[str, ...] = ()


class NodeRows:
    """One row per node, with fewer columns on narrow terminals, so that no address is broken.

    Args:
        rows: name, state, GPUs, CPU and memory, interfaces and jobs of each.
    """

    def __init__(self, rows: Sequence[tuple[Text, ...]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, rows = ["GPUs", "CPU and memory", "interfaces", "jobs"], self._rows
        if options.max_width < WIDE_COLUMNS:
            columns, rows = ["hardware", "interfaces"], [_narrow(*row) for row in self._rows]
        table = plain_table("node", "state", *columns)
        table.columns[0].no_wrap = True
        table.columns[columns.index("interfaces") + 2].min_width = INTERFACE_COLUMNS
        for row in rows:
            table.add_row(*row)
        yield table


def _narrow(
    title: Text, state: Text, gpus: Text, machine: Text, interfaces: Text, jobs: Text
) -> tuple[Text, ...]:
    if jobs.plain not in (formats.ABSENT, NO_JOBS):
        state = Text("\n").join([state, jobs])
    hardware = machine if gpus.plain == machine.plain else Text("\n").join([gpus, machine])
    return title, state, hardware, interfaces


def _title(node: NodeView) -> Text:
    name = Text(node.name, style="bold")
    if node.name == node.address:
        return name
    return Text.assemble(name, "\n", (node.address, "dim"))


def node_table(
    nodes: Sequence[NodeView],
    *,
    cluster: str,
    now_s: float,
    program: str,
    around: Surroundings,
    every: bool = False,
) -> RenderableType:
    """Return one row per node, and below why nodes are silent and which versions differ.

    Args:
        now_s: Unix time, for ages.
        every: all of each node, however many there are, and also virtual interfaces and those that
            are down.
    """
    if not nodes:
        return Group(no_nodes(cluster, program), *_around(around))
    infos = [node.info for node in nodes if node.info]
    different = divergences(infos)
    below = folding([*_notes(nodes, different), *_around(around)])
    if len(nodes) > MOST_WHOLE and not every:
        lines = [*hardware_lines(infos), Text(f"all of each node: {program} nodes --all", "dim")]
        states = [_state(node, now_s, between=", ") for node in nodes]
        return Group(crowd_table(nodes, states), Text(), folding(lines), below)
    rows = [
        (
            _title(node),
            _state(node, now_s),
            *(
                _cells(node.info, node.heartbeat, every=every, now_s=now_s)
                if node.info
                else UNKNOWN
            ),
        )
        for node in nodes
    ]
    return Group(NodeRows(rows), below)


def node_data(nodes: Sequence[NodeView]) -> list[dict[str, Any]]:
    """Return the data of ``nodes --json``: every node, with its version divergences."""
    different = divergences([node.info for node in nodes if node.info])
    return [
        {
            "node": node.name,
            "divergences": [msgspec.to_builtins(one) for one in different if one.node == node.name],
            **msgspec.to_builtins(node),
        }
        for node in nodes
    ]


def no_nodes(cluster: str, program: str) -> Text:
    """Return advice for a cluster without nodes."""
    return Text.assemble(
        (f"No node of cluster {cluster!r} is answering.", "bold"),
        f" Invite one: {program} invite\n"
        "On a node that has joined, start the agent: mntrain agent run. "
        f"Where multicast is blocked, add the node by address: {program} add HOST:PORT",
    )


def _around(around: Surroundings) -> Iterable[RenderableType]:
    if around.discovery_problem:
        yield problem_text(around.discovery_problem, mark="⚠", style="yellow")
    if around.strangers:
        yield Text(f"Also announced here: {', '.join(around.strangers)}.", style="dim")


def _state(node: NodeView, now_s: float, between: str = "\n") -> Text:
    text = Text(f"{LIVENESS_ICONS[node.liveness]} ", style=LIVENESS_STYLES.get(node.liveness, ""))
    text.append(node.liveness, style="default")
    if node.liveness != "up" and node.last_seen_s is not None:
        text.append(f"{between}silent {formats.duration(now_s - node.last_seen_s)}", style="dim")
    elif node.is_awaited and node.asked_s is not None:
        text.append(f"{between}no answer for {formats.duration(now_s - node.asked_s)}", style="dim")
    return text


def _cells(
    info: NodeInfo, heartbeat: Heartbeat | None, *, every: bool, now_s: float
) -> Iterable[Text]:
    """Yield the cells of a node: GPUs, CPU and memory, interfaces, jobs."""
    yield _gpus(info, heartbeat)
    yield _machine(info.inventory, heartbeat)
    yield _interfaces(info, heartbeat, every=every, now_s=now_s)
    yield Text("\n".join(lease.job_id for lease in info.leases) or NO_JOBS)


def _gpus(info: NodeInfo, heartbeat: Heartbeat | None) -> Text:
    gpus = (heartbeat.gpus if heartbeat else ()) or info.inventory.gpus
    offered = "".join(f"\n{line}" for line in availability_lines(info.availability))
    note = f"\n{info.inventory.gpu_note}" if info.inventory.gpu_note else ""
    if not gpus:
        return Text.assemble("none", (note + offered, "dim"))
    kinds = Counter((gpu.name, gpu.memory_total_bytes) for gpu in gpus)
    lines = [
        f"{number}{SPACE}×{SPACE}{name} {formats.memory(size)}"
        for (name, size), number in kinds.items()
    ]
    can = "".join(f"\n{line}" for line in _abilities(gpus, info.inventory.versions))
    return Text.assemble("\n".join(lines), (f"{can}\n{_use(gpus)}{note}{offered}", "dim"))


def _abilities(gpus: Sequence[Gpu], versions: Versions) -> Iterable[str]:
    """Yield what matters to recipes and torch: compute capability and driver version."""
    told = dict.fromkeys(gpu.compute_capability for gpu in gpus if gpu.compute_capability)
    if any(gpu.is_unified for gpu in gpus):
        yield "shares its memory with the CPU"
    if told:
        listed = ", ".join(".".join(map(str, one)) for one in told)
        yield f"compute capability {listed}"
    if versions.driver is not None:
        newest = f", CUDA{SPACE}{versions.driver_cuda}" if versions.driver_cuda else ""
        yield f"driver{SPACE}{versions.driver}{newest}"


def availability_lines(availability: Availability) -> Iterable[str]:
    """Yield what the owner offers to jobs, if that is not everything."""
    if availability.gpus is not None or availability.memory_bytes is not None:
        gpus = "all GPUs"
        if availability.gpus is not None:
            gpus = numbered("GPU", availability.gpus) if availability.gpus else "no GPU"
        each = (
            ""
            if availability.memory_bytes is None
            else f", {formats.memory(availability.memory_bytes)} each"
        )
        yield f"offered: {gpus}{each}"
    if availability.hours:
        yield f"offered: {availability.hours}"


def _use(gpus: Sequence[Gpu]) -> str:
    busy = [gpu for gpu in gpus if not gpu.is_idle]
    free = "".join(
        f"; {gpu.index}: {formats.memory(gpu.free_bytes())} free"
        for gpu in gpus
        if gpu.is_idle and not gpu.is_unified
        if formats.memory(gpu.free_bytes()) != formats.memory(gpu.memory_total_bytes)
    )
    if not busy:
        return ("all idle" if len(gpus) > 1 else "idle") + free
    named = "; ".join(f"{gpu.index} busy: {gpu.owners}" for gpu in busy)
    return f"{len(gpus) - len(busy)} of {len(gpus)} idle: {named}{free}"


def _machine(inventory: Inventory, heartbeat: Heartbeat | None) -> Text:
    free = (
        heartbeat.memory_available_bytes if heartbeat else 0
    ) or inventory.memory_available_bytes
    memory = f"{formats.memory(free)} of {formats.memory(inventory.memory_total_bytes)} free"
    return Text.assemble(
        f"{inventory.cpu_count}{SPACE}×{SPACE}{inventory.cpu_model}", ("\n" + memory, "dim")
    )


def _interfaces(info: NodeInfo, heartbeat: Heartbeat | None, *, every: bool, now_s: float) -> Text:
    known = info.inventory.interfaces
    shown = known if every else listed_interfaces(known, info.addresses)
    rates = {rate.name: rate for rate in heartbeat.interfaces} if heartbeat else {}
    lines = [_interface(interface, rates.get(interface.name), now_s) for interface in shown]
    return Text("\n").join(lines) if lines else Text("none up")


def _interface(interface: Interface, rate: InterfaceRate | None, now_s: float) -> Text:
    text = Text.assemble((interface.name, "bold"), " ", " ".join(interface.addresses))
    if not interface.is_up:
        return text.append("down", style="red")
    facts = []
    if interface.speed_mbit_per_s and interface.speed_mbit_per_s > 0:
        facts.append(formats.bit_rate(interface.speed_mbit_per_s * 125_000))
    elif interface.kind == "loopback":
        facts.append("this machine only")
    slowest = min(interface.links, key=lambda link: link.capacity.bytes_per_s, default=None)
    if interface.given is not None:
        facts.append(formats.capacity(interface.given))
    elif slowest is not None:
        more = f" (slowest of {len(interface.links)})" if len(interface.links) > 1 else ""
        facts.append(
            f"→ {slowest.receiver} {formats.capacity(slowest.capacity, now_s=now_s)}{more}"
        )
    elif interface.kind in ("ethernet", "wireless"):
        facts.append("not measured")
    if rate is not None and rate.sent_bytes_per_s + rate.received_bytes_per_s > 125_000:
        sent, received = rate.sent_bytes_per_s, rate.received_bytes_per_s
        facts.append(f"now → {formats.bit_rate(sent)} ← {formats.bit_rate(received)}")
    return text.append(" " + ", ".join(facts), style="dim") if facts else text


def _notes(nodes: Sequence[NodeView], different: Sequence[Divergence]) -> Iterable[RenderableType]:
    yield Text()
    for node in nodes:
        if node.problem is not None:
            mark = "⚠" if node.liveness == "up" else LIVENESS_ICONS[node.liveness]
            problem = msgspec.structs.replace(node.problem, node=node.name)
            yield problem_text(problem, mark=mark, style="yellow")
    yield from _version_lines([node.info for node in nodes if node.info], different)
    if any(node.info for node in nodes):
        yield Text(NOT_ENCRYPTED, style="dim")


def _version_lines(
    infos: Sequence[NodeInfo], different: Sequence[Divergence]
) -> Iterable[RenderableType]:
    for one in different:
        yield problem_text(version_problem(one), mark="⚠")
    alike = [key for key in KEYS if key not in {one.key for one in different}]
    known = [
        (key, value)
        for key in alike
        if (value := next((v for i in infos if (v := getattr(i.inventory.versions, key))), None))
    ]
    if known:
        where = "" if len(infos) == 1 else " on every node"
        words = ", ".join(f"{key} {value}" for key, value in known)
        yield Text(f"Versions{where}: {words}", style="dim")
