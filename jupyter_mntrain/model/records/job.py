"""Job records: an immutable spec plus its attempts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import Record, UserRecord
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.sites import Site
from jupyter_mntrain.model.ids import JobId, NodeId, Rank

SPEC_VERSION = 1

JobState = Literal[
    "pending", "starting", "running", "stopping", "succeeded", "failed", "canceled", "unknown"
]
"""``unknown`` is what a part of a job is when its node is not answering: never terminal."""

TERMINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "canceled"})


class Participant(UserRecord, frozen=True):
    """A node chosen for a job. Its place in ``JobSpec.participants`` is its node rank.

    Args:
        node: the node's name or id.
        nproc: processes (ranks) on this node.
        gpus: device indices, one per process; empty on a node without GPUs.
        interface: network interface the ranks talk over; ``None`` = chosen at launch.
    """

    node: str
    nproc: int = 1
    gpus: tuple[int, ...] = ()
    interface: str | None = None


class JobSpec(UserRecord, frozen=True):
    """All that is needed to start a job, here or anywhere else. Immutable and versioned.

    Args:
        entry: what every rank runs: ``("-m", "jupyter_mntrain.train", "recipe.toml")`` or
            ``("script.py", "--flag")``. Paths are relative to the attempt's working directory,
            where ``files`` are written.
        participants: in node-rank order; the first one is the head.
        name: for people.
        files: small files that go with the job, by relative path: recipe, script.
        environment: added to every rank's environment, wins over what we set.
        torchrun_arguments: passed on to torchrun as they are, before the entry.
        port: rendezvous port on the head; ``None`` = a free one.
        link_capacity_bytes_per_s: the user's own denominator for link utilization.
        max_restarts: further attempts after one that failed; each goes on from the newest
            checkpoint that is whole.
        on_stall: what becomes of an attempt without progress. ``abort`` ends it as failed.
        priority: of a job that waits in the queue: the higher, the sooner.
        min_nodes: go on without nodes that stay silent, with at least this many; ``None`` = wait
            for all of them. Without the head only if it is more than half of them: or two parts of
            a network could both go on.
        mixed_versions: start although torch or the like is not the same on all nodes.
    """

    entry: tuple[str, ...]
    participants: tuple[Participant, ...]
    name: str = "job"
    files: dict[str, str] = {}
    environment: dict[str, str] = {}
    torchrun_arguments: tuple[str, ...] = ()
    port: int | None = None
    link_capacity_bytes_per_s: float | None = None
    max_restarts: Annotated[int, Meta(ge=0, le=1000)] = 0
    on_stall: Literal["report", "abort"] = "report"
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    min_nodes: Annotated[int, Meta(ge=1)] | None = None
    mixed_versions: bool = False
    version: int = SPEC_VERSION

    @property
    def world_size(self) -> int:
        return sum(p.nproc for p in self.participants)


class Placement(Record, frozen=True):
    """A participant as it was granted: which node, which ranks, which address and devices."""

    node_id: NodeId
    node: str
    node_rank: int
    first_rank: Rank
    nproc: int
    gpus: tuple[int, ...]
    interface: str
    address: str
    """IPv4 address of ``interface``, without prefix length."""
    agent: tuple[str, ...]
    """``host:port`` of the agent, so that participants can reach each other."""
    rdma_devices: tuple[str, ...] = ()

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.nproc)


class Attempt(Record, frozen=True):
    """One all-or-nothing start of torchrun on every participant.

    Number 0 is none yet: the job waits in the queue.
    """

    number: int
    placements: tuple[Placement, ...]
    master_address: str
    master_port: int
    submitted_s: float

    @property
    def head(self) -> Placement:
        """The participant that coordinates the job."""
        return self.placements[0]

    @property
    def world_size(self) -> int:
        """Ranks of this attempt: fewer than the spec's once it goes on without a node."""
        return sum(placement.nproc for placement in self.placements)


class RankStatus(Record, frozen=True):
    """A rank as its node knows it.

    ``exit_code`` is negative for a signal, as in :mod:`subprocess`. ``done_s`` is the Unix time at
    which it said that it has done all it was to do.
    """

    rank: Rank
    state: JobState
    pid: int | None = None
    step: int | None = None
    exit_code: int | None = None
    problem: Problem | None = None
    done_s: float | None = None


