"""Examiner: asks nodes what they know, all at once, tries the ways between them, and judges both.

:class:`~jupyter_mntrain.cluster.examination.doctor.ClusterDoctor` takes all of its steps when
somebody asks; a launch takes the first one while it asks the nodes for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.examination.asking_facts import ask_facts
from jupyter_mntrain.cluster.examination.path_trials import PathTrials, ports_of
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.doctor.check import Examined
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.doctor.paths import PathsFound
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.node import NodeInfo


class AskedNode(NamedTuple):
    """A node that is examined, who asks it, and what a job would use of it.

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
        """That a job names."""
        return self.participant.interface if self.participant else None


class ToldByNodes(NamedTuple):
    """What the nodes told.

    Args:
        asked, nodes: those that did, and what.
        silent: why the others did not, by name. They are not judged.
    """

    asked: tuple[AskedNode, ...]
    nodes: tuple[Examined, ...]
    silent: dict[str, Problem]

    def with_infos(self, infos: Sequence[NodeInfo]) -> ToldByNodes:
        """With newer knowledge of what the nodes are."""
        by_id = {info.node_id: info for info in infos}
        nodes = tuple(
            msgspec.structs.replace(one, info=by_id.get(one.info.node_id, one.info))
            for one in self.nodes
        )
        return self._replace(nodes=nodes)

    @property
    def able(self) -> list[AskedNode]:
        """Those that can try ways, as they are; an older agent cannot."""
        both = zip(self.asked, self.nodes, strict=True)
        return [one._replace(info=node.info) for one, node in both if node.facts is not None]


@dataclass(frozen=True)
class Examiner:
    """Examines nodes for a job, or for any that may run there.

    Args:
        is_loaded: the ways between the nodes are also tried under a load.
        patience_s, network_patience_s: that the nodes, and the ways between them, have;
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

        async def ask(one: AskedNode) -> Examined | Problem:
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
            tuple(one for one, answer in found if isinstance(answer, Examined)),
            tuple(answer for _, answer in found if isinstance(answer, Examined)),
            {one.info.name: answer for one, answer in found if isinstance(answer, Problem)},
        )

    async def _ask(self, one: AskedNode, question: MachineQuestion) -> Examined:
        if one.client is None:
            raise NodeError("is not connected", kind=Kind.SILENT)
        info = one.info if one.is_fresh else await one.client.node_info()
        found = await ask_facts(one.client, info, question, self.clock, one.participant)
        given = self.spec.environment if self.spec else {}
        return msgspec.structs.replace(found, given=given)

    async def try_ways(self, nodes: Sequence[AskedNode]) -> PathsFound:
        """The ways between nodes, as they are known to be.

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
    """The addresses of the other nodes that a job may use."""
    return [
        address.partition("/")[0]
        for one in wanted
        if one is not own
        for interface in one.info.inventory.interfaces
        if interface.is_up and interface.kind == "ethernet"
        for address in interface.addresses
    ]
