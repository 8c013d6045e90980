"""Job records: an immutable spec plus its attempts, what it goes on from, and what hurt it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from jupyter_mntrain.model._record import Record, UserRecord
from jupyter_mntrain.model.failure.calls import GroupCalls
from jupyter_mntrain.model.failure.kinds import SLOWNESS
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.sites import Site
from jupyter_mntrain.model.failure.verdict import Verdict
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.loss_line import LossLine
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.evidence import Evidence
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.model.records.pressure import Pressure
from jupyter_mntrain.model.text.label import JobLabel


class Origin(UserRecord, frozen=True):
    """The checkpoint that a resumed job continues from, as the driver found it.

    Args:
        job: the job that was resumed; ``None`` = none: a launch began with the checkpoint at
            ``path``, whichever run saved it.
        run: the run that has the checkpoint, named by its first job; ``None`` as for ``job``.
        is_branch: the job begins a run of its own with that checkpoint; otherwise it continues
            ``run``.
        step: finished steps of the checkpoint; ``None`` for a script whose checkpoints are its own.
        path: of a branch: directory that has the checkpoint on every node; ``None`` = that of
            ``run``.
        attempts: numbers that attempts of the run had, at most: its own follow them.
        world_size: ranks of the run's first attempt.
        reached: the last step that any attempt before finished.
    """

    job: JobId | None = None
    run: JobId | None = None
    is_branch: bool = False
    step: int | None = None
    path: str | None = None
    attempts: Annotated[int, Meta(ge=0)] = 0
    world_size: int | None = None
    reached: int | None = None

    @property
    def place(self) -> str | None:
        """The checkpoint that a person named by its directory; ``None`` if they named a run."""
        if not self.is_branch or self.path is None or self.step is None:
            return self.path if self.is_branch else None
        return f"{self.path}/step-{self.step:08d}"


class ChangedValue(Record, frozen=True):
    """A setting of the recipe before and after a change, in TOML without quotes. ``before`` is
    empty if it had no value.
    """

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before or '–'} → {self.after}"


class RunningChange(Record, frozen=True):
    """Settings that somebody changed while a job ran, as its ranks report them.

    Args:
        key: of the request.
        step: finished steps when all ranks took it.
        time_s: Unix time.
        by: user and host, for people.
        total_steps: that the job is to make since then.
        refused: why the ranks did not take it.
    """

    key: str
    step: int
    time_s: float
    by: str = ""
    values: tuple[ChangedValue, ...] = ()
    total_steps: int | None = None
    refused: Problem | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


class Earlier(Record, frozen=True):
    """How far the earlier attempts of a run came, as known to the head or driver that starts the
    next.

    Args:
        world_size: ranks of the first attempt.
        step: the last step that any of them finished.
        attempt: the attempt that finished it; ``None`` = one of an earlier job.
        saved_step: step of the newest complete checkpoint.
        changes: of settings, while earlier attempts of the job ran, oldest first.
        failures: why the last attempts of the job failed, oldest first.
        is_early: whether the last of them did so before any progress.
        begun_s: Unix time at which the first attempt of the job started.
    """

    world_size: int
    step: int | None = None
    attempt: int | None = None
    saved_step: int | None = None
    changes: tuple[RunningChange, ...] = ()
    failures: tuple[Problem, ...] = ()
    is_early: bool = False
    begun_s: float | None = None


MOST_KEPT = 40
"""Slowdowns, stalls and warnings that a job's record keeps: newer ones, and those not over."""


class Episode(Record, frozen=True):
    """A time in which a job was slower than before, stalled, or had a warning.

    Args:
        problem: why; it began at its ``time_s``.
        label: a few words for a chart: ``node2 r1 3.1x slower``.
        end_s: Unix time; ``None`` = it still is.
    """

    problem: Problem
    label: str
    end_s: float | None = None
    is_stall: bool = False

    @property
    def is_slowdown(self) -> bool:
        """Whether the job ran more slowly than before."""
        return not self.is_stall and self.problem.kind in SLOWNESS

    def ended(self, time_s: float) -> Episode:
        """Return the episode with its end at ``time_s``, unless it had ended before."""
        return self if self.end_s else msgspec.structs.replace(self, end_s=time_s)


