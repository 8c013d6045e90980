"""Asking: asks the agents of a job's participants for their state and interpreters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from jupyter_mntrain.cluster.agents.client import AgentClient, ask_each
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.node_search import refuse_unusable
from jupyter_mntrain.launch.gang_start import all_or_error, workplace_of
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.model.records.node import FoundWorkplace, NodeInfo
from jupyter_mntrain.plan.resolved import ResolvedJob

A = TypeVar("A")
B = TypeVar("B")


async def both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Run two coroutines at once. If one fails, the other is canceled before the error is raised,
    so that no node is asked for a launch that was refused.
    """
    one, other = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await asyncio.gather(one, other)
    finally:
        one.cancel()
        other.cancel()
        await asyncio.wait((one, other))


async def ask_participants(
    live: ClusterView, nodes: Sequence[NodeInfo], progress: Progress = SILENT
) -> tuple[NodeInfo, ...]:
    """Ask each participant for its current state; the live view only supplies addresses.

    Raises:
        NodeError: a node does not answer, or two machines claim its id.
    """
    clients = _clients(live, nodes)
    asked = Count(progress, "asking the nodes", len(clients))
    return tuple(all_or_error(await ask_each(clients, AgentClient.node_info, asked)))


async def find_workplaces(
    live: ClusterView, job: ResolvedJob, progress: Progress = SILENT
) -> list[FoundWorkplace]:
    """Ask each participant for the interpreter and folder of a job; empty if the agents' own is
    used.

    Raises:
        NodeError: as for :func:`ask_participants`.
    """
    asked = workplace_of(job.spec)
    if asked is None:
        return []
    clients = _clients(live, job.nodes)
    told = Count(progress, "looking for what the job runs in", len(clients))
    return all_or_error(await ask_each(clients, lambda one: one.workplace(asked), told))


def _clients(live: ClusterView, nodes: Sequence[NodeInfo]) -> list[AgentClient]:
    by_id = {view.info.node_id: view for view in live.nodes if view.info}
    for node in nodes:
        refuse_unusable(by_id[node.node_id])
    client_at = live.desk.client
    return [client_at(by_id[n.node_id].address, n.node_id, n.name) for n in nodes]
