"""Usage routes: what the node did over a time, with and without jobs."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.machine.usage import gaps, jobs_within, part_over, span_of
from jupyter_mntrain.http.json_handler import LARGEST
from jupyter_mntrain.metrics.node_history import MOST_POINTS, POINTS, HistoryPart, NodeHistory

DEFAULT_S = 3600


class UsageHandler(AgentHandler):
    """``NodeHistory`` of the last hour, or from ``since`` to ``until``."""

    async def get(self) -> None:
        now_s = int(time.time())
        since_s = self.number("since", now_s - DEFAULT_S, 0)
        until_s = min(self.number("until", LARGEST, since_s), now_s)
        points = self.number("points", POINTS, 2, MOST_POINTS)
        span = span_of(since_s, until_s, now_s, points)
        usage, node = self.node.usage, self.node

        with suppress(OSError):  # a full disk: what was saved before is answered
            usage.save()
        parts = list(usage.parts())
        read = [await asyncio.to_thread(part_over, *one, span) for one in parts]
        empty = [await asyncio.to_thread(gaps, parts[0][1], span)] if parts else [()]
        self.answer(
            NodeHistory(
                node_id=node.node_id,
                node=node.name,
                begin_s=span.begin_s,
                step_s=span.step_s,
                points=span.points,
                parts=tuple(self._with_capacity(part) for part in read if part.lines),
                gaps=empty[0],
                jobs=tuple(
                    jobs_within(
                        (job.record for job in node.jobs.all()),
                        span.begin_s,
                        span.begin_s + span.points * span.step_s,
                    )
                ),
                gpu_note=node.inventory.gpus.note,
            )
        )

    def _with_capacity(self, part: HistoryPart) -> HistoryPart:
        """An interface's: as given, or the highest that was measured."""
        if part.kind != "interface":
            return part
        links = self.node.links
        given, measured = links.given(part.key), links.measured(part.key)
        known = [given] if given else [one.capacity for one in measured]
        total = max((one.bytes_per_s for one in known), default=None)
        return msgspec.structs.replace(part, total=total)
