"""All nodes and jobs of a cluster as they are now: one watch per agent, merged.

Everything here runs on one event loop, but :attr:`LiveView.nodes` and :attr:`LiveView.jobs`, which
are immutable and may be read from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import httpx

from jupyter_mntrain.cluster.agent_client import AgentClient
from jupyter_mntrain.cluster.changes import Changes
from jupyter_mntrain.cluster.discovery import Discovery, Found
from jupyter_mntrain.cluster.ledger import JobLedger
from jupyter_mntrain.cluster.liveness import forgiven
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.cluster.node_view import FoundBy, NodeView
from jupyter_mntrain.cluster.roster import merge
from jupyter_mntrain.cluster.transport import open_http
from jupyter_mntrain.cluster.watch import AgentWatch, Clock
from jupyter_mntrain.model.api import Hello, JobChanged, StreamMessage
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.job import JobRecord, JobView, Placement
from jupyter_mntrain.model.node import NodeInfo

TICK_S = 0.25
"""Between judgements: a quarter of a beat."""


class LiveView:
    """Watches every agent it is told of or that discovery finds.

    Args:
        cluster: agents of other clusters are not asked.
        discovery: how agents are found; ``None`` = only those told.
        clock: where times come from.
    """

    def __init__(self, cluster: str, *, discovery: Discovery | None, clock: Clock) -> None:
        self.cluster = cluster
        self.changes = Changes()
        """Rung after every change of :attr:`nodes`, :attr:`jobs` or a job's history."""
        self.nodes: tuple[NodeView, ...] = ()
        self.jobs: dict[JobId, JobView] = {}
        """By id, newest first."""
        self.discovery_problem: str | None = None
        """Why discovery does not work on this machine; typed addresses do."""
        self._discovery = discovery
        self._clock = clock
        self._http: httpx.AsyncClient | None = None
        self._watches: dict[AgentWatch, asyncio.Task[None]] = {}
        self._ledger = JobLedger()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, addresses: Iterable[tuple[str, FoundBy]]) -> None:
        """Begin to watch ``addresses`` and whatever discovery finds; returns at once."""
        self._http = open_http()
        for address, found_by in addresses:
            self.watch(address, found_by)
        self._tasks = [
            asyncio.create_task(self._tick()),
            asyncio.create_task(self._discover()),
        ]

    async def close(self) -> None:
        await end_tasks([*self._tasks, *self._watches.values()])
        self._watches.clear()
        if self._discovery is not None:
            await self._discovery.close()
        if self._http is not None:
            await self._http.aclose()

    def watch(self, address: str, found_by: FoundBy, info: NodeInfo | None = None) -> None:
        """Watch an address; once is enough.

        Args:
            info: what it answered just now: an address more of a node that is known already is
                then never seen as a node of its own, not even until its stream begins.
        """
        for watch in self._watches:
            if address in watch.addresses:
                watch.try_now()
                return
        self._begin((address,), found_by, info=info)

    def expect(self, placement: Placement) -> None:
        """Watch a participant, also one that discovery has not found (yet)."""
        found = Found(addresses=placement.agent, node_id=placement.node_id)
        if not any(_is_same(watch, found) for watch in self._watches):
            self._begin(found.addresses, "job", node_id=placement.node_id)

    def was_heard(self, placement: Placement) -> bool:
        """Whether a participant has told what it knows."""
        return any(
            view.info is not None
            and view.info.node_id == placement.node_id
            and view.liveness != "connecting"
            for view in self.nodes
        )

    def forget(self, address: str) -> bool:
        """Stop watching whoever is watched under an address."""
        for watch in list(self._watches):
            if address in watch.addresses:
                self._watches.pop(watch).cancel()
                self._publish()
                return True
        return False

    def client(self, address: str, node: str | None = None) -> AgentClient:
        if self._http is None:
            raise RuntimeError("the live view is not running")
        return AgentClient(self._http, address, self.cluster, node=node)

    def client_of(self, placement: Placement) -> AgentClient:
        """A client for a participant, at the address it answers on now."""
        for view in self.nodes:
            if view.info and view.info.node_id == placement.node_id and not view.is_conflict:
                return self.client(view.address, placement.node)
        return self.client(placement.agent[0], placement.node)

    def take_record(self, record: JobRecord) -> None:
        """A record out of a reply; what the streams already said wins if it is newer."""
        if self._ledger.update(record):
            self._publish_jobs()
            self.changes.notify()

    def _begin(
        self,
        addresses: tuple[str, ...],
        found_by: FoundBy,
        *,
        node_id: NodeId | None = None,
        info: NodeInfo | None = None,
    ) -> None:
        watch = AgentWatch(
            addresses,
            found_by,
            node_id=node_id,
            info=info,
            client=self.client,
            clock=self._clock,
            on_message=self._take,
            on_change=self._publish,
        )
        self._watches[watch] = asyncio.create_task(watch.run())
        self._publish()

    def _take(self, node_id: NodeId, message: StreamMessage) -> None:
        match message:
            case Hello(jobs=records):
                self._ledger.replace(node_id, records)
                self._publish_jobs()
            case JobChanged(record=record):
                if self._ledger.update(record):
                    self._publish_jobs()

    def _publish(self) -> None:
        self.nodes = merge(watch.view for watch in self._watches)
        reachable = {
            view.info.node_id
            for view in self.nodes
            if view.info and view.liveness in ("up", "suspect")
        }
        if self._ledger.set_reachable(reachable):
            self._publish_jobs()
        self.changes.notify()

    def _publish_jobs(self) -> None:
        self.jobs = {view.job_id: view for view in self._ledger.views()}

    async def _tick(self) -> None:
        last = self._clock.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock.monotonic()
            excuse = forgiven(now - last, TICK_S)
            last = now
            for watch in self._watches:
                if excuse:
                    watch.forgive(excuse)
                watch.tick()

    async def _discover(self) -> None:
        if self._discovery is None:
            return
        try:
            await self._discovery.start(self._on_found)
        except OSError as error:
            self.discovery_problem = (
                f"this machine cannot browse for nodes: {error}. Fix: add them by host:port."
            )
            self.changes.notify()

    def _on_found(self, found: Found) -> None:
        if found.cluster not in (None, self.cluster):
            return
        for watch in self._watches:
            if _is_same(watch, found):
                watch.expect(found)
                return
        self._begin(found.addresses, "mdns", node_id=found.node_id)


def _is_same(watch: AgentWatch, found: Found) -> bool:
    known = watch.node_id or (watch.view.info.node_id if watch.view.info else None)
    if known is not None and found.node_id is not None:
        return known == found.node_id
    return not set(watch.addresses).isdisjoint(found.addresses)
