"""Driver session: the loop, live view and journals that a cluster and its jobs share."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from jupyter_mntrain.cluster.discovery.discovery import Discovery
from jupyter_mntrain.cluster.loop import ClosedError, LoopThread
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.node_search import GracePeriod, NodeSearch
from jupyter_mntrain.cluster.view.peer_book import SeenNode
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.node import FoundBy, NodeInfo
from jupyter_mntrain.model.whereabouts import user_name

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.history.follower import JournalFollower
    from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
    from jupyter_mntrain.cluster.preflight.probing import CachedPaths


@dataclass(eq=False)
class DriverSession:
    """Runs until :meth:`close`. What is not a coroutine may be called from any thread.

    Args:
        addresses: watched from the start.
        seen: nodes seen before, also watched from the start.
        on_seen: called, in the driver's own thread, with every node that answers as a member.
    """

    cluster: str
    discovery: Discovery
    addresses: Iterable[tuple[str, FoundBy]]
    clock: Clock
    seen: Iterable[SeenNode]
    on_seen: Callable[[NodeInfo], None]
    _followers: dict[JobId, JournalFollower] = field(default_factory=dict)
    _closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = LoopThread(f"mntrain-{self.cluster}")
        self.live = ClusterView(self.cluster, self.discovery, self.clock, self.on_seen)
        self.grace = GracePeriod(self.live, self.clock)
        self.search = NodeSearch(self.live, self.grace, self.clock)
        self.loop.run(self.live.start(self.addresses, self.seen))

    # What launches, examines and follows is imported on first use: a list of nodes does without.
    @cached_property
    def known_paths(self) -> CachedPaths:
        from jupyter_mntrain.cluster.preflight.probing import CachedPaths

        return CachedPaths(self.clock)

    def launcher(self, submitted_by: str = "") -> AgentLauncher:
        """Make a launcher, which acts on jobs and links.

        Raises:
            RefusedError: this driver is read-only.
        """
        from jupyter_mntrain.cluster.launch.launcher import AgentLauncher

        self.refuse_read_only()
        by = submitted_by or f"{user_name()}@{socket.gethostname()}"
        return AgentLauncher(
            self.live, clock=self.clock, submitted_by=by, known_paths=self.known_paths
        )

    def refuse_read_only(self) -> None:
        """Raise at once, for a read-only driver, what the agents would raise, too.

        Raises:
            RefusedError: this driver is read-only.
        """
        identity = self.live.desk.identity
        if identity is not None and identity.is_read_only:
            raise RefusedError(
                "this driver is read-only: it may watch, but not launch, stop, save or measure",
                kind=Kind.NOT_ALLOWED,
                fix="ask the person who created the cluster for mntrain driver invite, without "
                "--read-only",
            )

    def close(self) -> None:
        """Stop watching and end the thread. May be called twice."""
        try:
            self.loop.run(self._close())
        except ClosedError:
            pass
        finally:
            self.loop.close()

    async def follow(self, job_id: JobId) -> JournalFollower:
        """Follow the job's journals. Runs in the loop."""
        from jupyter_mntrain.cluster.history.follower import JournalFollower

        follower = self._followers.get(job_id)
        if follower is None:
            follower = JournalFollower(
                job_id,
                view=lambda: self.live.job(job_id),
                client=self.live.client_of,
                on_change=self.live.changes.notify,
                clock=self.clock,
            )
            self._followers[job_id] = follower
        follower.follow()
        return follower

    async def unfollow(self, job_id: JobId) -> None:
        """Stop following a job's journals and free what was read. Runs in the loop."""
        follower = self._followers.pop(job_id, None)
        if follower is not None:
            await follower.close()

    def on_close(self, work: Callable[[], Awaitable[None]]) -> None:
        """Register a coroutine to run in the loop when this session closes."""
        self._closing.append(work)

    async def _close(self) -> None:
        for work in self._closing:
            await work()
        for follower in self._followers.values():
            await follower.close()
        await self.live.close()
