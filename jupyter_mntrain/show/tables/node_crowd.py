"""Node crowd: many nodes, one line each, worst first; common hardware is listed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from jupyter_mntrain.model.records.node import Heartbeat, Liveness, NodeInfo
from jupyter_mntrain.plan.agent_hosts import listed_interfaces
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import SPACE
from jupyter_mntrain.show.tables._plain import plain_table

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import NodeView

MOST_WHOLE: Final = 8
"""Nodes of which all can be shown on a screen or two."""

_WORST_FIRST: Final[tuple[Liveness, ...]] = ("lost", "suspect", "connecting", "up")


def crowd_table(nodes: Sequence[NodeView], states: Sequence[Text]) -> Table:
    """Return one line per node; nodes that do not answer or have a problem come first.

    Args:
        states: of the nodes, in their order.
    """
    table = plain_table("node", "state", "GPUs", "interface", "jobs")
    table.columns[0].no_wrap = True
    rows = sorted(zip(nodes, states, strict=True), key=lambda row: _badness(row[0]))
    for node, state in rows:
        cells = _cells(node.info, node.heartbeat) if node.info else (formats.ABSENT,) * 3
        table.add_row(Text(node.name, style="bold"), state, *cells)
    return table


def hardware_lines(infos: Sequence[NodeInfo]) -> Iterable[Text]:
    """Yield the nodes' hardware, most common first; nodes of a rarer kind are named."""
    kinds: dict[str, list[str]] = {}
    for info in infos:
        kinds.setdefault(_hardware(info), []).append(info.name)
    for hardware, names in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
        who = ", ".join(names) if len(names) <= MOST_WHOLE else f"{len(names)} nodes"
        yield Text(f"{who}: {hardware}", "dim")


def _badness(node: NodeView) -> tuple[int, bool]:
    return _WORST_FIRST.index(node.liveness), node.problem is None


def _cells(info: NodeInfo, heartbeat: Heartbeat | None) -> tuple[str, str, str]:
    gpus = (heartbeat.gpus if heartbeat else ()) or info.inventory.gpus
    busy = sum(not gpu.is_idle for gpu in gpus)
    use = f"{len(gpus)}, {f'{busy} busy' if busy else 'idle'}" if gpus else "none"
    first, *more = listed_interfaces(info.inventory.interfaces, info.addresses) or (None,)
    where = "none up"
    if first is not None:
        where = " ".join([first.name, *first.addresses[:1]]) + (f" +{len(more)}" if more else "")
    jobs = ", ".join(lease.job_id for lease in info.leases)
    return use, where, jobs or "none"


def _hardware(info: NodeInfo) -> str:
    machine = info.inventory
    gpus = Counter((gpu.name, gpu.memory_total_bytes) for gpu in machine.gpus)
    words = [
        f"{number}{SPACE}×{SPACE}{name} {formats.memory(size)}"
        for (name, size), number in gpus.items()
    ]
    words.append(f"{machine.cpu_count}{SPACE}×{SPACE}{machine.cpu_model}")
    return ", ".join([*words, formats.memory(machine.memory_total_bytes)])
