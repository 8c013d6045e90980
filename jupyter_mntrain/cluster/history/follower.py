"""Journal follower: reads a job's journals on every participant, and resumes where it stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.metrics.downsampled.attempt_lines import most_blocks
from jupyter_mntrain.metrics.history import HistoryBuilder, JobHistory
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.clock import HeardClock
from jupyter_mntrain.model.records.job import TERMINAL, JobView, Placement
from jupyter_mntrain.model.records.metrics import JournalLine, LinkSample, PartChange

FIRST_RETRY_S = 0.1
"""Pause before an interrupted journal is read on; each failure doubles it."""
LAST_RETRY_S = 5.0


@dataclass
class JournalFollower:
    """Reads one job's journals into one history, with a task for each node.

    Args:
        view: the job as it is now.
        client: makes a client for a participant, at the address it has now.
        on_change: called after new lines, and when a journal has been read to its end.
        clock: this driver's; the job's may differ.
    """

    job_id: JobId
    view: Callable[[], JobView]
    client: Callable[[Placement], AgentClient]
    on_change: Callable[[], None]
    clock: Clock = time
    _builder: HistoryBuilder = field(default_factory=HistoryBuilder)
    _tasks: dict[NodeId, asyncio.Task[None]] = field(default_factory=dict)
    _complete: dict[NodeId, int] = field(default_factory=dict)
    """The last attempt whose journal has been read to its end, by node."""
    _followed: int = 0
    _heard: dict[NodeId, HeardClock] = field(default_factory=dict)

    def follow(self) -> None:
        """Start following participants that are not followed yet; call again after a
        new attempt.
        """
        attempt = self.view().attempt
        self._followed = attempt.number
        for placement in attempt.placements:
            task = self._tasks.get(placement.node_id)
            is_read = self._complete.get(placement.node_id, 0) >= attempt.number
            if not is_read and (task is None or task.done()):
                work = self._follow_node(placement, attempt.number)
                self._tasks[placement.node_id] = asyncio.create_task(work)

    async def close(self) -> None:
        await end_tasks(self._tasks.values())

    @property
    def is_behind(self) -> bool:
        """Whether a new attempt is not followed yet; safe from any thread."""
        return self.view().attempt.number > self._followed

    def snapshot(self) -> JobHistory:
        """The history read so far; safe from any thread."""
        view = self.view()
        is_complete = view.state in TERMINAL and all(
            self._complete.get(placement.node_id, 0) >= view.attempt.number
            for placement in view.attempt.placements
        )
        return self._builder.snapshot(view, is_complete=is_complete, clock_ahead_s=self._ahead_s())

    def _ahead_s(self) -> float:
        """Return how far the job's clock is ahead of this driver's, by the node that is
        heard best.
        """
        now = self.clock.time(), self.clock.monotonic()
        known = [ahead_s for one in tuple(self._heard.values()) if (ahead_s := one.ahead_s(*now))]
        return max(known, default=0.0)

    async def _follow_node(self, placement: Placement, attempt: int) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            before = self._builder.last_seq(placement.node_id)
            try:
                if not before:
                    await self._begin(placement)
                ended = await self._read_on(placement, attempt)
            except JobNotFoundError:
                ended = True  # deleted on that node: nothing more to read
            except MntrainError:
                ended = False  # the live view shows why the node does not answer
            if ended:
                self._complete[placement.node_id] = attempt
                self.on_change()
                return
            has_progressed = self._builder.last_seq(placement.node_id) > before
            retry_s = FIRST_RETRY_S if has_progressed else min(2 * retry_s, LAST_RETRY_S)
            await asyncio.sleep(retry_s)

    async def _begin(self, placement: Placement) -> None:
        """Load the node's downsampled samples, so that only the newest lines remain to be read."""
        points = most_blocks(self.view().attempt.world_size)
        try:
            samples = await self.client(placement).samples(self.job_id, points=points)
            if self._builder.load(placement.node_id, placement.node, samples):
                self.on_change()
        except RefusedError:
            pass  # an older agent: its whole journal is read
        except ValueError:
            pass  # damaged: the journal is not

    async def _read_on(self, placement: Placement, attempt: int) -> bool:
        """Read until the agent ends the stream; ``True`` if this part has ended as well."""
        node_id = placement.node_id
        since = self._builder.last_seq(node_id)
        has_ended = False
        heard = self._heard.setdefault(node_id, HeardClock())
        heard.begin()
        async with aclosing(
            self.client(placement).journal(self.job_id, since=since, follow=True)
        ) as lines:
            async for line in lines:
                self._builder.add(node_id, placement.node, line)
                if isinstance(line.body, LinkSample):  # agents write one each second
                    heard.hear(line.body.time_s, self.clock.monotonic())
                has_ended = _is_end(line, attempt) or has_ended
                self.on_change()
        # The end may have been read before the connection broke, or was never written.
        return has_ended or any(
            part.node_id == node_id and part.state in TERMINAL for part in self.view().parts
        )


def _is_end(line: JournalLine, attempt: int) -> bool:
    body = line.body
    return isinstance(body, PartChange) and line.attempt >= attempt and body.part.state in TERMINAL
