"""Waiting, briefly, for what the cluster has yet to hear: nodes, jobs, samples.

In a notebook the cluster has been listening for long and none of this waits. A command line has
just begun to listen.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from jupyter_mntrain.model.errors import JobNotFoundError
from jupyter_mntrain.model.job import TERMINAL
from jupyter_mntrain.verbs.context import Context

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, Job, JobHistory, NodeView

DISCOVERY_S = 2.0
"""Every mDNS answer is in by then (warm browser 1.2 s, research C: D2), and an agent's hello."""

NOBODY_S = 3.0
"""When nobody at all has answered, a little longer."""

SAMPLES_S = 5.0
"""For the journals of a job to be read up to what the agents know."""

LOOK_EVERY_S = 0.05

T = TypeVar("T")


def reachable_nodes(context: Context, cluster: Cluster) -> tuple[NodeView, ...]:
    """All nodes, once discovery has had its time."""
    _until(context, cluster, lambda: None)
    return cluster.nodes()


def await_nodes(context: Context, cluster: Cluster, names: Collection[str]) -> None:
    """Return as soon as all of these are up, or when discovery has had its time.

    Args:
        names: node names; empty = whoever there is.
    """

    def all_up() -> bool | None:
        up = {node.name for node in cluster.nodes() if node.liveness == "up"}
        return True if names and up.issuperset(names) else None

    _until(context, cluster, all_up)


def find_job(context: Context, args: Namespace) -> Job:
    """The job named, or the newest one.

    Raises:
        JobNotFoundError: nobody reachable knows it.
    """
    cluster = context.cluster(args)
    if args.job:
        return named_job(context, cluster, args.job)
    if not _until(context, cluster, lambda: cluster.jobs() or None):
        raise JobNotFoundError(
            "there is no job on any node that answers",
            fix=f"see {context.program} nodes, or start one with {context.program} launch",
        )
    return cluster.job(cluster.jobs()[0].job_id)


def named_job(context: Context, cluster: Cluster, reference: str) -> Job:
    """The job with this id, or the only one whose id begins so.

    Raises:
        JobNotFoundError: nobody reachable knows it.
        SpecError: several begin so.
    """

    def known() -> Job | None:
        try:
            return cluster.job(reference)
        except JobNotFoundError:
            return None

    return _until(context, cluster, known) or cluster.job(reference)


def caught_up_history(context: Context, job: Job) -> JobHistory:
    """The history, read up to the step that the agents know each rank has finished."""
    deadline = context.clock() + SAMPLES_S
    while True:
        history = job.history()
        if is_caught_up(history) or context.clock() >= deadline:
            return history
        context.sleep(LOOK_EVERY_S)


def is_caught_up(history: JobHistory) -> bool:
    if history.view.state in TERMINAL:
        return history.is_complete
    for part in history.view.parts:
        if part.state == "unknown":
            continue  # it will not tell
        for rank in part.ranks:
            series = history.ranks.get(rank.rank)
            last = series.steps[-1].step if series and series.steps else 0
            if rank.step is not None and last < rank.step:
                return False
    return True


def _until(context: Context, cluster: Cluster, look: Callable[[], T | None]) -> T | None:
    """What ``look`` finds, or ``None`` when discovery has had its time without it."""
    age = context.clusters.age_s(cluster)
    started = context.clock() - age
    while True:
        found = look()
        if found is not None:
            return found
        nodes = cluster.nodes()
        is_settled = nodes and all(node.liveness != "connecting" for node in nodes)
        if context.clock() >= started + (DISCOVERY_S if is_settled else NOBODY_S):
            return look()
        context.sleep(LOOK_EVERY_S)
