"""Remembered allocations: finds the cluster of a job that runs in an allocation."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.model.environment import CLUSTER_VARIABLE
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from jupyter_mntrain.verbs.verb import Context, Verb


def in_its_allocation(context: Context, verb: Verb, args: Namespace) -> Namespace:
    """Return the arguments of a command with the cluster of the allocation that they mean.

    That is the allocation of the named job, or the one with that name, or that of the newest
    launch. A cluster that the user names stays.

    The name of an allocation stands for the newest job in it.
    """
    if not hasattr(args, "cluster") or args.cluster or context.environment.get(CLUSTER_VARIABLE):
        return args
    note = _meant(verb, args)
    if note is None:
        return args
    meant = {"cluster": note.cluster}
    if note.jobs and getattr(args, "job", None) == note.cluster:
        meant["job"] = note.jobs[-1]
    return Namespace(**{**vars(args), **meant})


def remember_launch(cluster: str, job: str) -> None:
    """Remember that a job was launched in a cluster."""
    AllocationBook().launched(cluster, job)


def _meant(verb: Verb, args: Namespace) -> AllocationNote | None:
    jobs = getattr(args, "jobs", None)
    if not (jobs or hasattr(args, "job") or verb.shows_cluster):
        return None
    book = AllocationBook()
    if jobs:
        return book.of_job(jobs[0])
    if hasattr(args, "job"):
        if not args.job:
            return book.of_last_launch()
        return book.of_job(args.job) or book.of_cluster(args.job)
    return book.of_last_launch() if verb.shows_cluster and not book.has_other_clusters else None
