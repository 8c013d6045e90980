"""Before a launch: what the doctor says of a job's participants, in as little time as it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.examination.examiner import AskedNode, Examiner, ToldByNodes
from jupyter_mntrain.cluster.examination.job_ahead import find_script, job_ahead, question_of
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.doctor.check import Case, JobAhead
from jupyter_mntrain.doctor.every import EVERY, examine
from jupyter_mntrain.doctor.finding import unexamined, untried
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import DoctorRefusedError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.paths import PathsFound
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.arrange import find_participants

PATIENCE_S = tunables.seconds("doctor.before_launch_s")
NETWORK_PATIENCE_S = tunables.seconds("doctor.network_before_launch_s")

TOLD = frozenset(check.id for check in EVERY if check.is_for_launch)


class ToldBefore(NamedTuple):
    """What is known before the ways between the nodes are tried."""

    examiner: Examiner
    job: JobAhead
    told: ToldByNodes


async def ask_before(
    live: ClusterView, clock: Clock, spec: JobSpec, project: StagedProject | None = None
) -> ToldBefore:
    """Ask each participant for itself and the job's paths, for ``doctor.before_launch_s``.

    Args:
        project: its files, if they are on this machine.

    Raises:
        RecipeError: the job's recipe is not valid.
        SpecError: a node is unknown, or named twice.
    """
    infos = find_participants(spec.participants, [one.info for one in live.nodes if one.info])
    there = await find_script(spec, live.client_at(infos[0].node_id), PATIENCE_S)
    job = job_ahead(spec, infos[0].name, project, there)
    question = msgspec.structs.replace(question_of(job, spec, there), looks_up_names=False)
    examiner = Examiner(
        clock,
        spec,
        is_loaded=False,
        patience_s=PATIENCE_S,
        network_patience_s=NETWORK_PATIENCE_S,
    )
    wanted = [
        AskedNode(info, live.client_at(info.node_id), participant)
        for info, participant in zip(infos, spec.participants, strict=True)
    ]
    return ToldBefore(examiner, job, await examiner.ask(wanted, question))


async def examine_before(infos: Sequence[NodeInfo], before: ToldBefore) -> tuple[Problem, ...]:
    """What may make the job slow, or end it later, and what could not be examined.

    Args:
        infos: of the participants, as they are for this job.
        before: from :func:`ask_before`.

    Raises:
        DoctorRefusedError: with the first cause for which it would fail, or hang, and the others.
    """
    told = before.told.with_infos(infos)
    notes = [unexamined(node, why) for node, why in told.silent.items()]
    try:
        paths = await before.examiner.try_ways(told)
    except TimeoutError:
        paths = PathsFound()
        notes.append(untried([one.name for one in told.nodes], NETWORK_PATIENCE_S))
    job = msgspec.structs.replace(before.job, head=infos[0].name)
    found = examine(Case(nodes=told.nodes, paths=paths, job=job))
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
