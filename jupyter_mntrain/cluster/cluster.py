"""The public face: everything a notebook, a command line or a script does with a cluster."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from jupyter_mntrain.cluster.agents.address import parse_address
from jupyter_mntrain.cluster.discovery.discovery import Discovery, MdnsDiscovery
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.cluster.launch.launcher import refuse_unusable
from jupyter_mntrain.cluster.launch.measure import LinkMeasurement, measure_pairs
from jupyter_mntrain.cluster.membership import ClusterMembership
from jupyter_mntrain.cluster.progress import SILENT, Progress
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.peer_book import PeerBook, SeenNode
from jupyter_mntrain.launch import NodeCommand
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import DEFAULT_CLUSTER, PortStatus
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, NodeError, SpecError
from jupyter_mntrain.model.ids import JobId, NodeId, is_cluster_name, new_job_id
from jupyter_mntrain.model.records.job import JobSpec, JobView, Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.plan import arrange, choose_participants, find_node, parse_member

ADD_S = tunables.seconds("cluster.add_timeout_s")


class Cluster:
    """The nodes of one cluster and their jobs, watched from the moment this is made.

    ``nodes()`` and ``jobs()`` answer at once from the live view; everything that asks a node
    raises :class:`MntrainError` in one line. All methods may be called from any thread, also from
    a notebook cell. Close it, or use it as a context manager; jobs go on. What may take longer
    than a second takes a ``progress`` that hears how far it is.

    Args:
        name: nodes of other clusters are not seen.
        addresses: ``host[:port]`` of agents to watch besides those discovery finds.
        discovery: how agents are found; mDNS if not given.
        peers: where typed addresses are remembered; the user's own if not given.
        clock: where times come from.

    Raises:
        SpecError: a name with odd characters, an address that is none, a damaged peers file.
    """

    def __init__(
        self,
        name: str = DEFAULT_CLUSTER,
        *,
        addresses: Iterable[str] = (),
        discovery: Discovery | None = None,
        peers: PeerBook | None = None,
        clock: Clock = time,
    ) -> None:
        if not is_cluster_name(name):
            raise SpecError(
                f"{name!r} is not a cluster name",
                fix="use letters, digits, '.', '_' and '-', at most 63, a letter or digit first",
            )
        self.name = name
        self._peers = peers or PeerBook()
        self._clock = clock
        typed = [parse_address(address) for address in addresses]
        remembered = self._peers.addresses(name)
        self._driver = DriverSession(
            name,
            discovery=discovery or MdnsDiscovery(),
            addresses=[*((a, "typed") for a in typed), *((a, "remembered") for a in remembered)],
            clock=clock,
            seen=self._peers.seen(name, clock.time()),
            on_seen=self._was_seen,
        )
        self.membership = ClusterMembership(self._driver)
        # Also at interpreter exit, while threads still run.
        self._closer = weakref.finalize(self, self._driver.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster {self.name!r}: {len(self.nodes())} nodes>"

    def close(self) -> None:
        """Stop watching. Jobs go on. Again, it does nothing."""
        self._closer()

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have ``tell`` called after every change of nodes, jobs or a watched job's history.

        Args:
            tell: called in this cluster's own thread; returns at once and does not raise.

        Returns:
            what ends it.
        """
        return self._driver.live.changes.subscribe(tell)

    @property
    def discovery_problem(self) -> str | None:
        """Why this machine cannot browse for nodes, if it cannot; typed addresses work."""
        return self._driver.live.discovery_problem

    def check_discovery(self) -> str | None:
        """Try whether this machine hears multicast, and say what is wrong; up to two seconds."""
        self._driver.loop.run(self._driver.live.check_discovery())
        return self.discovery_problem

    def nodes(self) -> tuple[NodeView, ...]:
        """Every node known, sorted by name, from the live view: asks nobody."""
        return self._driver.live.nodes

    def settled_nodes(
        self, names: Sequence[str] = (), *, progress: Progress = SILENT
    ) -> tuple[NodeView, ...]:
        """As :meth:`nodes`, but a driver that has just begun first waits until it can have found
        those called ``names``, or all of them.
        """

        def found() -> bool:
            usable = [view.info for view in self._usable() if view.info]
            known = {name for info in usable for name in info.names}
            missing = [name for name in names if name not in known]
            progress.report(
                "looking for nodes",
                len(names) - len(missing) if names else len(usable),
                len(names) or None,
            )
            return bool(names) and not missing

        self._driver.grace.wait(found)
        return self.nodes()

    def wait_for_nodes(self, count: int = 1, timeout_s: float = 3.0) -> tuple[NodeView, ...]:
        """The nodes as soon as ``count`` of them are up, or what there is after ``timeout_s``."""

        def enough() -> bool:
            return sum(view.liveness == "up" for view in self.nodes()) >= count

        self._driver.wait_until(enough, timeout_s)
        return self.nodes()

    @property
    def is_driver(self) -> bool:
        """Whether this user has keys of the cluster; the first invitation makes it."""
        return self._driver.live.desk.identity is not None

    @property
    def strangers(self) -> tuple[str, ...]:
        """Names of nodes of other clusters that are announced here, each with its cluster's."""
        found = self._driver.live.desk.strangers.values()
        return tuple(sorted({f"{one.name} of {one.cluster}" for one in found}))

    def _was_seen(self, info: NodeInfo) -> None:
        """In the driver's thread, and maybe before this object is made to its end."""
        node = SeenNode(
            node_id=info.node_id,
            name=info.name,
            addresses=info.addresses,
            seen_s=self._clock.time(),
        )
        # A full disk must not end the watching of nodes.
        with suppress(OSError, MntrainError):
            self._peers.was_seen(self.name, node)

    def add(self, address: str) -> NodeView:
        """Ask an agent at ``host[:port]`` and, if it is one of this cluster, remember it.

        One that waits there with a token of ours is let in first.

        Raises:
            TrustError: it waits with a token that is none of ours, or this user is no driver yet.
            NodeError: refused, timed out, not an agent, of another cluster, and so on:
                ``reason`` says which, and the message what to do.
            SpecError: it is not an address.
        """
        where = parse_address(address)
        live = self._driver.live

        async def ask() -> NodeInfo:
            try:
                info = await live.client(where).node_info()
            except NodeError as error:
                if error.reason != "not joined":
                    raise
                info = await admitted()
            live.watch(where, "typed", info)
            return info

        async def admitted() -> NodeInfo:
            subject = await live.desk.admit(where)
            if subject.role == "driver":
                said = f"{subject.name} was let in as a driver, and no node is there"
                raise NodeError(said, fix="nothing is to be done", node=where)
            client = live.client(where, NodeId(subject.name))
            deadline = time.monotonic() + ADD_S
            while True:
                try:
                    return await client.node_info()
                except NodeError:
                    # It takes a moment to become an agent, on a machine that may be busy.
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(ADMITTED_RETRY_S)

        info = self._driver.loop.run(ask())
        self._peers.remember(self.name, where)

        def found() -> NodeView | None:
            return next((view for view in self.nodes() if _is_up_as(view, info, where)), None)

        self._driver.wait_until(found, ADD_S)
        return found() or NodeView(
            address=where, found_by="typed", liveness="connecting", info=info
        )

    def forget(self, address: str) -> None:
        """Neither watch nor remember a node, by address or name. mDNS may find it again.

        Raises:
            NodeError: there is no such node.
        """
        named = [view.address for view in self.nodes() if view.name == address]
        addresses = named or [parse_address(address)]

        async def forget() -> bool:
            return sum(map(self._driver.live.forget, addresses)) > 0

        was_watched = self._driver.loop.run(forget())
        was_remembered = sum(self._peers.forget(self.name, one) for one in addresses) > 0
        was_remembered |= self._peers.unsee(self.name, {address, *addresses})
        if not was_watched and not was_remembered:
            raise NodeError(f"no node at {addresses[0]} is known", fix="see: mntrain nodes")

    def participants(
        self,
        members: Sequence[str] = (),
        *,
        even_busy: bool = False,
        progress: Progress = SILENT,
    ) -> tuple[Participant, ...]:
        """Who would take part, checked against what the nodes have now.

        Args:
            members: ``HOST:N[:IFACE]`` in node-rank order. None: every node with an idle GPU and
                all of its idle ones, or one process per node where no node has GPUs.
            even_busy: for a job that waits: GPUs that are not idle will do.

        Raises:
            SpecError: a member has another form, its node is unknown or has too few idle GPUs.
            NodeError: its node is not answering.
        """
        wanted = [parse_member(text) for text in members]
        self.settled_nodes([member.node for member in wanted], progress=progress)
        for view in self.nodes():
            if view.name in {member.node for member in wanted}:
                refuse_unusable(view)
        nodes = [view.info for view in self._usable() if view.info]
        return choose_participants(wanted, nodes, even_busy=even_busy)

    def port_status(self, node: str, port: int, interface: str | None = None) -> PortStatus:
        """Whether ``node`` could be the head on ``port``, asked there and now; holds nothing.

        Args:
            interface: whose address; the agent's own if not given.

        Raises:
            SpecError: no node is called so.
            NodeError: it does not answer.
            RefusedError: there is no such port or interface.
        """
        info = find_node(node, [view.info for view in self.nodes() if view.info])
        address = next(view.address for view in self.nodes() if view.info is info)
        client = self._driver.live.client(address, info.node_id, info.name)
        return self._driver.loop.run(client.port_status(port, interface))

    def dry_run(self, spec: JobSpec, *, progress: Progress = SILENT) -> tuple[NodeCommand, ...]:
        """The exact command and environment of every node; nothing is started or leased.

        What only a launch decides is shown as job ``j-00000000`` and, without a port of its own
        in the spec, port 0.

        Raises:
            SpecError, NodeError: as :meth:`launch`.
        """
        self.settled_nodes(
            [participant.node for participant in spec.participants], progress=progress
        )
        return self._driver.loop.run(self._driver.launcher().render(spec))

    def launch(self, spec: JobSpec, *, submitted_by: str = "", progress: Progress = SILENT) -> Job:
        """Start a job on all of its participants or on none. Ctrl-C gives back what was taken.

        Args:
            submitted_by: for people; user and host if not given.

        Raises:
            SpecError: the spec cannot work, or not on these nodes.
            NodeError: a participant does not answer.
            RefusedError: a participant cannot have what it needs: GPU, interface, port.
        """
        self.settled_nodes(
            [participant.node for participant in spec.participants], progress=progress
        )
        launcher = self._driver.launcher(submitted_by)
        view = self._driver.loop.run(launcher.launch(spec, new_job_id(), progress=progress))
        return Job(self._driver, view.job_id)

    def queue(self, spec: JobSpec, *, submitted_by: str = "", progress: Progress = SILENT) -> Job:
        """Leave a job with its participants, to be started when it can have all it needs.

        Until then it is ``pending``, holds nothing, and says what it waits for. No driver need be
        there: its head starts it.

        Raises:
            SpecError: the spec cannot work, or not on these nodes.
            NodeError: a participant does not answer.
        """
        self.settled_nodes(
            [participant.node for participant in spec.participants], progress=progress
        )
        launcher = self._driver.launcher(submitted_by)
        view = self._driver.loop.run(launcher.queue(spec, new_job_id(), progress=progress))
        return Job(self._driver, view.job_id)

    def jobs(self) -> tuple[JobView, ...]:
        """Every job that a node which was reached knows of, newest first: asks nobody."""
        return tuple(self._driver.live.jobs.values())

    def known_job(self, job_id: JobId) -> Job:
        """A job by its whole id, known or not: asks nobody, and waits for nothing."""
        return Job(self._driver, job_id)

    def job(self, job_id: str, *, progress: Progress = SILENT) -> Job:
        """A job by its id or the beginning of it, whoever launched it, with all its participants.

        Raises:
            JobNotFoundError: no reachable node knows it.
            SpecError: several jobs begin like this.
        """
        progress.report(f"looking for job {job_id}", 0, None)
        if not self._driver.grace.wait(lambda: self._matches(job_id)):
            raise JobNotFoundError(
                f"no reachable node knows a job {job_id!r}",
                fix="see: mntrain jobs; a node that is lost keeps its jobs to itself",
            )
        matches = self._matches(job_id)
        if len(matches) > 1:
            raise SpecError(
                f"{len(matches)} jobs begin with {job_id!r}", fix=f"use one of {', '.join(matches)}"
            )
        self._hear_everybody(matches[0])
        return Job(self._driver, matches[0])

    def measure(
        self,
        participants: Sequence[Participant] | None = None,
        *,
        progress: Progress = SILENT,
    ) -> tuple[LinkMeasurement, ...]:
        """Bandwidth of every ordered pair, in bytes per second, about 1 s each, one by one.

        The sending agents keep the result: it then decides which network is fastest and how
        full a link is.

        Args:
            participants: nodes and interfaces; every usable node if not given.

        Raises:
            SpecError, NodeError, RefusedError: as :meth:`launch`.
        """
        chosen = participants
        if chosen is None:
            self.settled_nodes(progress=progress)
            chosen = [Participant(node=view.info.node_id) for view in self._usable() if view.info]
        return self._driver.loop.run(self._measure(chosen, progress))

    async def _measure(
        self, participants: Sequence[Participant], progress: Progress
    ) -> tuple[LinkMeasurement, ...]:
        infos = await self._driver.launcher().ask_participants(participants, progress)
        placements = arrange(participants, infos)
        clients = [self._driver.live.client_of(placement) for placement in placements]
        return await measure_pairs(placements, clients, progress=progress)

    def _usable(self) -> list[NodeView]:
        return [
            view
            for view in self.nodes()
            if view.liveness in ("up", "suspect") and not view.is_conflict
        ]

    def _matches(self, text: str) -> list[JobId]:
        jobs = self._driver.live.jobs
        exact = [job_id for job_id in jobs if job_id == text]
        return exact or [
            job_id for job_id in jobs if text and job_id.startswith((text, f"j-{text}"))
        ]

    def _settle(self, participants: Sequence[Participant], progress: Progress) -> None:
        self.settled_nodes([one.node for one in participants], progress=progress)

    def _hear_everybody(self, job_id: JobId) -> None:
        """Give a driver that has just begun the time to hear every participant of a job.

        One of them knows them all, with their addresses: no need to wait for each to be found.
        """
        live = self._driver.live
        placements = self._driver.view(job_id).attempt.placements

        async def expect() -> None:
            for placement in placements:
                live.expect(placement)

        self._driver.loop.run(expect())
        self._driver.grace.wait(lambda: all(map(live.was_heard, placements)))


def _is_up_as(view: NodeView, info: NodeInfo, address: str) -> bool:
    is_it = view.info is not None and view.info.node_id == info.node_id
    return is_it and view.liveness == "up" and (not view.is_conflict or view.address == address)


ADMITTED_RETRY_S = 0.1
