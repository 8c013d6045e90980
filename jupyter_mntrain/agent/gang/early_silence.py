"""Early silence: a node that is cut off before the first step, which all nodes make together.

The others would wait for it as long as torch does, and for the first step that may be half an hour.
Nothing that was computed is lost by ending the attempt. An agent that has died says nothing of its
ranks, so its machine must be silent, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.job import PartStatus, Placement

PATIENCE_S = 60.0
"""A node that has been silent for so long before the first step, and whose machine is silent, too,
ends the attempt: all nodes make that step together. Longer than a switch takes to start."""
CONNECT_S = 3.0
"""Timeout for asking its machine."""


class EarlySilence:
    """Of one attempt."""

    def __init__(self) -> None:
        self._since_s: dict[NodeId, float] = {}

    async def look(
        self, parts: Sequence[PartStatus], silent: Sequence[Placement], now_s: float
    ) -> Problem | None:
        """Why the attempt is to end, if it is. Call often.

        Args:
            parts: of the nodes that answer.
            silent: the other participants.
            now_s: monotonic seconds.
        """
        if any(rank.step for part in parts for rank in part.ranks):
            silent = ()
        quiet = {place.node_id for place in silent}
        self._since_s = {one: self._since_s.get(one, now_s) for one in quiet}
        for place in silent:
            is_long = now_s - self._since_s[place.node_id] >= PATIENCE_S
            if is_long and not await _has_machine(place):
                return Problem(
                    kind=Kind.NODE_LOST,
                    cause=f"has not answered for {duration_text(PATIENCE_S)}, nor does its "
                    "machine, and there was no first step",
                    fix=fix_of(Kind.NODE_LOST),
                    node=place.node,
                )
        return None


async def _has_machine(place: Placement) -> bool:
    """Whether its machine answers: refusing a connection is an answer."""
    return any(await asyncio.gather(*map(_answers, place.agent)))


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
