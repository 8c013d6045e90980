"""Node view: a node as a driver sees it now."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import Beat, NodeInfo

Liveness = Literal["connecting", "up", "suspect", "lost"]
"""``connecting``: never heard from yet. ``suspect`` and ``lost``: silent, and a direct probe has
not answered either. Lost means unreachable, not dead: its jobs may well go on."""

FoundBy = Literal["mdns", "typed", "remembered", "job"]
"""``job``: another node named it as a participant of a job that was asked for."""


class NodeView(Record, frozen=True):
    """One node of the live view.

    Args:
        address: ``host:port`` the driver talks to.
        found_by: how the address became known first.
        info: what the node said last; ``None`` until it has answered once.
        beat: its newest heartbeat, once a second.
        last_seen_s: Unix time of the last word from it.
        problem: why it cannot be used, or why it is silent.
        is_conflict: another agent claims the same node id; neither can take part in a job.
        called: its name, where it was seen before but has not answered this time.
    """

    address: str
    found_by: FoundBy
    liveness: Liveness
    info: NodeInfo | None = None
    beat: Beat | None = None
    last_seen_s: float | None = None
    problem: Problem | None = None
    is_conflict: bool = False
    called: str = ""

    @property
    def name(self) -> str:
        """The node's own name, or its address while it has not answered yet."""
        return self.info.name if self.info else self.called or self.address
