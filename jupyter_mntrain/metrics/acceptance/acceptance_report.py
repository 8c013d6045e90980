"""Acceptance report: what a run observed, and the verdict on each criterion. Records only."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.metrics.summary import OffPlan
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport

Judgment = Literal["passed", "failed", "not judged"]

Part = Literal["commands", "scaling", "bandwidth", "gang", "failures", "resume", "cleanup"]
"""What can be left out. ``gang``, ``failures`` and ``resume`` share jobs."""

PARTS: tuple[Part, ...] = (
    "commands",
    "scaling",
    "bandwidth",
    "gang",
    "failures",
    "resume",
    "cleanup",
)

FaultKind = Literal["rank-killed", "rank-frozen", "torchrun-killed", "node-lost", "link-down"]


class AcceptedNode(Record, frozen=True):
    """A node that took part in an acceptance run.

    Args:
        boot_id: of the machine that it runs on, since its last boot.
        device: of its ranks, for people.
        rdma_ports: InfiniBand and RoCE ports that its ranks could use.
    """

    name: str
    boot_id: str
    ranks: int
    device: str = "CPU"
    rdma_ports: tuple[str, ...] = ()


class ScalingPoint(Record, frozen=True):
    """A training job that was timed on some of the nodes.

    Args:
        step_s, tokens_per_s: as its summary has them.
        predicted_tokens_per_s: by its plan; ``None`` without one.
        compute, send, wait, bubble: mean shares of a step over its ranks.
        off_plan: why it is not as fast as predicted.
        bottleneck: what sets the pace, as its plan says.
        guesses: what the plan had not measured.
        problem: why there are no figures.
    """

    nodes: tuple[str, ...]
    ranks: int
    job_id: JobId | None = None
    steps: int = 0
    step_s: float | None = None
    tokens_per_s: float | None = None
    predicted_tokens_per_s: float | None = None
    compute: float | None = None
    send: float | None = None
    wait: float | None = None
    bubble: float | None = None
    off_plan: OffPlan | None = None
    bottleneck: str = ""
    guesses: tuple[str, ...] = ()
    problem: Problem | None = None


class GangTrial(Record, frozen=True):
    """A trial of two jobs that compete for the same nodes.

    Args:
        first_step_s: from the launch of a job on all nodes to the first step of every rank.
        ranks: that made it, of ``wanted``.
        refused: why a second job did not start at once; ``None``: it did.
        held: leases of the second job after it was refused, and while it waited in the queue.
        waited: whether it was pending as long as the first job ran.
        started_after_s: from the end of the first job to the start of the second, by itself.
        problem: why this could not be tried.
    """

    first_step_s: float | None = None
    ranks: int = 0
    wanted: int = 0
    refused: Problem | None = None
    held: int = 0
    waited: bool = False
    started_after_s: float | None = None
    problem: Problem | None = None


class InducedFault(Record, frozen=True):
    """A failure that was induced in a job, and how the job fared.

    Args:
        node, rank: where.
        detect_s: until a driver was told; ``None``: it was not.
        recover_s: until the job made new steps on all ranks.
        said: the problem that was reported.
        problem: why it could not be tried.
    """

    kind: FaultKind
    node: str = ""
    rank: int | None = None
    job_id: JobId | None = None
    detect_s: float | None = None
    recover_s: float | None = None
    said: Problem | None = None
    problem: Problem | None = None


class ResumedRun(Record, frozen=True):
    """A run that was killed and resumed, compared with the same run unbroken.

    Args:
        saved_step: of the checkpoint that it went on from.
        shards: of that checkpoint, and how many of them ``missing``.
        compared: steps after it whose losses both runs have told.
        different: those whose losses differ.
        different_norms: those whose gradient norms do.
        largest_difference: between two of them.
        problem: why there is nothing to compare.
    """

    job_id: JobId | None = None
    reference: JobId | None = None
    saved_step: int | None = None
    shards: int = 0
    missing: int = 0
    compared: int = 0
    different: tuple[int, ...] = ()
    different_norms: tuple[int, ...] = ()
    largest_difference: float = 0.0
    problem: Problem | None = None


class FoundProcess(Record, frozen=True):
    """A process of a job that should have ended."""

    node: str
    pid: int
    job_id: JobId
    name: str


class Leftovers(Record, frozen=True):
    """What the jobs of an acceptance run left behind on the nodes.

    Args:
        looked_on: nodes that were looked at.
        leases: that nodes still hold for them.
        kept: jobs that could not be deleted.
    """

    looked_on: tuple[str, ...] = ()
    processes: tuple[FoundProcess, ...] = ()
    leases: int = 0
    kept: tuple[JobId, ...] = ()
    problem: Problem | None = None


class DocumentedCommand(Record, frozen=True):
    """A command from the documentation, and what came of running it.

    Args:
        said: its last lines, where it failed.
    """

    command: str
    exit_code: int
    took_s: float
    said: str = ""


class Observed(Record, frozen=True):
    """Everything observed in an acceptance run; a part that did not run is ``None`` or empty.

    Args:
        nodes: in node-rank order.
        sizes: numbers of nodes that scaling was asked for.
        left_out: parts that were not to run, or were cut short, with why.
        keeps: whether jobs and checkpoints are to stay.
    """

    nodes: tuple[AcceptedNode, ...] = ()
    sizes: tuple[int, ...] = ()
    scaling: tuple[ScalingPoint, ...] = ()
    benchmark: BenchReport | None = None
    bandwidth_problem: Problem | None = None
    gang: GangTrial | None = None
    faults: tuple[InducedFault, ...] = ()
    resumption: ResumedRun | None = None
    leftovers: Leftovers | None = None
    commands: tuple[DocumentedCommand, ...] = ()
    left_out: dict[Part, str] = {}
    keeps: bool = False


class Criterion(Record, frozen=True):
    """A criterion and the verdict on it.

    Args:
        key: stable name, for programs.
        title: for people.
        figure: what was measured, with the limit.
        value, limit: the same for programs, where it is one number.
        why: it failed or was not judged; or what explains a figure that passed.
        how: how it was brought about.
    """

    key: str
    title: str
    judgment: Judgment
    figure: str = ""
    value: float | None = None
    limit: float | None = None
    why: str = ""
    how: str = ""


class AcceptanceReport(Record, frozen=True):
    """The result of an acceptance run.

    Args:
        time_s: Unix time of its begin.
        is_whole: nobody interrupted it.
    """

    cluster: str
    version: str
    time_s: float
    took_s: float
    observed: Observed
    criteria: tuple[Criterion, ...]
    is_whole: bool = True

    @property
    def has_failed(self) -> bool:
        return any(one.judgment == "failed" for one in self.criteria)

    def count(self, judgment: Judgment) -> int:
        return sum(one.judgment == judgment for one in self.criteria)