def newest(episodes: Iterable[Episode]) -> tuple[Episode, ...]:
    """Return the episodes that a record keeps: the current ones, and the latest of the others."""
    kept = sorted(episodes, key=lambda one: one.end_s or float("inf"))[-MOST_KEPT:]
    return tuple(sorted(kept, key=lambda one: one.problem.time_s or 0.0))


_KERNEL_STATES = {
    "D": "uninterruptible",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
}

NAMED_PROCESSES = 3
"""Most that a sentence names: more would hide what it says."""


class Leftover(Record, frozen=True):
    """A process of the job that has not ended, or could not be killed.

    Args:
        status: its state as the kernel names it, like ``D (disk sleep)``.
        waits_in: function of the kernel that an uninterruptible one waits in, if known.
    """

    pid: int
    command: str
    status: str
    waits_in: str = ""

    def __str__(self) -> str:
        """Describe the process, like ``pid 123 python (uninterruptible, nfs_wait)``."""
        name = self.command.partition(" ")[0].rpartition("/")[2]
        state = _KERNEL_STATES.get(self.status[:2].strip(), self.status)
        facts = ", ".join(fact for fact in (state, self.waits_in) if fact)
        return " ".join(word for word in (f"pid {self.pid}", name, f"({facts})") if word)


Doing = Literal["stopped", "in the kernel", "waiting for others", "busy", "not known"]
"""State of a rank that makes no progress: stopped by a signal or a frozen control group; in an
uninterruptible system call; in a collective or a receive; in its own code."""


class RankStack(Record, frozen=True):
    """The stacks of a rank when its part stalled.

    Args:
        where: innermost line of the script's own code in the main thread: ``load (data.py:12)``;
            of a rank that is stopped, the control group that is frozen, if that is why.
        site: place in torch.distributed where it waits, if it does.
        text: stacks of all its threads from faulthandler; empty if it did not answer.
        calls: its last collectives, by process group; empty if torch records none.
    """

    rank: Rank
    doing: Doing
    pid: int | None = None
    where: str = ""
    site: Site | None = None
    text: str = ""
    calls: tuple[GroupCalls, ...] = ()


class Stall(Record, frozen=True):
    """Stall: no rank of a part has made progress for too long.

    Args:
        since_s: Unix time of the last progress.
        seen_s: Unix time of the stacks.
        limit_s: seconds without progress that count as a stall.
        step: last finished step on this node.
        is_reported: its ranks report progress; otherwise they exchange nothing with other nodes.
    """

    since_s: float
    limit_s: float
    step: int | None
    stacks: tuple[RankStack, ...]
    is_reported: bool = True
    seen_s: float | None = None


SPEC_VERSION = 1

TRAINER = "jupyter_mntrain.train"
"""Module of the built-in trainer."""
SESSION = "jupyter_mntrain.session"
"""Module that the ranks of a session run."""
SHOWS_VIEWERS = "--viewers"
"""Its flag: read-only drivers may read what cells print."""

PYTHON = (".py", ".pyw")
"""Ends of scripts' names. torchrun takes any."""
NO_PYTHON = frozenset({"--no-python", "--no_python"})
"""Options of torchrun with which ranks run a program by itself, and not Python."""

JobState = Literal[
    "pending", "starting", "running", "stopping", "succeeded", "failed", "canceled", "unknown"
]
"""``unknown`` is the state of a part whose node does not answer; it is never terminal."""

TERMINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "canceled"})


class Participant(UserRecord, frozen=True):
    """A node chosen for a job. Its index in ``JobSpec.participants`` is its node rank.

    Args:
        node: the node's name or id.
        nproc: processes (ranks) on this node.
        gpus: device indices, one per process; empty on a node without GPUs.
        interface: network interface of the ranks; ``None`` = chosen at launch.
        shares_gpus: a person named its GPUs: they are used also while somebody else computes there.
    """

    node: str
    nproc: int = 1
    gpus: tuple[int, ...] = ()
    interface: str | None = None
    shares_gpus: bool = False


SetIn = Literal["recipe", "panel", "option"]
"""Where a setting was chosen, if not by ``--set``; ``recipe``: there, and only spelled out."""


