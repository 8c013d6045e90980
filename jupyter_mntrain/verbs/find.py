"""Find: looks up nodes and jobs by name; a new command waits briefly until they are discovered.

In a notebook, which has been listening for a while, nothing waits.
"""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.errors import JobNotFoundError, not_answered
from jupyter_mntrain.model.records.checkpoint import BEST, MOST_STEPS, WantedStep
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.verbs.context import Context

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, Job, JobHistory, NodeView

SAMPLES_S = 5.0
"""Timeout for reading a job's journals up to the newest step."""
RANK = bounded_int(0, 1_000_000)


def wanted_step(text: str) -> WantedStep:
    """Convert a word for argparse to a checkpoint's step, or ``best``."""
    if text == BEST:
        return BEST
    try:
        return bounded_int(1, MOST_STEPS)(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}, nor {BEST}") from None


def joined_cluster(context: Context, args: Namespace) -> Cluster:
    """Return the cluster, for verbs that need this user to have its keys.

    Raises:
        TrustError: this user has none, or they cannot be used.
    """
    cluster = context.cluster(args)
    cluster.membership.required()
    return cluster


def reachable_nodes(context: Context, cluster: Cluster) -> tuple[NodeView, ...]:
    """Return all nodes, after the time that discovery needs."""
    with context.screen.progress() as progress:
        return cluster.nodes_when_ready(progress=progress)


def named_job(context: Context, args: Namespace, text: str) -> Job:
    """Return the job whose id this is, or begins with this.

    Raises:
        JobNotFoundError: no reachable node knows it.
    """
    with context.screen.progress() as progress:
        return joined_cluster(context, args).job(text, progress=progress)


def node_option(parser: Parser, help: str) -> None:  # noqa: A002 - argparse's name
    parser.option("--node", "-n", metavar="NODE", completes="node", help=help)


def rank_option(parser: Parser, help: str) -> None:  # noqa: A002 - argparse's name
    parser.option("--rank", "-r", type=RANK, metavar="RANK", help=help)


def job_argument(parser: Parser) -> None:
    parser.argument(
        "job",
        nargs="?",
        metavar="JOB",
        completes="job",
        help="its id, or how it begins; default: the newest",
    )


def all_jobs(context: Context, args: Namespace, **which: Any) -> tuple[JobView, ...]:
    """Return the jobs of all nodes, newest first: the first node to answer may lack the newest.

    Args:
        which: for :meth:`jupyter_mntrain.Cluster.jobs`.
    """
    cluster = joined_cluster(context, args)
    reachable_nodes(context, cluster)
    return cluster.jobs(**which)


def refuse_awaited(cluster: Cluster, meant: str) -> None:
    """Refuse to judge by the nodes that have answered while others have not yet.

    Raises:
        NodeError: some have not answered yet.
    """
    if awaited := cluster.awaited():
        raise not_answered(awaited, meant)


def find_job(context: Context, args: Namespace) -> Job:
    """Return the named job, or the newest one.

    Raises:
        JobNotFoundError: no reachable node knows it.
    """
    if args.job:
        return named_job(context, args, args.job)
    jobs = all_jobs(context, args)
    if not jobs:
        refuse_awaited(context.cluster(args), "the newest job is not known")
        raise JobNotFoundError(
            "the reachable nodes have no jobs",
            fix=f"see {context.program} nodes, or start one with {context.program} launch",
        )
    return context.cluster(args).job(newest(jobs).job_id)


def newest(jobs: Sequence[JobView]) -> JobView:
    """Return the newest job that a person launched, else the newest one; there is at least one.

    What generate, chat, bench and others start next to it is no run to look at, unless there is no
    other.
    """
    return next((one for one in jobs if not one.spec.runs_beside), jobs[0])


def caught_up_history(context: Context, job: Job) -> JobHistory:
    """Return the history, up to the last step that the agents have reported for each rank."""
    with context.screen.progress() as progress:
        return job.catch_up(SAMPLES_S, progress=progress)
