"""Cluster doctor: asks nodes what keeps them from training, all at once, and judges it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from jupyter_mntrain.cluster.examination.asking_facts import ask_facts
from jupyter_mntrain.cluster.examination.job_ahead import job_ahead, question_of
from jupyter_mntrain.cluster.examination.path_trials import PathTrials, ports_of
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.node_search import NodeSearch
from jupyter_mntrain.doctor.check import Case, Examined
from jupyter_mntrain.doctor.every import examine
from jupyter_mntrain.doctor.finding import DoctorReport
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.doctor.paths import PathsFound
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.lookup import find_node
from jupyter_mntrain.plan.spec_check import check_spec

LOADED_S = tunables.seconds("doctor.loaded_patience_s")


class ClusterDoctor:
    """Examines a cluster's nodes, from :attr:`Cluster.doctor`. Safe from any thread."""

    def __init__(self, driver: DriverSession, search: NodeSearch, clock: Clock) -> None:
        self._driver, self._search, self._clock = driver, search, clock

    def examine(
        self,
        nodes: Sequence[str] = (),
        *,
        asked: MachineQuestion = MachineQuestion(),  # noqa: B008 - frozen
        participants: Sequence[Participant] = (),
        spec: JobSpec | None = None,
        project: StagedProject | None = None,
        is_quick: bool = False,
        progress: Progress = SILENT,
    ) -> DoctorReport:
        """Look for what keeps these nodes from training; starts and changes nothing.

        Args:
            nodes: names, ids or host names; default: all that answer, and those that are silent.
            asked: what of a job is looked for besides: its paths, its interpreter.
            participants: of a job, instead of nodes: judged is what it would use of them.
            spec: of a job that is to be launched, instead of both.
            project: its files, if they are on this machine.
            is_quick: as before a launch: load no link, look up no names, and tell only what is
                known of what an interpreter loads.
            progress: counts the nodes that have answered.

        Raises:
            SpecError: a node is unknown.
            NodeError: none answers.
            RefusedError: this driver is read-only.
        """
        self._driver.refuse_read_only()
        participants = spec.participants if spec else participants
        nodes = [one.node for one in participants] or nodes
        self._search.settle(nodes, progress)
        self._search.refuse_awaited(nodes)
        begun_s = self._clock.time()
        infos, silent = self._chosen(nodes)
        job = None if spec is None else job_ahead(spec, infos[0].name, project)
        asked = question_of(job, spec) if job is not None and spec is not None else asked
        asked = msgspec.structs.replace(
            asked,
            looks_up_names=not is_quick and asked.looks_up_names,
            patience_s=None if is_quick else LOADED_S,
        )
        used = dict(zip((one.node_id for one in infos), participants, strict=False))
        examined, failed = self._driver.loop.run(self._ask_all(infos, used, asked, progress))
        if spec is not None:
            given = spec.environment
            examined = [msgspec.structs.replace(one, given=given) for one in examined]
        progress.report("trying the network", 0, None)
        work = self._found_out(examined, spec, is_loaded=not is_quick)
        own = {one.node_id for one in infos}
        others = tuple(one for one in self._search.usable() if one.node_id not in own)
        case = msgspec.structs.replace(self._driver.loop.run(work), job=job, others=others)
        findings = examine(case)
        return DoctorReport(
            nodes=tuple(one.name for one in examined),
            findings=findings,
            silent=silent | failed,
            time_s=begun_s,
            took_s=self._clock.time() - begun_s,
        )

    def _chosen(self, names: Sequence[str]) -> tuple[list[NodeInfo], dict[str, Problem]]:
        usable = self._search.usable()
        if names:
            return [find_node(name, usable) for name in dict.fromkeys(names)], {}
        return usable, {
            view.name: view.problem or Problem(kind=Kind.SILENT, cause="does not answer")
            for view in self._driver.live.nodes
            if view.liveness in ("lost", "connecting") and view.name
        }

    async def _ask_all(
        self,
        infos: Sequence[NodeInfo],
        used: Mapping[NodeId, Participant],
        wanted: MachineQuestion,
        progress: Progress,
    ) -> tuple[list[Examined], dict[str, Problem]]:
        """Ask all nodes at once; of those that do not answer, why."""
        asked = Count(progress, "examining the nodes", len(infos))
        failed: dict[str, Problem] = {}

        async def ask(info: NodeInfo) -> Examined | None:
            try:
                client = self._search.client(info.node_id)
                question = msgspec.structs.replace(
                    wanted, peers=tuple(_others(infos, info)) if wanted.looks_up_names else ()
                )
                return await ask_facts(
                    client, await client.node_info(), question, self._clock, used.get(info.node_id)
                )
            except MntrainError as error:
                failed[info.name] = error.problem
                return None
            finally:
                asked.one()

        found = await asyncio.gather(*map(ask, infos))
        return [one for one in found if one is not None], failed

    async def _found_out(
        self, examined: Sequence[Examined], spec: JobSpec | None, *, is_loaded: bool
    ) -> Case:
        """What is not a fact of a single node."""
        paths = await self._try_paths(examined, ports_of(spec), is_loaded=is_loaded)
        refused = None if spec is None else await self._refused(spec)
        return Case(nodes=tuple(examined), paths=paths, refused=refused)

    async def _refused(self, spec: JobSpec) -> Problem | None:
        """Why a launch would refuse the job, whatever the nodes are like; ``None`` if it is not."""
        try:
            if spec.entry:  # otherwise only its options are asked about
                check_spec(spec)
            await self._driver.launcher().agreed(spec)
        except MntrainError as error:
            return error.problem
        return None

    async def _try_paths(
        self, examined: Sequence[Examined], ports: Sequence[int], *, is_loaded: bool
    ) -> PathsFound:
        """The ways between the nodes that told their facts; an older agent cannot try."""
        able = [one for one in examined if one.facts is not None]
        clients = {one.info.node_id: self._search.client(one.info.node_id) for one in able}
        trials = PathTrials([one.info for one in able], clients, ports)
        return await trials.run(
            [one.participant.interface if one.participant else None for one in able],
            is_loaded=is_loaded,
        )


def _others(infos: Sequence[NodeInfo], own: NodeInfo) -> list[str]:
    """The addresses of the other nodes that a job may use."""
    return [
        address.partition("/")[0]
        for info in infos
        if info is not own
        for interface in info.inventory.interfaces
        if interface.is_up and interface.kind == "ethernet"
        for address in interface.addresses
    ]