class JobSpec(UserRecord, frozen=True):
    """Job spec: everything needed to start a job, on any cluster. Immutable and versioned.

    Args:
        entry: what every rank runs: ``("-m", "jupyter_mntrain.train", "recipe.toml")`` or
            ``("script.py", "--flag")``; with torchrun's ``--no-python``, a program: one with a
            ``/``, or on the nodes' ``PATH``. Paths are relative to the attempt's working directory,
            where ``files`` are written.
        participants: in node-rank order; the first is the head.
        name: for people.
        files: small files that are sent with the job, by relative path: recipe, script.
        project, workdir: SHA-256 of the tree of its other files; or a folder that the nodes share.
        python: interpreter of the ranks on every node: its path, ``conda:NAME`` or ``uv:DIR``;
            ``None`` = the agent's.
        environment: added to every rank's environment; overrides mntrain's own variables.
        from_environment: names of variables whose values the driver took, or will take, from its
            own environment. They are never shown or exported.
        torchrun_arguments: passed to torchrun unchanged, before the entry.
        port: rendezvous port on the head; ``None`` = any free one.
        link_capacity_bytes_per_s: overrides the capacity that link utilization is relative to.
        max_restarts: attempts after one that failed, each from the newest complete checkpoint.
        on_stall: what to do with an attempt without progress; ``abort`` ends it as failed.
        on_nan: what to do once the loss is NaN or infinite; ``stop`` ends the job as failed.
            ``None`` = as the recipe says; a script goes on.
        priority: in the queue; higher starts sooner.
        min_nodes: on restart, continue without unreachable nodes while at least this many remain;
            ``None`` = wait for all. To survive loss of the head it must be a majority, or both
            halves of a network could continue.
        queue_limit_s, lost_limit_s: seconds that it waits in the queue, and for a silent node;
            ``None`` = it waits on.
        mixed_versions: start even if versions of torch and the like differ between nodes.
        session: job of a session whose ranks' GPUs it may use, and whose forkserver: its processes
            need not import torch. Where that has ended, they do.
        origin: what a resumed job goes on from; ``None`` = it starts over, in its own run.
        set_in: where settings were chosen, by ``section.field``; the others in ``entry`` by --set.
        chosen: likewise what the nodes' GPUs decide in place of ``auto``, in TOML without quotes.
    """

    entry: tuple[str, ...]
    participants: tuple[Participant, ...]
    name: str = "job"
    files: dict[str, str] = {}
    project: str | None = None
    workdir: str | None = None
    python: str | None = None
    environment: dict[str, str] = {}
    from_environment: tuple[str, ...] = ()
    torchrun_arguments: tuple[str, ...] = ()
    port: int | None = None
    link_capacity_bytes_per_s: float | None = None
    max_restarts: Annotated[int, Meta(ge=0, le=1000)] = 0
    on_stall: Literal["report", "abort"] = "report"
    on_nan: Literal["stop", "report"] | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    min_nodes: Annotated[int, Meta(ge=1)] | None = None
    queue_limit_s: Annotated[float, Meta(gt=0)] | None = None
    lost_limit_s: Annotated[float, Meta(gt=0)] | None = None
    mixed_versions: bool = False
    session: JobId | None = None
    origin: Origin | None = None
    set_in: dict[str, SetIn] = {}
    chosen: dict[str, str] = {}
    version: int = SPEC_VERSION

    @property
    def world_size(self) -> int:
        return sum(p.nproc for p in self.participants)

    @property
    def runs_trainer(self) -> bool:
        """Whether the job is a recipe for the built-in trainer, not a script."""
        return self.entry[:2] == ("-m", TRAINER)

    @property
    def is_session(self) -> bool:
        """Whether its ranks stay and run cells."""
        return self.entry[:2] == ("-m", SESSION)

    @property
    def hides_output(self) -> bool:
        """Whether only drivers that may run cells read what its ranks print."""
        return self.is_session and SHOWS_VIEWERS not in self.entry

    @property
    def runs_program(self) -> bool:
        """Whether its entry is an executable with arguments, which torchrun runs directly."""
        return bool(NO_PYTHON.intersection(self.torchrun_arguments))

    @property
    def needs_package(self) -> bool:
        """Whether it runs a program of this package: the trainer or another one."""
        return self.entry[:1] == ("-m",) and self.entry[1].startswith("jupyter_mntrain.")

    @property
    def runs_beside(self) -> bool:
        """Whether it runs a program of this package other than the trainer, such as generate."""
        return self.needs_package and not self.runs_trainer

    def run_of(self, job_id: JobId) -> JobId:
        """Return the run of a job with this spec."""
        origin = self.origin
        return job_id if origin is None or origin.is_branch else origin.run or job_id

    def run_attempt(self, number: int) -> int:
        """Return an attempt's number within the run, for a job with this spec."""
        return number + (self.origin.attempts if self.origin else 0)


