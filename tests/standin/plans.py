"""Plans for tests: what two ranks on two nodes are predicted to take."""

from __future__ import annotations

from typing import Any

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import (
    DeviceSpeed,
    LinkSpeed,
    Plan,
    PlannedLink,
    PlannedRank,
)
from tests.standin.traces import LINK

MESSAGE_BYTES = 4e6
MESSAGES = 4


def plan_of(
    step_s: float = 1.2, computing_s: float = 1.0, *, is_measured: bool = True, **fields: Any
) -> Plan:
    """A plan whose links take :data:`tests.standin.traces.LINK` per message."""
    device = DeviceSpeed(1e9, source="measured", is_measured=is_measured)
    speed = LinkSpeed(MESSAGE_BYTES / LINK.occupied, LINK.latency, is_measured=is_measured)
    return Plan(
        step_s=step_s,
        tokens_per_s=2228.0 / step_s,
        ranks=tuple(
            PlannedRank(node, "CPU", device, (2,), computing_s, 1 - computing_s / step_s, 1e9)
            for node in ("wopr", "muthur")
        ),
        links=tuple(
            PlannedLink(Rank(one), Rank(1 - one), speed, MESSAGES * MESSAGE_BYTES, 0.2)
            for one in (0, 1)
        ),
        **fields,
    )
