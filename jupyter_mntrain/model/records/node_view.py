"""Node view: a driver's current view of a node."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import Beat, NodeInfo

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
        beat: newest heartbeat.
        last_seen_s: Unix time of its last message.
        problem: why it cannot be used, or why it is silent.
        is_conflict: another agent claims the same node id; neither can take part in a job.
        called: its last known name, if it has not answered yet.
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
        """The node's name, or its address if it has never answered."""
        return self.info.name if self.info else self.called or self.address