class Placement(Record, frozen=True):
    """A participant as granted: its node, ranks, IPv4 address on ``interface`` and devices."""

    node_id: NodeId
    node: str
    node_rank: int
    first_rank: Rank
    nproc: int
    gpus: tuple[int, ...]
    interface: str
    address: str
    agent: tuple[str, ...]
    """``host:port`` addresses of the agent, for the other participants."""
    rdma_devices: tuple[str, ...] = ()
    rdma_gid_index: int | None = None
    shares_gpus: bool = False

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.nproc)


class Attempt(Record, frozen=True):
    """One all-or-nothing start of torchrun on every participant.

    Number 0 means that the job waits in the queue. ``earlier`` is ``None`` before a restart.
    ``plan`` is what was predicted of it before it began: a restart on fewer nodes has none.
    """

    number: int
    placements: tuple[Placement, ...]
    master_address: str
    master_port: int
    submitted_s: float
    earlier: Earlier | None = None
    plan: Plan | None = None

    @property
    def head(self) -> Placement:
        """The participant that coordinates the job."""
        return self.placements[0]

    @property
    def world_size(self) -> int:
        """The number of ranks of this attempt: fewer than the spec's once it continues without a
        node.
        """
        return sum(placement.nproc for placement in self.placements)


class RankStatus(Record, frozen=True):
    """The state of a rank, as its node knows it.

    ``exit_code`` is negative for a signal, as in :mod:`subprocess`. ``done_s`` is the Unix time at
    which the rank reached its normal end, ``ended_s`` that at which its process was missed first.
    ``kill_reason`` is set if somebody had it killed. ``group_size`` is the number of ranks in its
    process group: 1 = only itself; 0 = it never connected to another rank; ``None`` = not known.
    ``own_torchrun`` is the script that a torchrun below it starts, if there is one.
    ``killed_in`` is set if it did not end within a stop's grace: where it was then, like
    ``save (train.py:5)``; empty if it did not tell.
    """

    rank: Rank
    state: JobState
    pid: int | None = None
    step: int | None = None
    exit_code: int | None = None
    problem: Problem | None = None
    done_s: float | None = None
    group_size: int | None = None
    ended_s: float | None = None
    kill_reason: str = ""
    killed_in: str | None = None
    own_torchrun: str = ""


class PartStatus(Record, frozen=True):
    """One node's part of an attempt. Every participant stores its own on disk."""

    node_id: NodeId
    node: str
    state: JobState
    ranks: tuple[RankStatus, ...] = ()
    exit_code: int | None = None
    problem: Problem | None = None
    """Why it failed; its node is set only if it is not the part's own."""
    leftovers: tuple[Leftover, ...] = ()  # processes that could not be killed
    waits_for: tuple[Leftover, ...] = ()  # while it stops: its processes that have not ended yet
    state_problem: Problem | None = None  # while it runs: why its node cannot store its record
    started_s: float | None = None
    ended_s: float | None = None
    stop_reason: str | None = None
    stall: Stall | None = None
    stopped_s: float | None = None
    """Unix time at which a stop was requested: ends after it explain nothing."""
    stopped_after_failure: bool = False
    """Whether it was stopped because another part had failed, and not by a person."""
    evidence: Evidence | None = None
    """What this node found when its part failed, stalled, or was stopped after a failure."""
    saves: bool = False  # whether its ranks save a checkpoint on request
    saved_step: int | None = None  # of its newest complete checkpoint
    saved: tuple[SavedStep, ...] = ()  # the newest and those that failed, oldest first
    resumed_step: int | None = None  # of the checkpoint that it has loaded, as its ranks say
    warnings: tuple[Problem, ...] = ()
    """What makes its numbers doubtful, although it has not failed: one per kind."""
    episodes: tuple[Episode, ...] = ()
    """Warnings of this part that are over; on the node that leads also when the job was slower than
    before, and when it stalled. Oldest first."""
    changes: tuple[RunningChange, ...] = ()  # of settings, while it ran, oldest first

    @property
    def awaited(self) -> str:
        """What keeps the part from ending, like ``node2: stopping, waiting for pid 123 python
        (…)``; empty if nothing is known.
        """
        if not self.waits_for:
            return ""
        named = ", ".join(map(str, self.waits_for[:NAMED_PROCESSES]))
        more = len(self.waits_for) - NAMED_PROCESSES
        rest = f" and {more} more" if more > 0 else ""
        return f"{self.node}: stopping, waiting for {named}{rest}"


