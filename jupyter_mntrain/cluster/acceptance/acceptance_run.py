"""Acceptance run: runs every part in turn, and reports what is known even if it is interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from jupyter_mntrain import __version__
from jupyter_mntrain.cluster.acceptance.broken_jobs import (
    SCRIPT_FAULTS,
    BrokenJob,
    Rival,
)
from jupyter_mntrain.cluster.acceptance.documented import run_documented
from jupyter_mntrain.cluster.acceptance.trial_jobs import (
    FIRST_STEPS,
    TimedJob,
    TrialJobs,
    steps_for,
    sweep,
    timed,
    with_nodes,
)
from jupyter_mntrain.cluster.cluster import Cluster
from jupyter_mntrain.launch.progress import SILENT, PartProgress, Progress
from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    PARTS,
    AcceptanceReport,
    AcceptedNode,
    GangTrial,
    InducedFault,
    Observed,
    Part,
    ResumedRun,
)
from jupyter_mntrain.metrics.acceptance.efficiency import sharing
from jupyter_mntrain.metrics.acceptance.verdicts import judge
from jupyter_mntrain.metrics.benchmark.judging import usable_ports
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.lookup import find_node

INTERRUPTED = "it was interrupted"
NOT_WANTED = "it was left out"

_BREAKING: frozenset[Part] = frozenset({"gang", "failures", "resume"})


class AcceptanceRun:
    """One acceptance run on a cluster.

    Args:
        cluster: an open one.
        training: a recipe on all of the nodes, in node-rank order.
        sizes: numbers of nodes that it is timed on, ascending.
        parts: that are to run.
        keeps: whether jobs and checkpoints are to stay.
        environment: of the documented commands.
        is_checked: whether the doctor looks at the nodes first.
        on_part: told once a part has been observed.
    """

    def __init__(
        self,
        cluster: Cluster,
        training: JobSpec,
        *,
        sizes: Sequence[int],
        parts: Collection[Part] = PARTS,
        keeps: bool = False,
        environment: Mapping[str, str] = {},
        submitted_by: str = "",
        is_checked: bool = True,
        on_part: Callable[[AcceptanceReport], object] = bool,
        progress: Progress = SILENT,
    ) -> None:
        self._cluster, self._training = cluster, training
        self._parts, self._keeps, self._environment = parts, keeps, environment
        self._submitted_by, self._is_checked = submitted_by, is_checked
        self._on_part = on_part
        self._works = tuple(self._work())
        self._progress = PartProgress(progress, len(self._works) + 1)
        self._jobs = TrialJobs(cluster, self._progress, submitted_by, is_checked=is_checked)
        infos = [view.info for view in cluster.nodes() if view.info]
        nodes = tuple(_accepted(training, infos))
        self._names = tuple(one.name for one in nodes)
        left_out = {part: NOT_WANTED for part in PARTS if part not in parts}
        self._observed = Observed(nodes=nodes, sizes=tuple(sizes), left_out=left_out, keeps=keeps)
        self._steps = FIRST_STEPS
        self._unbroken: TimedJob | None = None
        self._begun_s, self._began = time.time(), time.monotonic()
        self._is_whole = True

    def run(self) -> AcceptanceReport:
        """Run all parts. Ctrl-C ends the run: the report says what is known so far, and all jobs
        are deleted.

        What a part cannot do fails its criteria, and the others go on.
        """
        kept: Sequence[Any] = ()
        try:
            for one in self._works:
                self._progress.begin()
                one()
                self._on_part(self.report())
            self._progress.begin()
            kept = self._jobs.clean(keeps=self._keeps)
            if "cleanup" in self._parts:
                left = sweep(self._jobs, self._training, kept)
                self._see(leftovers=left)
        except KeyboardInterrupt:
            self._is_whole = False
            again = {part: INTERRUPTED for part in PARTS if not self._has_seen(part)}
            self._see(left_out={**again, **self._observed.left_out})
        finally:
            # The sweeping job, and whatever an interruption has left.
            self._jobs.clean(keeps=self._keeps and self._is_whole)
        return self.report()

    def report(self) -> AcceptanceReport:
        """Return the report of what has been observed so far."""
        return AcceptanceReport(
            cluster=self._cluster.name,
            version=__version__,
            time_s=self._begun_s,
            took_s=time.monotonic() - self._began,
            observed=self._observed,
            criteria=judge(self._observed),
            is_whole=self._is_whole,
        )

    def _work(self) -> Iterator[Callable[[], None]]:
        parts = set(self._parts)
        if "commands" in parts:
            yield self._run_commands
        if parts & {"scaling", *_BREAKING}:
            yield self._time_jobs
        if "bandwidth" in parts:
            yield self._benchmark
        if parts & _BREAKING:
            yield self._break_jobs

    def _run_commands(self) -> None:
        for one in run_documented(self._environment, self._progress):
            self._see(commands=(*self._observed.commands, one))

    def _time_jobs(self) -> None:
        """Time the training on each number of nodes; without scaling, only on all, as a
        baseline.
        """
        if not sharing(self._observed.nodes) and "scaling" in self._parts:
            self._measure()
        most = len(self._names)
        sizes = [one for one in self._observed.sizes if one <= most]
        for size in sizes if "scaling" in self._parts else [most]:
            self._time(size, is_shown="scaling" in self._parts)
        wants = "resume" in self._parts
        if wants and (self._unbroken is None or self._unbroken.point.steps != self._steps):
            self._time(most, is_shown=False)

    def _time(self, size: int, *, is_shown: bool) -> None:
        names = self._names[:size]
        found = timed(self._jobs, with_nodes(self._training, size), names, self._steps)
        if found.point.step_s and self._steps == FIRST_STEPS:
            self._steps = steps_for(found.point, len(self._names))
        if size == len(self._names):
            self._unbroken = found
        if is_shown:
            self._see(scaling=(*self._observed.scaling, found.point))

    def _measure(self) -> None:
        """Measure devices and links for the predictions, which are guesses without it,
        and say so.
        """
        with self._telling("measuring devices and links"):
            self._cluster.usage.measure_devices(
                self._training.participants, python=self._training.python, progress=self._progress
            )

    def _benchmark(self) -> None:
        try:
            report = self._cluster.benchmark.run(
                self._training.participants,
                python=self._training.python,
                submitted_by=self._submitted_by,
                is_checked=self._is_checked,
                progress=self._progress,
            )
        except MntrainError as error:
            self._see(bandwidth_problem=error.problem)
        else:
            self._see(benchmark=report)

    def _break_jobs(self) -> None:
        unbroken = self._unbroken.job if self._unbroken else None
        planned = unbroken.view().spec if unbroken else None
        broken = BrokenJob(self._jobs, self._training, self._steps, planned)
        gang = broken.start()
        self._see(gang=gang if "gang" in self._parts else None)
        has_faults = "failures" in self._parts
        rival = Rival(self._jobs, self._training, has_faults=has_faults)
        killed: InducedFault | None = None
        if gang.problem is None and self._parts_of("failures", "resume"):
            killed = broken.kill_a_rank()
            self._see(faults=(killed,) if has_faults else ())
        if gang.problem is None and "gang" in self._parts:
            self._contend(broken, rival, gang)
        if "resume" in self._parts:
            self._see(resumption=self._resumption(broken))
        if has_faults:
            self._fail(rival)

    def _contend(self, broken: BrokenJob, rival: Rival, gang: GangTrial) -> None:
        try:
            self._see(gang=rival.contend(broken.job, gang))
        except MntrainError as error:
            self._see(gang=msgspec.structs.replace(gang, problem=error.problem))

    def _resumption(self, broken: BrokenJob) -> ResumedRun:
        unbroken = self._unbroken
        if unbroken is None or unbroken.job is None or unbroken.point.problem is not None:
            why = Problem(
                kind=Kind.ERROR,
                cause="the uninterrupted run gave no losses to compare with",
                fix="see why it failed, then run mntrain accept again",
            )
            return ResumedRun(problem=unbroken.point.problem if unbroken else why)
        try:
            return broken.resumption(unbroken.job)
        except MntrainError as error:
            return ResumedRun(problem=error.problem)

    def _fail(self, rival: Rival) -> None:
        try:
            found = rival.fail()
        except MntrainError as error:
            found = tuple(InducedFault(kind, problem=error.problem) for kind, _ in SCRIPT_FAULTS)
        self._see(faults=(*self._observed.faults, *found))

    def _parts_of(self, *parts: Part) -> bool:
        return any(part in self._parts for part in parts)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Report a step of the run that may fail without failing the run."""
        self._progress.report(what, 0, None)
        try:
            yield
        except MntrainError:
            return  # what depends on it says so itself

    def _see(self, **what: Any) -> None:
        self._observed = msgspec.structs.replace(self._observed, **what)

    def _has_seen(self, part: Part) -> bool:
        """Whether a part has something to judge; otherwise the report says that it was
        not reached.
        """
        seen = self._observed
        found: dict[Part, object] = {
            "commands": seen.commands,
            "scaling": len(seen.scaling) == len(seen.sizes),
            "bandwidth": seen.benchmark or seen.bandwidth_problem,
            "gang": seen.gang,
            "failures": len(seen.faults) > 1,
            "resume": seen.resumption,
            "cleanup": seen.leftovers,
        }
        return bool(found[part])


def _accepted(training: JobSpec, infos: Sequence[NodeInfo]) -> Iterator[AcceptedNode]:
    for one in training.participants:
        info = find_node(one.node, infos)
        gpus = {gpu.index: gpu.name for gpu in info.inventory.gpus}
        names = dict.fromkeys(gpus[index] for index in one.gpus if index in gpus)
        yield AcceptedNode(
            name=info.name,
            boot_id=info.boot_id,
            ranks=one.nproc,
            device=", ".join(names) or info.inventory.cpu_model,
            rdma_ports=usable_ports(info),
        )
