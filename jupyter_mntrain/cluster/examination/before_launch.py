"""Before a launch: what the doctor says of a job's participants, in as little time as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.examination.asking_facts import ask_facts
from jupyter_mntrain.cluster.examination.job_ahead import job_ahead, question_of
from jupyter_mntrain.cluster.examination.path_trials import PathTrials, ports_of
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.doctor.check import Case, Examined, JobAhead
from jupyter_mntrain.doctor.every import EVERY, examine
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import DoctorRefusedError, MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.paths import PathsFound
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.arrange import find_participants

PATIENCE_S = tunables.seconds("doctor.before_launch_s")
NETWORK_PATIENCE_S = tunables.seconds("doctor.network_before_launch_s")

TOLD = frozenset(check.id for check in EVERY if check.is_for_launch)


class ToldBefore(NamedTuple):
    """What is known before the ways between the nodes are tried.

    Args:
        nodes: by participant; ``None`` for one that did not tell within
            ``doctor.before_launch_s``. It is not judged: a launch asks it for what it needs anyway.
    """

    job: JobAhead
    nodes: tuple[Examined | None, ...]


async def ask_before(
    live: ClusterView, clock: Clock, spec: JobSpec, project: StagedProject | None = None
) -> ToldBefore:
    """Ask each participant for itself and the job's paths.

    Args:
        project: its files, if they are on this machine.

    Raises:
        RecipeError: the job's recipe is not valid.
        SpecError: a node is unknown, or named twice.
    """
    infos = find_participants(spec.participants, [one.info for one in live.nodes if one.info])
    job = job_ahead(spec, infos[0].name, project)
    question = msgspec.structs.replace(question_of(job, spec), looks_up_names=False)

    async def ask(info: NodeInfo, participant: Participant) -> Examined | None:
        client = live.client_at(info.node_id)
        if client is None:
            return None
        try:
            asked = ask_facts(client, info, question, clock, participant)
            found = await asyncio.wait_for(asked, PATIENCE_S)
        except (MntrainError, TimeoutError):
            return None
        return msgspec.structs.replace(found, given=spec.environment)

    return ToldBefore(job, tuple(await asyncio.gather(*map(ask, infos, spec.participants))))


async def examine_before(
    live: ClusterView,
    infos: Sequence[NodeInfo],
    spec: JobSpec,
    told: ToldBefore,
) -> tuple[Problem, ...]:
    """What may make the job slow, or end it later.

    Args:
        told: by :func:`ask_before`.

    Raises:
        DoctorRefusedError: with the first cause for which it would fail, or hang.
    """
    paths = await _paths(live, infos, spec)
    nodes = tuple(
        msgspec.structs.replace(one, info=info)
        for info, one in zip(infos, told.nodes, strict=True)
        if one is not None and one.facts is not None
    )
    job = msgspec.structs.replace(told.job, head=infos[0].name)
    found = examine(Case(nodes=nodes, paths=paths, job=job))
    for one in found:
        if one.problem and one.level == "stops":
            fix = f"{one.problem.fix}; or, if you know better, launch with --skip-doctor"
            raise DoctorRefusedError.of(msgspec.structs.replace(one.problem, fix=fix))
    return tuple(
        one.problem
        for one in found
        if one.problem is not None and one.level == "slows" and one.check in TOLD
    )


async def _paths(live: ClusterView, infos: Sequence[NodeInfo], spec: JobSpec) -> PathsFound:
    """The ways between the participants, without a load; nothing if that takes too long."""
    clients = {info.node_id: live.client_at(info.node_id) for info in infos}
    able = {node_id: client for node_id, client in clients.items() if client is not None}
    if len(able) < max(2, len(infos)):
        return PathsFound()
    trials = PathTrials(infos, able, ports_of(spec))
    wanted = [one.interface for one in spec.participants]
    try:
        return await asyncio.wait_for(trials.run(wanted, is_loaded=False), NETWORK_PATIENCE_S)
    except (MntrainError, TimeoutError):
        return PathsFound()