class Restart(Record, frozen=True):
    """The next attempt, as the head plans it.

    Args:
        at_s: earliest start, Unix time.
        waits_for: what delays it after ``at_s``: a silent node, a busy GPU.
        failure: why the attempt before failed, if that is known.
        is_early: whether it did so before any progress.
    """

    number: int
    at_s: float
    waits_for: Problem | None = None
    failure: Problem | None = None
    is_early: bool = False
    lost_since_s: float | None = None
    """Unix time since which a node that it waits for has not answered."""


class JobRecord(Record, frozen=True):
    """Record of a job on a participant: the spec, the attempt, and its own part.

    Args:
        members: every node of the first attempt; later ones may lack some.
        was_queued: it, or its allocation again: its head starts it, instead of a driver.
        restart: on the head, while another attempt is planned.
        is_over: on the head of a job with restarts: there will be no further attempt.
        pressure: what this node measured of its part a moment ago, for the node that leads.
        loss_line: if ranks of this node tell a loss.
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
    pressure: Pressure | None = None
    label: JobLabel = JobLabel()
    loss_line: LossLine | None = None

    @property
    def run(self) -> JobId:
        return self.spec.run_of(self.job_id)

    @property
    def is_queued(self) -> bool:
        """Whether no attempt has started yet."""
        return self.attempt.number == 0

    @property
    def is_live(self) -> bool:
        """Whether its part is still active, or its node plans another attempt."""
        return self.part.state not in TERMINAL or self.restart is not None

    def without_files(self) -> JobRecord:
        if not self.spec.files:
            return self
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, files={}))


class JobView(Record, frozen=True):
    """A job's state, merged by :func:`model.lifecycle.rollup.roll_up`. Its spec has no files."""

    job_id: JobId
    spec: JobSpec
    attempt: Attempt
    state: JobState
    parts: tuple[PartStatus, ...]
    problem: Problem | None = None
    """Why it failed, and on which node."""
    verdict: Verdict | None = None
    """The same with what speaks for and against it."""
    submitted_by: str = ""
    stall: Problem | None = None
    """Why it makes no progress, since its ``time_s``."""
    restart: Restart | None = None
    warnings: tuple[Problem, ...] = ()
    """What makes its numbers doubtful, or it slow, although it has not failed: one per kind."""
    episodes: tuple[Episode, ...] = ()
    """When it was slower than before or stalled, and warnings that are over, oldest first."""
    label: JobLabel = JobLabel()
    loss_line: LossLine | None = None

    @property
    def runs_cells(self) -> bool:
        """Whether it is a session that is not over."""
        return self.spec.is_session and self.state not in TERMINAL

    @property
    def saved_step(self) -> int | None:
        """The step of the newest complete checkpoint."""
        return max((part.saved_step or 0 for part in self.parts), default=0) or None

    @property
    def resumed_step(self) -> int | None:
        """The step of the checkpoint that the attempt has loaded; ``None``: none, or not yet."""
        return max((part.resumed_step or 0 for part in self.parts), default=0) or None

    @property
    def run(self) -> JobId:
        return self.spec.run_of(self.job_id)
