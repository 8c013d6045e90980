"""Cluster benchmark: a temporary job that times messages as training sends them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from jupyter_mntrain.cluster.diagnostics.smoke_step import delete_job, probe_job
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.cluster.launch.measure import measure_participants
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.launch.driver_values import with_values
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.metrics.benchmark.reporting import benched_links, make_report
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.benchmark import (
    LARGEST_BYTES,
    BenchedLine,
    BenchedLinks,
    BenchReport,
    read_line,
)
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Participant, Placement
from jupyter_mntrain.model.records.node import LinkMeasurement, NodeInfo
from jupyter_mntrain.plan.networks.measuring import Measuring

PROGRAM = f"{TRAINER}.pipeline.benchmark"

NCCL_STREAMS = 4
"""Connections between two nodes over which a link is measured that NCCL will use."""


class ClusterBenchmark:
    """Benchmarks a cluster's collectives, from :attr:`Cluster.benchmark`. Safe from any thread."""

    def __init__(self, driver: DriverSession) -> None:
        self._driver = driver

    def run(
        self,
        participants: Sequence[Participant],
        *,
        largest_bytes: int = LARGEST_BYTES,
        python: str | None = None,
        submitted_by: str = "",
        is_checked: bool = True,
        progress: Progress = SILENT,
    ) -> BenchReport:
        """Run a job that times messages of growing sizes; the nodes keep what each link reached.

        Links that are due are measured first. Ctrl-C ends and deletes the job; a failed one is
        kept.

        Args:
            participants: from :meth:`Cluster.participants`.
            python: interpreter on the nodes, as for a launch.
            submitted_by: for people; default: user and host.
            is_checked: whether the doctor looks at the nodes first.

        Raises:
            SpecError: there are fewer than two ranks; or as for :meth:`Cluster.launch`.
            NodeError, RefusedError: as for :meth:`Cluster.launch`.
        """
        self._driver.refuse_read_only()
        spec = bench_spec(participants, largest_bytes, python)
        begun_s = self._driver.clock.time()
        unmeasured = self._measure_links(participants, progress)
        spec = with_values(spec, os.environ)
        launcher = self._driver.launcher(submitted_by)
        launcher.is_checked = is_checked
        with probe_job(self._driver, launcher, spec, progress) as job:
            view = job.wait(progress=progress)
            lines = read_lines(job)
        placements = view.attempt.placements
        nodes = self._nodes(placements)
        report = make_report(
            job.id,
            lines,
            placements,
            nodes,
            time_s=begun_s,
            took_s=self._driver.clock.time() - begun_s,
            unmeasured=unmeasured,
        )
        if view.state != "succeeded" or not report.sizes:
            cause = f"job {job.id} is {view.state}"
            return msgspec.structs.replace(
                report, failure=view.problem or Problem(kind=Kind.ERROR, cause=cause), problems=()
            )
        kept = benched_links(lines, placements, nodes, self._driver.clock.time())
        self._driver.loop.run(self._keep(kept, placements))
        delete_job(job)
        return report

    def _measure_links(self, participants: Sequence[Participant], progress: Progress) -> str:
        """Measure the links that are due. Returns why that failed, which does not stop a launch."""
        if len(participants) < 2:
            return ""
        streams = NCCL_STREAMS if all(one.gpus for one in participants) else 1
        how = Measuring(streams=streams, is_only_due=True)
        work = measure_participants(self._driver.launcher().prober, participants, how, progress)
        try:
            self._driver.loop.run(work)
        except MntrainError as error:
            return str(error)
        return ""

    def _nodes(self, placements: Sequence[Placement]) -> list[NodeInfo]:
        known = {one.node_id: one for one in self._driver.search.usable()}
        missing = next((one for one in placements if one.node_id not in known), None)
        if missing is not None:
            return [
                self._driver.loop.run(self._driver.live.client_of(one).node_info())
                for one in placements
            ]
        return [known[one.node_id] for one in placements]

    async def _keep(
        self, links: Sequence[LinkMeasurement], placements: Sequence[Placement]
    ) -> None:
        for place in placements:
            own = tuple(one for one in links if one.sender == place.node)
            if own:
                # An older agent does not keep them, and the report is whole without.
                with suppress(MntrainError):
                    await self._driver.live.client_of(place).keep_benched(BenchedLinks(own))


def bench_spec(
    participants: Sequence[Participant], largest_bytes: int, python: str | None = None
) -> JobSpec:
    """Return the job of a benchmark.

    Raises:
        SpecError: there are fewer than two ranks.
    """
    if sum(one.nproc for one in participants) < 2:
        only = participants[0].node if participants else "no node"
        raise SpecError(
            f"a benchmark needs two ranks, but only one, on {only}, was chosen",
            fix="name two nodes, or two processes of one: mntrain bench node1:2",
        )
    return JobSpec(
        entry=("-m", PROGRAM, "--largest", str(largest_bytes)),
        participants=tuple(participants),
        name="bench",
        python=python,
    )


def read_lines(job: Job) -> list[BenchedLine]:
    """Return the lines that rank 0 of a benchmark printed."""
    with_none = (read_line(line.text) for piece in job.whole_log(rank=0) for line in piece)
    return [line for line in with_none if line is not None]
