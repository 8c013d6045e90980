"""The trial of the stand-in cluster: it starts nothing, and notes what it was asked to try."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.cluster.preflight.pending_job import pending_job
from jupyter_mntrain.doctor.check import DoctorReport, Finding
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model.records.job import JobSpec


class StandInTrial:
    """As ``cluster.trial``: what it tries works."""

    def __init__(self) -> None:
        self.tried: list[tuple[JobSpec, tuple[str, ...]]] = []

    def run(
        self,
        spec: JobSpec,
        report: DoctorReport,
        *,
        project: StagedProject | None = None,
        **_: Any,
    ) -> DoctorReport:
        script = pending_job(spec, "", project).script
        modules = sorted(one.what for one in script.modules) if script else ()
        self.tried.append((spec, tuple(modules)))
        names = [one.node for one in spec.participants]
        found = [Finding("deep-step", node, "passed", "0.8 s, 1.2 GB") for node in names]
        return msgspec.structs.replace(report, findings=(*report.findings, *found))
