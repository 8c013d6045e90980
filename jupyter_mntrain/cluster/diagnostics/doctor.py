"""Cluster doctor: checks all nodes at once for what keeps them from training."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from jupyter_mntrain.cluster.files.hub_models import with_hub_commit
from jupyter_mntrain.cluster.preflight.pending_job import find_script, pending_job, question_of
from jupyter_mntrain.cluster.preflight.probing import AskedNode, Preflight, ToldByNodes
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.doctor.check import Case, DoctorReport, Finding
from jupyter_mntrain.doctor.every import examine
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.doctor.paths import PathsFound
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.plan.arrange import find_participants
from jupyter_mntrain.plan.lookup import find_node
from jupyter_mntrain.plan.spec_check import check_spec

LOADED_S = 6.0
"""The doctor waits so long for an interpreter that was not asked yet; the next doctor knows."""


class ClusterDoctor:
    """Checks a cluster's nodes, from :attr:`Cluster.doctor`. Safe from any thread."""

    def __init__(self, driver: DriverSession) -> None:
        self._driver = driver

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
        names = [one.node for one in participants] or nodes
        self._driver.search.wait_until_known(names, progress)
        self._driver.search.refuse_awaited(names)
        begun_s = self._driver.clock.time()
        wanted, silent = self._chosen(names, participants)
        if not wanted:
            raise _nobody(silent)
        job, of_hub = None, None
        if spec is not None:
            spec, of_hub = self._driver.loop.run(_with_model(spec, progress))
            there = self._driver.loop.run(find_script(spec, wanted[0].client))
            job = pending_job(spec, wanted[0].info.name, project, there)
            asked = question_of(job, spec, there)
        asked = msgspec.structs.replace(
            asked,
            looks_up_names=not is_quick and asked.looks_up_names,
            patience_s=None if is_quick else LOADED_S,
        )
        preflight = Preflight(self._driver.clock, spec, is_loaded=not is_quick)
        looking = self._look(preflight, wanted, asked, spec, progress)
        told, paths, refused = self._driver.loop.run(looking)
        own = {one.info.node_id for one in wanted}
        others = tuple(one for one in self._driver.search.usable() if one.node_id not in own)
        refused = of_hub or refused
        case = Case(nodes=told.nodes, paths=paths, job=job, refused=refused, others=others)
        return DoctorReport(
            nodes=tuple(one.name for one in told.nodes),
            findings=self._judged(case, told),
            silent=silent | told.silent,
            time_s=begun_s,
            took_s=self._driver.clock.time() - begun_s,
        )

    def _judged(self, case: Case, told: ToldByNodes) -> tuple[Finding, ...]:
        """Return the findings, and keep working paths, so that the next launch need not
        try them.
        """
        found = examine(case)
        self._driver.known_paths.keep(told.able, case.paths, found, self._driver.live.jobs)
        return found

    def _chosen(
        self, names: Sequence[str], participants: Sequence[Participant]
    ) -> tuple[list[AskedNode], dict[str, Problem]]:
        """Return each node to examine, once, with what a job would use of it; and the silent nodes,
        if no node was named.
        """
        usable = self._driver.search.usable()
        infos = [find_node(name, usable) for name in names] if names else usable
        if participants:
            infos = list(find_participants(participants, usable))
        used = dict(zip((one.node_id for one in infos), participants, strict=False))
        once = {one.node_id: one for one in infos}
        wanted = [
            AskedNode(one, self._driver.search.client(node_id), used.get(node_id), is_fresh=False)
            for node_id, one in once.items()
        ]
        return wanted, {} if names else self._silent()

    def _silent(self) -> dict[str, Problem]:
        return {
            view.name: view.problem or Problem(kind=Kind.SILENT, cause="does not answer")
            for view in self._driver.live.nodes
            if view.liveness in ("lost", "connecting") and view.name
        }

    async def _look(
        self,
        preflight: Preflight,
        wanted: Sequence[AskedNode],
        question: MachineQuestion,
        spec: JobSpec | None,
        progress: Progress,
    ) -> tuple[ToldByNodes, PathsFound, Problem | None]:
        """Return what the nodes report, the paths between them, and why a launch would refuse the
        job.
        """
        told, refused = await asyncio.gather(
            preflight.ask(wanted, question, progress), self._refused(spec)
        )
        progress.report("trying the network", 0, None)
        return told, await preflight.try_paths(told.able), refused

    async def _refused(self, spec: JobSpec | None) -> Problem | None:
        """Return why a launch would refuse the job, apart from the checks; ``None`` if it would
        not.
        """
        if spec is None:
            return None
        try:
            if spec.entry:  # otherwise only its options are asked about
                check_spec(spec)
            launcher = self._driver.launcher()
            agreed = await launcher.agreed(launcher.resolved(spec))
            if spec.port is None:
                return None
            head = agreed.placements[0]
            client = self._driver.search.client(head.node_id)
            found = (await client.port_status(spec.port, head.interface)).problem
        except MntrainError as error:
            return error.problem
        return found and msgspec.structs.replace(found, node=head.node)


def _nobody(silent: Mapping[str, Problem]) -> NodeError:
    """Return the error that no node answers, with the known nodes and why each is silent."""
    known = "; ".join(f"{name}: {why.cause}" for name, why in silent.items())
    return NodeError(
        f"no node answers ({known})" if known else "no node answers",
        kind=Kind.NO_ANSWER,
        fix="see mntrain nodes for the reason; mntrain install HOST adds a node",
    )


async def _with_model(spec: JobSpec, progress: Progress) -> tuple[JobSpec, Problem | None]:
    """Return the job with the commit of its hub model, if any; or as it is, and the problem."""
    try:
        return await with_hub_commit(program_of(spec), progress), None
    except MntrainError as error:
        return spec, error.problem