class Leftover(Record, frozen=True):
    """A process of the job that would not die, named instead of hidden."""

    pid: int
    command: str
    status: str


Doing = Literal["stopped", "in the kernel", "waiting for others", "busy", "not known"]
"""What a rank that makes no progress is at: stopped by a signal; in an uninterruptible call; in a
collective or a receive, as whoever waits for somebody is; in code of its own."""


class RankStack(Record, frozen=True):
    """What a rank was at when its part stalled.

    Args:
        where: the innermost line of its own code in the main thread, like ``load (data.py:12)``.
        site: the place in torch.distributed where it waits, if it does.
        text: stacks of all its threads, as Python tells them; empty if it did not.
    """

    rank: Rank
    doing: Doing
    pid: int | None = None
    where: str = ""
    site: Site | None = None
    text: str = ""


Trouble = Literal["down", "no connection", "refused", "stuck"]
"""What is wrong with a link: our own interface is down; nobody answers a connection; somebody
refuses it; it opens, and large packets do not get through."""


class LinkTry(Record, frozen=True):
    """Link try: what came of connecting to another participant of a part that stalled.

    Args:
        interface: of this node, that its ranks talk over.
        trouble: ``None`` if data got through.
        peer: the other node; empty where our own interface is down.
    """

    interface: str
    trouble: Trouble | None
    peer: str = ""


class Stall(Record, frozen=True):
    """No rank of a part has got on for longer than it should have taken.

    Args:
        since_s: Unix time of the last progress.
        limit_s: how long was waited before it was called a stall.
        step: the last step that was finished here.
        links: a try for each other participant whose agent answered; ``None`` = not tried yet.
    """

    since_s: float
    limit_s: float
    step: int | None
    stacks: tuple[RankStack, ...]
    links: tuple[LinkTry, ...] | None = None


class PartStatus(Record, frozen=True):
    """One node's part of an attempt. Every participant keeps its own on disk."""

    node_id: NodeId
    node: str
    state: JobState
    ranks: tuple[RankStatus, ...] = ()
    exit_code: int | None = None
    problem: Problem | None = None
    """Why it failed; its node is named where that is not the part's own."""
    leftovers: tuple[Leftover, ...] = ()
    started_s: float | None = None
    ended_s: float | None = None
    stop_reason: str | None = None
    stall: Stall | None = None
    saves: bool = False
    """Whether its ranks save a checkpoint when they are asked to."""
    saved_step: int | None = None
    """Of the newest checkpoint of this attempt that is whole."""


class Restart(Record, frozen=True):
    """The attempt to come, as the head plans it.

    Args:
        at_s: Unix time before which it does not begin.
        waits_for: why it has not begun although it is time: a node that is silent, a busy GPU.
    """

    number: int
    at_s: float
    waits_for: Problem | None = None


class JobRecord(Record, frozen=True):
    """What every participant keeps of a job: the whole spec, the attempt, its own part.

    Args:
        members: every node that took part in an attempt; a later one may be without some.
        was_queued: its head starts it, and not the driver that left it here.
        restart: on the head, while another attempt is to come.
        is_over: on the head of a job with restarts: none will come any more.
    """

    job_id: JobId
    spec: JobSpec
    attempt: Attempt
    part: PartStatus
    submitted_by: str = ""
    members: tuple[NodeId, ...] = ()
    was_queued: bool = False
    restart: Restart | None = None
    is_over: bool = False

    @property
    def is_queued(self) -> bool:
        """Whether no attempt has begun yet."""
        return self.attempt.number == 0


class JobView(Record, frozen=True):
    """A job as its participants together tell it. Built by :func:`model.rollup.roll_up`."""

    job_id: JobId
    spec: JobSpec
    attempt: Attempt
    state: JobState
    parts: tuple[PartStatus, ...]
    problem: Problem | None = None
    """Why it failed, and on which node."""
    submitted_by: str = ""
    stall: Problem | None = None
    """Why it makes no progress, since its ``time_s``."""
    restart: Restart | None = None

    @property
    def saved_step(self) -> int | None:
        """Of the newest checkpoint; no part tells of one before all ranks have written theirs."""
        return max((part.saved_step or 0 for part in self.parts), default=0) or None
