"""The benchmark of the stand-in cluster: it sends nothing, and reports what tests want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_mntrain.cluster.diagnostics.benchmark import bench_spec
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport
from jupyter_mntrain.model.records.job import JobSpec, Participant


class StandInBenchmark:
    """As ``cluster.benchmark``.

    Args:
        report: what it finds; default: two nodes that reach what their links carry.
    """

    def __init__(self) -> None:
        self.report: BenchReport | None = None
        self.specs: list[JobSpec] = []
        self.unchecked = 0
        """How often it ran without the doctor."""

    def run(
        self,
        participants: Sequence[Participant],
        *,
        largest_bytes: int,
        python: str | None = None,
        is_checked: bool = True,
        progress: Progress = SILENT,
        **_: Any,
    ) -> BenchReport:
        from tests.metrics.benchmark import reports  # which uses this cluster's nodes

        self.specs.append(bench_spec(participants, largest_bytes, python))
        self.unchecked += not is_checked
        progress.report("waiting for the end", 0, len(participants))
        return self.report or reports.report(reports.lines(), reports.nodes())
