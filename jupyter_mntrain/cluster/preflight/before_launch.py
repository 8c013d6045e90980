"""Before a launch: the doctor checks a job's participants in a few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.preflight.pending_job import find_script, pending_job, question_of
from jupyter_mntrain.cluster.preflight.probing import (
    AskedNode,
    CachedPaths,
    NodeAsTried,
    Preflight,
    ToldByNodes,
    as_tried,
    ports_of,
)
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.doctor.check import Case, Finding, PendingJob, not_checked, untried
from jupyter_mntrain.doctor.every import EVERY, examine
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import DoctorRefusedError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.paths import PathsFound
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.resolved import ResolvedJob

PATIENCE_S = tunables.seconds("doctor.before_launch_s")
NETWORK_PATIENCE_S = tunables.seconds("doctor.network_before_launch_s")

TOLD = frozenset(check.id for check in EVERY if check.is_for_launch)


class _FoundPaths(NamedTuple):
    """The network paths between some nodes, as they were found.

    Args:
        nodes: as they were when these were tried.
        paths: ``None`` if trying them took too long.
        age_s: since then; ``None`` if that is now.
    """

    nodes: frozenset[NodeAsTried]
    paths: PathsFound | None
    age_s: float | None = None


class ToldBefore(NamedTuple):
    """What the nodes have reported before the launch goes on.

    Args:
        paths: ``None`` if they are still to be tried.
    """

    job: PendingJob
    told: ToldByNodes
    paths: _FoundPaths | None


@dataclass(frozen=True)
class BeforeLaunch:
    """Checks the participants of one launch.

    Args:
        known: paths that were well a short while ago are not tried again.
    """

    live: ClusterView
    clock: Clock
    known: CachedPaths
    job: ResolvedJob

    @property
    def _preflight(self) -> Preflight:
        return Preflight(
            self.clock,
            self.job.spec,
            is_loaded=False,
            patience_s=PATIENCE_S,
            network_patience_s=NETWORK_PATIENCE_S,
        )

    async def ask(self, project: StagedProject | None = None) -> ToldBefore:
        """Ask the participants about themselves and the job's files, for
        ``doctor.before_launch_s``, while they try the network between them.

        Args:
            project: its files, if they are on this machine.

        Raises:
            RecipeError: the job's recipe is not valid.
        """
        spec, nodes, live = self.job.spec, self.job.nodes, self.live
        wanted = [
            AskedNode(node, live.client_at(node.node_id), participant)
            for node, participant in zip(nodes, spec.participants, strict=True)
        ]
        trying = asyncio.ensure_future(self._paths_between(wanted))
        try:
            there = await find_script(spec, wanted[0].client, PATIENCE_S)
            job = pending_job(spec, nodes[0].name, project, there)
            question = msgspec.structs.replace(question_of(job, spec, there), looks_up_names=False)
            told = await self._preflight.ask(wanted, question)
            # Who is silent keeps the others waiting: those are tried without it.
            return ToldBefore(job, told, None if told.silent else await trying)
        finally:
            trying.cancel()
            await asyncio.wait((trying,))

    async def examine(
        self, infos: Sequence[NodeInfo], before: ToldBefore, progress: Progress
    ) -> tuple[Problem, ...]:
        """Return what may slow the job or end it later, and what could not be checked.

        Args:
            infos: of the participants, as they are for this job.
            before: from :meth:`ask`.

        Raises:
            DoctorRefusedError: with the first cause for which it would fail, or hang, and the
                others.
        """
        told = before.told.with_infos(infos)
        job = msgspec.structs.replace(before.job, head=infos[0].name)
        paths = before.paths
        if paths is None or not as_tried(told.able) <= paths.nodes:
            paths = await self._try(told.able)
        found = _judged(told, paths, job)
        if paths.age_s is not None and any(one.level == "stops" for one in found):
            paths = await self._try(told.able)
            found = _judged(told, paths, job)
        if paths.age_s is not None:
            progress.report(f"the network was tried {paths.age_s:.0f} s ago", 0, None)
        elif paths.paths is not None:
            self.known.keep(told.able, paths.paths, found, self.live.jobs)
        notes = [not_checked(node, why) for node, why in told.silent.items()]
        if paths.paths is None:
            notes.append(untried([one.name for one in told.nodes], NETWORK_PATIENCE_S))
        return _unless_stopped(found, notes)

    async def _paths_between(self, nodes: Sequence[AskedNode]) -> _FoundPaths:
        """Return the paths as they were found a short while ago, or else try them now."""
        known = self.known.look(nodes, ports_of(self.job.spec), self.live.jobs)
        if known is not None:
            return _FoundPaths(as_tried(nodes), known.paths, known.age_s)
        return await self._try(nodes)

    async def _try(self, nodes: Sequence[AskedNode]) -> _FoundPaths:
        try:
            return _FoundPaths(as_tried(nodes), await self._preflight.try_paths(nodes))
        except TimeoutError:
            return _FoundPaths(as_tried(nodes), None)


def _judged(told: ToldByNodes, paths: _FoundPaths, job: PendingJob) -> tuple[Finding, ...]:
    return examine(Case(nodes=told.nodes, paths=paths.paths or PathsFound(), job=job))


def _unless_stopped(found: Sequence[Finding], notes: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the notes and the findings that do not stop the launch.

    Raises:
        DoctorRefusedError: something does.
    """
    stops = [one.problem for one in found if one.problem and one.level == "stops"]
    slow = [
        one.problem for one in found if one.problem and one.level == "slows" and one.check in TOLD
    ]
    if stops:
        fix = f"{stops[0].fix}; or, if you know better, launch with --skip-doctor"
        error = DoctorRefusedError.of(msgspec.structs.replace(stops[0], fix=fix))
        error.found = (*stops, *notes, *slow)
        raise error
    return (*notes, *slow)
