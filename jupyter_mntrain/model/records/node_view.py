"""Node view: a driver's current view of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import Heartbeat, NodeInfo

Liveness = Literal["connecting", "up", "suspect", "lost"]
"""``connecting``: it has not answered yet. ``suspect`` and ``lost``: it no longer answers, not even
a direct probe. Lost means unreachable, not dead: its jobs may be running."""

FoundBy = Literal["mdns", "typed", "remembered", "job"]
"""``job``: another node named it as a participant of a job."""


class NodeView(Record, frozen=True):
    """One node of the live view.

    Args:
        address: ``host:port`` that the driver uses.
        found_by: how the address became known first.
        info: newest information; ``None`` until it has answered once.
        heartbeat: newest heartbeat.
        last_seen_s: Unix time of its last message.
        problem: why it cannot be used, or why it is silent.
        is_conflict: another agent claims the same node id; neither can take part in a job.
        called: its last known name, if it has not answered yet.
        asked_s: Unix time since which this driver has been trying to reach it.
    """

    address: str
    found_by: FoundBy
    liveness: Liveness
    info: NodeInfo | None = None
    heartbeat: Heartbeat | None = None
    last_seen_s: float | None = None
    problem: Problem | None = None
    is_conflict: bool = False
    called: str = ""
    asked_s: float | None = None

    @property
    def name(self) -> str:
        """The node's name, or its address if it has never answered."""
        return self.info.name if self.info else self.called or self.address

    @property
    def newest(self) -> NodeInfo | None:
        """The node with its GPUs and free memory as of the last heartbeat."""
        if self.info is None or self.heartbeat is None:
            return self.info
        there = self.info.inventory
        inventory = msgspec.structs.replace(
            there,
            gpus=self.heartbeat.gpus or there.gpus,
            memory_available_bytes=self.heartbeat.memory_available_bytes
            or there.memory_available_bytes,
        )
        return msgspec.structs.replace(self.info, inventory=inventory)

    @property
    def is_awaited(self) -> bool:
        """Whether the node has not answered this driver yet, but may still do so."""
        return self.liveness == "connecting" and (
            self.problem is None or self.problem.kind in _PATIENT
        )


_PATIENT = frozenset({Kind.NO_ANSWER, Kind.SLOW_TO_ANSWER})
"""What is known of a node that is silent and may be busy; every other silence has its reason."""


def awaited_words(nodes: Sequence[NodeView], now_s: float) -> str:
    """Say which nodes have not answered, like ``node2 has not answered yet (1.2 s)``; empty if
    none.

    Args:
        now_s: Unix time.
    """
    awaited = [node for node in nodes if node.is_awaited]
    since = [_seconds(node, now_s) for node in awaited]
    if len(awaited) == 1:
        return f"{awaited[0].name} has not answered yet{since[0]}"
    named = [f"{node.name}{seconds}" for node, seconds in zip(awaited, since, strict=True)]
    return f"{', '.join(named)} have not answered yet" if named else ""


def _seconds(node: NodeView, now_s: float) -> str:
    if node.asked_s is None:
        return ""
    waited_s = max(0.0, now_s - node.asked_s)
    return f" ({waited_s:.1f} s)" if waited_s < 10 else f" ({waited_s:.0f} s)"
