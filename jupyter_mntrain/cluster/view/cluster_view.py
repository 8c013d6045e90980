"""Cluster view: all nodes and jobs as they are now, merged from one watch per agent.

Everything here runs on one event loop. :attr:`ClusterView.nodes` and :attr:`ClusterView.jobs` are
immutable and may be read from any thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from jupyter_mntrain.cluster.admission.desk import AdmissionDesk
from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.discovery.discovery import MOST_ANNOUNCED, Discovery, FoundAgent
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.cluster.view.agent_watch import AgentWatch, Clock, forgiven
from jupyter_mntrain.cluster.view.change_bell import Changes
from jupyter_mntrain.cluster.view.job_ledger import JobLedger
from jupyter_mntrain.cluster.view.peer_book import SeenNode
from jupyter_mntrain.cluster.view.record_search import RecordSearch
from jupyter_mntrain.cluster.view.sightings import merge
from jupyter_mntrain.model.api import Hello, JobChanged, JobDeleted, NodeChanged, StreamMessage
from jupyter_mntrain.model.errors import MntrainError, job_not_found
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.job import JobRecord, JobView, Placement
from jupyter_mntrain.model.records.node import FoundBy, NodeInfo, NodeView

log = logging.getLogger("mntrain.cluster")

TICK_S = 0.25
"""Interval of judging all nodes: a quarter of a heartbeat."""
CHECK_DISCOVERY_S = 60.0
"""Interval of checks whether multicast reaches this machine."""
TRUST_EVERY_S = 1.0
"""Interval of checks for invitations and revocations by other processes of this driver."""


@dataclass(eq=False)
class ClusterView:
    """Watches every agent that is given by address or that discovery finds.

    Args:
        cluster: this user's name for it.
        discovery: how agents are found.
        clock: source of times.
        on_seen: called with every node that answers as a member.
    """

    cluster: str
    discovery: Discovery
    clock: Clock
    on_seen: Callable[[NodeInfo], None] = lambda _: None
    changes: Changes = field(default_factory=Changes)
    """Notified of every change of :attr:`nodes`, :attr:`jobs` or a job's history."""
    nodes: tuple[NodeView, ...] = ()
    jobs: dict[JobId, JobView] = field(default_factory=dict)
    """Jobs by id, newest first."""
    discovery_problem: Problem | None = None
    """Why discovery does not work on this machine. Typed addresses still work."""
    missed_s: float = 0.0
    """Seconds for which this process was suspended or too busy to listen."""
    _watches: dict[AgentWatch, asyncio.Task[None]] = field(default_factory=dict)
    _views: dict[AgentWatch, NodeView] = field(default_factory=dict)
    """The views as they were published."""
    _ledger: JobLedger = field(init=False)
    _tasks: Sequence[asyncio.Task[None]] = ()

    def __post_init__(self) -> None:
        self._ledger = JobLedger(self.clock)
        self.records = RecordSearch(self._ledger, self.client_at, self._on_records)
        self.desk = AdmissionDesk(
            self.cluster, now=self.clock.time, on_member=self._on_member, on_open=self._on_open
        )

    async def start(
        self, addresses: Iterable[tuple[str, FoundBy]], seen: Iterable[SeenNode] = ()
    ) -> None:
        """Start watching ``addresses``, nodes seen before, and agents that discovery finds.

        Returns at once.
        """
        self.desk.look()
        for node in seen:
            self._begin(node.addresses, "remembered", node_id=node.node_id, called=node.name)
        for address, found_by in addresses:
            self.watch(address, found_by)
        self._tasks = [
            asyncio.create_task(self._tick()),
            asyncio.create_task(self._discover()),
            asyncio.create_task(self._keep_trust()),
        ]

    async def close(self) -> None:
        await end_tasks([*self._tasks, *self._watches.values()])
        self._watches.clear()
        await self.records.close()
        await self.discovery.close()
        await self.desk.close()

    def watch(
        self, address: str, found_by: FoundBy, info: NodeInfo | None = None, *, called: str = ""
    ) -> None:
        """Watch an address. Idempotent.

        Args:
            info: its answer just now. With it, another address of a known node never appears as
                a separate node.
            called: its name, until it answers.
        """
        for watch in self._watches:
            if address in watch.addresses:
                watch.try_now()
                return
        self._begin((address,), found_by, info=info, called=called)

    def expect(self, placement: Placement) -> None:
        """Watch a participant, even if discovery has not found it."""
        found = FoundAgent(addresses=placement.agent, node_id=placement.node_id)
        if not any(watch.is_of(found) for watch in self._watches):
            self._begin(found.addresses, "job", node_id=placement.node_id)

    def was_heard(self, placement: Placement) -> bool:
        """Whether a participant has been heard from."""
        return any(
            view.info is not None
            and view.info.node_id == placement.node_id
            and view.liveness != "connecting"
            for view in self.nodes
        )

    def forget(self, address: str) -> bool:
        """Stop watching an address; ``False`` if it was not watched."""
        for watch in list(self._watches):
            if address in watch.addresses:
                self._watches.pop(watch).cancel()
                self._publish()
                return True
        return False

    def client_of(self, placement: Placement) -> AgentClient:
        """Return a client for a participant, at the address on which it answers now."""
        for view in self.nodes:
            if view.info and view.info.node_id == placement.node_id and not view.is_conflict:
                return self.client(view.address, placement.node_id, placement.node)
        return self.client(placement.agent[0], placement.node_id, placement.node)

    def client_at(self, node_id: NodeId) -> AgentClient | None:
        """Return a client for a node; ``None`` if it does not answer."""
        for view in self.nodes:
            if view.info and view.info.node_id == node_id and not view.is_conflict:
                return self.client(view.address, node_id, view.name)
        return None

    def client(self, address: str, node_id: NodeId, node: str) -> AgentClient:
        """Make a client for a node that does not wait for one whose heartbeats have stopped."""

        def is_lost() -> bool:
            seen = [one for one in self.nodes if one.info and one.info.node_id == node_id]
            return bool(seen) and all(one.liveness == "lost" for one in seen)

        return self.desk.client(address, node_id, node, is_lost)

    @property
    def reachable(self) -> list[NodeInfo]:
        """Return the nodes that answer."""
        return reachable_of(self.nodes)

    def job(self, job_id: JobId) -> JobView:
        """Return the job with this id.

        Raises:
            JobNotFoundError: no reachable node knows it.
        """
        view = self.jobs.get(job_id)
        if view is None:
            raise job_not_found(job_id)
        return view

    def take_record(self, record: JobRecord) -> None:
        """Take a record from a reply, unless a stream brought a newer one."""
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
        called: str = "",
    ) -> None:
        watch = AgentWatch(
            addresses,
            found_by,
            node_id=node_id,
            info=info,
            called=called,
            client=self.desk.client,
            clock=self.clock,
            on_message=self._take,
            on_change=self._on_change,
        )
        self._watches[watch] = asyncio.create_task(watch.run())
        self._publish()

    def _take(self, node_id: NodeId, message: StreamMessage) -> None:
        if isinstance(message, Hello | NodeChanged):
            self.on_seen(message.node)
        match message:
            case Hello(jobs=records):
                self._ledger.begin(node_id, records)
                self._publish_jobs()
                self.records.heard(node_id)
            case JobDeleted(job_id=job_id):
                self._ledger.delete(job_id, node_id)
                self._publish_jobs()
                self.records.look()
            case JobChanged(record=record):
                if self._ledger.update(record):
                    self._publish_jobs()
                self.records.look()

    def _on_change(self, watch: AgentWatch) -> None:
        """Publish a watch's view.

        A heartbeat changes no other node and no job: with many nodes, merging all of them for each
        heartbeat would take most of a driver's time.
        """
        before, now = self._views.get(watch), watch.view
        if before is None or not _is_next_heartbeat(before, now):
            self._publish()
            return
        where = next((i for i, view in enumerate(self.nodes) if view is before), None)
        if where is None:  # merged with another sighting of the node
            self._publish()
            return
        self._views[watch] = now
        self.nodes = (*self.nodes[:where], now, *self.nodes[where + 1 :])
        self.changes.notify()

    def _publish(self) -> None:
        self._views = {watch: watch.view for watch in self._watches}
        nodes = merge(self._views.values())
        # Jobs first: another thread that sees a node must see its live jobs, too.
        if self._ledger.set_reachable(reachable_of(nodes)):
            self._publish_jobs()
        self.nodes = nodes
        self.records.look()
        self.changes.notify()

    def _on_records(self) -> None:
        self._publish_jobs()
        self.records.look()
        self.changes.notify()

    def _publish_jobs(self) -> None:
        self.jobs = {view.job_id: view for view in self._ledger.views()}

    async def _tick(self) -> None:
        last = self.clock.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.monotonic()
            excuse = forgiven(now - last, TICK_S)
            last = now
            self.missed_s += excuse
            for watch in self._watches:
                if excuse:
                    watch.forgive(excuse)
                watch.tick()
            if self._ledger.needs_update or self._has_changed():
                self._publish()
            self.records.look()

    def _has_changed(self) -> bool:
        """Whether a watch's view differs from the published one."""
        return any(watch.view != self._views.get(watch) for watch in self._watches)

    async def _discover(self) -> None:
        try:
            await self.discovery.start(self.desk.take)
        except OSError as error:
            self.discovery_problem = Problem(
                kind=Kind.NO_MULTICAST,
                cause=f"this machine cannot browse for nodes: {error}",
                fix="add them by host:port",
            )
            self.changes.notify()
            return
        while True:
            await self.check_discovery()
            await asyncio.sleep(CHECK_DISCOVERY_S)

    async def check_discovery(self) -> None:
        """Test whether multicast is received; takes a second if it is not."""
        before = self.discovery_problem
        self.discovery_problem = await self.discovery.trouble()
        if self.discovery_problem != before:
            self.changes.notify()

    def take_back(self, nodes: Mapping[str, Problem]) -> None:
        """Note which nodes a scheduler has taken back, by name, and why."""
        self._ledger.take_back(nodes)
        self._on_records()

    def take_slot(self, found: FoundAgent) -> None:
        """Watch an agent of an allocation, instead of an earlier agent of that name."""
        for watch in list(self._watches):
            if watch.view.name == found.name and not watch.is_of(found):
                self._watches.pop(watch).cancel()
        self.desk.take(found)

    def reach(self, slot: str, address: str) -> None:
        """Watch an agent of an allocation at its new address, and forget the slot's earlier
        address.
        """
        for watch in list(self._watches):
            if watch.view.name == slot and address not in watch.addresses:
                self._watches.pop(watch).cancel()
        self.watch(address, "mdns", called=slot)

    def _on_open(self) -> None:
        for watch in self._watches:
            watch.try_now()

    def _on_member(self, found: FoundAgent) -> None:
        for watch in self._watches:
            if watch.is_of(found):
                watch.expect(found)
                return
        if len(self._watches) < MOST_ANNOUNCED:
            self._begin(found.addresses, "mdns", node_id=found.node_id, called=found.name)

    async def _keep_trust(self) -> None:
        told = ""
        while True:
            try:
                await self._update_trust()
                told = ""
            except (MntrainError, OSError) as error:  # this user's home may be read-only
                if str(error) != told:
                    log.warning("certificates and revocations are not kept up to date: %s", error)
                told = str(error)
            await asyncio.sleep(TRUST_EVERY_S)

    async def _update_trust(self) -> None:
        self.desk.look()
        await self.desk.update(self.nodes)
        for view in self.nodes:
            if is_waiting(view) and await self.desk.lets_in(view.address):
                self.watch(view.address, view.found_by)


def reachable_of(nodes: Iterable[NodeView]) -> list[NodeInfo]:
    """Return the nodes that answer."""
    return [view.info for view in nodes if view.info and view.liveness in ("up", "suspect")]


def _is_next_heartbeat(before: NodeView, now: NodeView) -> bool:
    """Whether nothing has changed except the heartbeat and when the node was last seen."""
    return before.info is now.info and now == msgspec.structs.replace(
        before, heartbeat=now.heartbeat, last_seen_s=now.last_seen_s
    )


def is_waiting(view: NodeView) -> bool:
    """Whether its agent waits to join a cluster."""
    return view.problem is not None and view.problem.kind is Kind.NOT_JOINED
