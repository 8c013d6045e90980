"""Preflight: asks nodes for their facts, and tries the network paths between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.doctor.check import CheckedNode, Finding
from jupyter_mntrain.doctor.every import OF_WAYS
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.doctor.paths import (
    LEAST_PORT,
    PathEnd,
    PathHeard,
    PathListen,
    PathsAsked,
    PathsFound,
    PathTarget,
    PathTicket,
    PathTrial,
)
from jupyter_mntrain.model.records.job import JobSpec, JobView, Participant
from jupyter_mntrain.model.records.node import Interface, NodeInfo
from jupyter_mntrain.plan.networks.trial_ends import TrialEnds, trial_ends

# Asking for facts: what an agent tells the doctor, and how far its clock is off.


MOST_TIMES = 40
"""How often a node is asked again for the versions that its interpreter loads."""


async def ask_facts(
    client: AgentClient,
    info: NodeInfo,
    question: MachineQuestion,
    clock: Clock,
    participant: Participant | None = None,
) -> CheckedNode:
    """Ask one agent for its facts; older agents do not know the question.

    Raises:
        MntrainError: it does not answer.
    """
    begun_s = clock.time()
    try:
        facts = await client.machine_facts(question)
    except MntrainError as error:
        if error.problem.kind is Kind.NO_SUCH_ROUTE:
            return CheckedNode(info=info, participant=participant)
        raise
    ended_s = clock.time()
    return CheckedNode(
        info=info,
        facts=facts,
        # It reads its clock as the last thing except for what it sends.
        clock_ahead_s=facts.time_s - ended_s,
        clock_error_s=ended_s - begun_s,
        participant=participant,
    )


async def _with_loaded(
    client: AgentClient, found: CheckedNode, question: MachineQuestion, clock: Clock
) -> CheckedNode:
    """Wait for the versions that the node's interpreter loads, and add them, if asked to wait.

    A node that has just joined does not know them yet, and importing torch takes long on a busy
    machine.

    Raises:
        MntrainError: it does not answer any more.
    """
    facts, patience_s = found.facts, question.patience_s
    if facts is None or patience_s is None:
        return found
    again = MachineQuestion(python=question.python, loaders=question.loaders, patience_s=patience_s)
    took_s, times = found.clock_error_s, 0
    # One that answers at once has nothing to wait for. An agent itself gives up after minutes.
    while facts.loaded is None and took_s >= patience_s and times < MOST_TIMES:
        begun_s, times = clock.time(), times + 1
        loaded = (await client.machine_facts(again)).loaded
        facts, took_s = msgspec.structs.replace(facts, loaded=loaded), clock.time() - begun_s
    return msgspec.structs.replace(found, facts=facts)


# Path trials: has every node try the paths to all others at once, while those listen.


USUAL_PORTS = (29400, 29500)
"""Ports that torchrun and scripts use for the rendezvous by default."""


def ports_of(spec: JobSpec | None) -> tuple[int, ...]:
    """Return the rendezvous ports that the job names itself; without a job, the usual ones."""
    if spec is None:
        return USUAL_PORTS
    return () if spec.port is None else (spec.port,)


class _Listening(Record, frozen=True):
    node: int
    address: str
    ticket: PathTicket


class PathTrials:
    """Tries the network paths between some nodes.

    Args:
        clients: of their agents, by node id.
        ports: that a job may use for the rendezvous.
    """

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        clients: Mapping[NodeId, AgentClient],
        ports: Sequence[int] = USUAL_PORTS,
    ) -> None:
        self._nodes = nodes
        self._clients = [clients[node.node_id] for node in nodes]
        self._ports = tuple(one for one in ports if one >= LEAST_PORT)
        self._failed: dict[str, str] = {}

    async def run(self, wanted: Sequence[str | None], *, is_loaded: bool = True) -> PathsFound:
        """Try all paths. Takes about three seconds; the result says which ones fail.

        Args:
            wanted: the named interface of each node, or ``None``.
            is_loaded: also send as much as goes for a moment, where no job trains.
        """
        ends = trial_ends(self._nodes, wanted)
        places = dict.fromkeys((one.receiver, one.address) for one in ends)
        opened = await asyncio.gather(*(self._listen(*place) for place in places))
        listening = {(one.node, one.address): one for one in opened if one is not None}
        try:
            found = await asyncio.gather(
                *(self._try(at, ends, listening, is_loaded) for at in range(len(self._nodes)))
            )
        finally:
            heard = await asyncio.gather(*(self._end(one) for one in listening.values()))
        return PathsFound(
            trials=tuple(trial for trials in found for trial in trials),
            heard={name: one for name, one in heard if one is not None},
            failed=self._failed,
            ranges={
                self._nodes[one.node].name: one.ticket.range
                for one in listening.values()
                if one.ticket.range
            },
        )

    async def _listen(self, at: int, address: str) -> _Listening | None:
        try:
            asked = PathListen(address=address, ports=self._ports)
            ticket = await self._clients[at].paths_listen(asked)
        except MntrainError as error:
            self._note(at, error)
            return None
        return _Listening(node=at, address=address, ticket=ticket)

    async def _try(
        self,
        at: int,
        ends: Sequence[TrialEnds],
        listening: Mapping[tuple[int, str], _Listening],
        is_loaded: bool,
    ) -> list[PathTrial]:
        targets = tuple(
            PathTarget(
                peer=self._nodes[one.receiver].name,
                interface=one.interface,
                source=one.source,
                address=one.address,
                ticket=listening[one.receiver, one.address].ticket,
            )
            for one in ends
            if one.sender == at and (one.receiver, one.address) in listening
        )
        if not targets:
            return []
        try:
            asked = PathsAsked(targets=targets, is_loaded=is_loaded)
            found = await self._clients[at].paths_try(asked)
        except MntrainError as error:
            self._note(at, error)
            return []
        # It is the driver who knows by which name the node is examined.
        return [msgspec.structs.replace(one, node=self._nodes[at].name) for one in found]

    async def _end(self, listening: _Listening) -> tuple[str, PathHeard | None]:
        name = self._nodes[listening.node].name
        try:
            asked = PathEnd(token=listening.ticket.token)
            return name, await self._clients[listening.node].paths_end(asked)
        except MntrainError:
            return name, None  # it ends by itself; who drops packets stays unknown

    def _note(self, at: int, error: MntrainError) -> None:
        is_old = error.problem.kind is Kind.NO_SUCH_ROUTE
        self._failed[self._nodes[at].name] = (
            "its agent is older, and cannot try the network" if is_old else error.problem.cause
        )


# Preflight: asks nodes what they know, all at once, tries the paths between them, and judges both.
#
# :class:`~jupyter_mntrain.cluster.diagnostics.doctor.ClusterDoctor` takes all of its steps when
# somebody asks; a launch takes the first one while it asks the nodes for itself.


class AskedNode(NamedTuple):
    """A node to check, its client, and what a job would use of it.

    Args:
        client: ``None`` if nothing is connected to its agent.
        is_fresh: what it is has just been asked; otherwise that is asked, too.
    """

    info: NodeInfo
    client: AgentClient | None
    participant: Participant | None = None
    is_fresh: bool = True

    @property
    def interface(self) -> str | None:
        """The interface that the job names for this node."""
        return self.participant.interface if self.participant else None


class ToldByNodes(NamedTuple):
    """The answers of the nodes that were asked.

    Args:
        asked, nodes: those that did, and what.
        silent: why the others did not, by name. They are not judged.
    """

    asked: tuple[AskedNode, ...]
    nodes: tuple[CheckedNode, ...]
    silent: dict[str, Problem]

    def with_infos(self, infos: Sequence[NodeInfo]) -> ToldByNodes:
        """Return the answers with newer information about the nodes."""
        by_id = {info.node_id: info for info in infos}
        nodes = tuple(
            msgspec.structs.replace(one, info=by_id.get(one.info.node_id, one.info))
            for one in self.nodes
        )
        return self._replace(nodes=nodes)

    @property
    def able(self) -> list[AskedNode]:
        """The nodes that can try paths, which older agents cannot."""
        both = zip(self.asked, self.nodes, strict=True)
        return [one._replace(info=node.info) for one, node in both if node.facts is not None]


@dataclass(frozen=True)
class Preflight:
    """Checks nodes for one job, or for any job that may run there.

    Args:
        is_loaded: the paths between the nodes are also tried under a load.
        patience_s, network_patience_s: that the nodes, and the paths between them, have;
            ``None`` = as long as it takes.
    """

    clock: Clock
    spec: JobSpec | None = None
    is_loaded: bool = True
    patience_s: float | None = None
    network_patience_s: float | None = None

    async def ask(
        self,
        wanted: Sequence[AskedNode],
        question: MachineQuestion,
        progress: Progress = SILENT,
    ) -> ToldByNodes:
        """Ask all nodes at once."""
        count = Count(progress, "examining the nodes", len(wanted))

        async def ask(one: AskedNode) -> CheckedNode | Problem:
            try:
                own = question
                if question.looks_up_names:
                    own = msgspec.structs.replace(question, peers=tuple(_others(wanted, one)))
                return await asyncio.wait_for(self._ask(one, own), self.patience_s)
            except MntrainError as error:
                return error.problem
            except TimeoutError:
                return Problem(
                    kind=Kind.SLOW_TO_ANSWER,
                    cause=f"did not answer the doctor within {self.patience_s:g} s",
                )
            finally:
                count.more()

        found = list(zip(wanted, await asyncio.gather(*map(ask, wanted)), strict=True))
        return ToldByNodes(
            tuple(one for one, answer in found if isinstance(answer, CheckedNode)),
            tuple(answer for _, answer in found if isinstance(answer, CheckedNode)),
            {one.info.name: answer for one, answer in found if isinstance(answer, Problem)},
        )

    async def _ask(self, one: AskedNode, question: MachineQuestion) -> CheckedNode:
        if one.client is None:
            raise NodeError("is not connected", kind=Kind.SILENT)
        info = one.info if one.is_fresh else await one.client.node_info()
        found = await ask_facts(one.client, info, question, self.clock, one.participant)
        found = await _with_loaded(one.client, found, question, self.clock)
        given = self.spec.environment if self.spec else {}
        return msgspec.structs.replace(found, given=given)

    async def try_paths(self, nodes: Sequence[AskedNode]) -> PathsFound:
        """Try the paths between nodes, all at once.

        Raises:
            TimeoutError: they took longer than ``network_patience_s``.
        """
        clients = {one.info.node_id: one.client for one in nodes if one.client is not None}
        infos = [one.info for one in nodes if one.client is not None]
        wanted = [one.interface for one in nodes if one.client is not None]
        trials = PathTrials(infos, clients, ports_of(self.spec))
        trying = trials.run(wanted, is_loaded=self.is_loaded)
        return await asyncio.wait_for(trying, self.network_patience_s)


def _others(wanted: Sequence[AskedNode], own: AskedNode) -> list[str]:
    """Return the addresses of the other nodes that a job may use."""
    return [
        address.partition("/")[0]
        for one in wanted
        if one is not own
        for interface in one.info.inventory.interfaces
        if interface.is_up and interface.kind == "ethernet"
        for address in interface.addresses
    ]


# Cached paths: those between nodes that were found well a short while ago, for the next launch.


KEPT_S = 60.0
"""Paths between nodes that were well are not tried again for so long, if no agent was started
again, no card has changed and no job failed."""


class NodeAsTried(NamedTuple):
    """A node's state when it was tried: a restart of its agent or other network cards change it."""

    node_id: str
    name: str
    instance: str
    started_s: float
    interfaces: tuple[Interface, ...]

    @classmethod
    def of(cls, info: NodeInfo) -> NodeAsTried:
        interfaces = (
            msgspec.structs.replace(one, given=None, links=(), benched=())
            for one in info.inventory.interfaces
        )
        return cls(info.node_id, info.name, info.instance, info.started_s, tuple(interfaces))


