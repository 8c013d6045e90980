"""Verb: base class of all verbs, what they run with and return, and how they find jobs.

A new command waits briefly until nodes are discovered. In a notebook, which has been listening for
a while, nothing waits.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from rich.console import RenderableType

from jupyter_mntrain.cluster.default import default_cluster
from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import ALLOCATION_VARIABLE
from jupyter_mntrain.model.errors import JobNotFoundError, SpecError, not_answered
from jupyter_mntrain.model.records.checkpoint import BEST, MOST_STEPS, WantedStep
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.whereabouts import current_folder, in_home
from jupyter_mntrain.show.screen import Screen

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, Job, JobHistory, NodeView


class Clusters:
    """Keeps one open :class:`Cluster` per name and typed-in addresses.

    Args:
        connect: opens a cluster; :class:`jupyter_mntrain.cluster.Cluster` itself.
    """

    def __init__(self, connect: Callable[[str, tuple[str, ...]], Cluster]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._open: dict[tuple[str, tuple[str, ...]], Cluster] = {}

    def get(self, name: str, addresses: tuple[str, ...]) -> Cluster:
        """Return the open cluster; open it if necessary."""
        key = (name, tuple(sorted(set(addresses))))
        with self._lock:
            if key not in self._open:
                self._open[key] = self._connect(*key)
            return self._open[key]

    def opened(self) -> tuple[Cluster, ...]:
        """Return the clusters that are open already, for completion."""
        with self._lock:
            return tuple(self._open.values())

    def close(self) -> None:
        with self._lock:
            clusters = tuple(self._open.values())
            self._open.clear()
        for cluster in clusters:
            cluster.close()


def connect(name: str, addresses: tuple[str, ...]) -> Cluster:
    from jupyter_mntrain.cluster import Cluster
    from jupyter_mntrain.sources.allocation_book import follow_remembered

    cluster = Cluster(name, addresses=addresses)
    follow_remembered(cluster)
    return cluster


@dataclass(frozen=True, slots=True)
class Context:
    """What a verb runs with.

    Args:
        program: the word that users type, ``mntrain`` or ``%mntrain``: for hints.
        cell: the cell below ``%%mntrain``.
        arguments: the words after ``--``.
        clock: Unix time.
        sleep: waits this many seconds.
    """

    clusters: Clusters
    screen: Screen
    program: str = "mntrain"
    cell: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    directory: Path = field(default_factory=current_folder)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def cluster(self, args: Namespace) -> Cluster:
        """Return the cluster named by the options, else by the environment."""
        name, agents = default_cluster(self.environment)
        cluster = self.clusters.get(args.cluster or name, tuple(args.agent or agents))
        told = getattr(args, "allocation", None) or self.environment.get(ALLOCATION_VARIABLE)
        if told:
            directory = self.directory / in_home(told)
            if not directory.is_dir():
                raise SpecError(
                    f"{told}: no such allocation directory",
                    fix="name the one that its agents write to, on a disk that is shared with them",
                )
            cluster.discovery.follow(directory)
        return cluster


class Outcome(Record, frozen=True):
    """The result of a verb, for people and for programs.

    Args:
        renderable: for people.
        data: for programs, convertible to JSON; ``--json`` prints it.
        exit_code: of the command line: 0 done, 1 the job failed or was canceled, 130 detached
            by Ctrl-C, 124 not over after ``--timeout``; errors carry their own.
        job: the job concerned, if there is one.
        path: of what it brought here; a notebook's ``%mntrain`` returns it.
        picture: a PNG to show, below what is said.
        picture_text: instead of it, where no pictures are shown.
    """

    renderable: RenderableType = ""
    data: Any = None
    exit_code: int = 0
    job: Job | None = None
    path: Path | None = None
    picture: bytes | None = None
    picture_text: str = ""


class Verb(ABC):
    """A command, for both the magic and the command line."""

    name: str
    help: str
    """One line, without a full stop. Those of a verb are in the table of verbs, as ``name`` is;
    its actions have their own."""

    takes_cell: ClassVar[bool] = False
    """Whether ``%%mntrain VERB`` accepts a cell."""

    takes_arguments: ClassVar[bool] = False
    """Whether it passes the words after ``--`` to a script. With a cell it always does."""

    uses_cluster: ClassVar[bool] = True
    """Whether it takes ``--cluster`` and ``--agent``."""

    shows_cluster: ClassVar[bool] = False
    """Whether it shows a cluster as a whole: for who has none but of allocations, the newest."""

    terminal_only: ClassVar[str] = ""
    """Why it cannot run in a notebook; empty if it can."""

    usage: ClassVar[str] = ""
    """The command to type in a terminal instead."""

    explains: ClassVar[Sequence[str]] = ()
    """Figures that it shows, by their words in ``figures.toml``: its help says what they are."""

    actions: ClassVar[Mapping[str, Verb]] = {}
    """The verbs of a group, by name; empty for a verb that runs itself."""

    def add_arguments(self, parser: Parser) -> None:  # noqa: B027 - some take nothing
        """Add this verb's arguments; the common options are added elsewhere."""

    def add_chosen_arguments(self, parser: Parser, words: Sequence[str]) -> None:  # noqa: B027 - few
        """Add arguments that only some of the verb's commands take.

        Args:
            words: of the command, as far as they are known.
        """

    @abstractmethod
    def run(self, context: Context, args: Namespace) -> Outcome:
        """Run the verb.

        Raises:
            MntrainError: it failed; nothing is left half done.
        """


class VerbGroup(Verb):
    """Several verbs under one name: ``mntrain NAME ACTION``."""

    def run(self, context: Context, args: Namespace) -> NoReturn:  # noqa: ARG002 - never called
        raise AssertionError(f"{self.name} needs one of its actions")


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