class _Way(NamedTuple):
    sender: NodeAsTried
    receiver: NodeAsTried
    ends: tuple[str, str, str]
    """The sender's interface and address, and the receiver's address."""


class _Tried(NamedTuple):
    trial: PathTrial
    range: tuple[int, int] | None
    """The receiver's port range."""
    at_s: float
    troubles: frozenset[tuple[JobId, int]]
    """The troubles of jobs at that time."""


class KnownPaths(NamedTuple):
    """Paths that need not be tried again.

    Args:
        age_s: of the one that was tried first.
    """

    paths: PathsFound
    age_s: float


class CachedPaths:
    """Caches the paths that were found to work. Safe from any thread.

    Only working paths are kept: the others are tried each time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tried: dict[_Way, _Tried] = {}

    def keep(
        self,
        nodes: Sequence[AskedNode],
        paths: PathsFound,
        findings: Iterable[Finding],
        jobs: Mapping[JobId, JobView],
    ) -> None:
        """Cache the paths between some nodes that were just tried, if all of them work.

        Args:
            findings: of all checks.
            jobs: that are known now.
        """
        now_s, troubles = self._clock.monotonic(), _troubles(jobs)
        is_well = all(one.level == "passed" for one in findings if one.check in OF_WAYS)
        found = {(one.node, one.peer, _ends_of(one)): one for one in paths.trials}
        kept = {way: one for way, one in self._tried.items() if now_s - one.at_s < KEPT_S}
        for way in _paths_between(nodes):
            trial = found.get((way.sender.name, way.receiver.name, way.ends))
            kept.pop(way, None)
            if is_well and trial is not None and _works(trial):
                ports = paths.ranges.get(way.receiver.name)
                kept[way] = _Tried(trial, ports, now_s, troubles)
        self._tried = kept

    def look(
        self,
        nodes: Sequence[AskedNode],
        ports: Iterable[int],
        jobs: Mapping[JobId, JobView],
    ) -> KnownPaths | None:
        """Return the cached paths between some nodes; ``None`` if one has to be tried, or if a job
        has failed since, which may be due to the network.

        Args:
            ports: that have to be open besides.
            jobs: that are known now.
        """
        paths, kept = _paths_between(nodes), self._tried
        tried = [kept[way] for way in paths if way in kept]
        if not paths or len(tried) < len(paths):
            return None
        age_s = self._clock.monotonic() - min(one.at_s for one in tried)
        wanted_ports, troubles = frozenset(ports), _troubles(jobs)
        if age_s >= KEPT_S or any(
            troubles - one.troubles or wanted_ports - {each.port for each in one.trial.tries}
            for one in tried
        ):
            return None
        ranges = {one.trial.peer: one.range for one in tried if one.range is not None}
        return KnownPaths(PathsFound(tuple(one.trial for one in tried), ranges=ranges), age_s)


def as_tried(nodes: Iterable[AskedNode]) -> frozenset[NodeAsTried]:
    """Return the state of each node on which the paths between them depend."""
    return frozenset(NodeAsTried.of(one.info) for one in nodes)


def _paths_between(nodes: Sequence[AskedNode]) -> list[_Way]:
    infos = [one.info for one in nodes]
    known = [NodeAsTried.of(one) for one in infos]
    return [
        _Way(known[one.sender], known[one.receiver], (one.interface, one.source, one.address))
        for one in trial_ends(infos, [one.interface for one in nodes])
    ]


def _ends_of(trial: PathTrial) -> tuple[str, str, str]:
    return trial.interface, trial.source, trial.address


def _works(trial: PathTrial) -> bool:
    return trial.flow == "works" and all(one.trouble is None for one in trial.tries)


def _troubles(jobs: Mapping[JobId, JobView]) -> frozenset[tuple[JobId, int]]:
    """Return the jobs that have failed, and the restarts."""
    return frozenset(
        (job_id, view.attempt.number)
        for job_id, view in jobs.items()
        if view.state == "failed" or view.attempt.number > 1
    )
