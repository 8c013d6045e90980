"""The doctor of the stand-in cluster: it examines simulated nodes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.doctor.check import Case, DoctorReport
from jupyter_mntrain.doctor.every import examine
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.job import JobSpec, Participant
from tests.doctor.healthy import healthy
from tests.standin.pipeline import BEGIN_S


class StandInDoctor:
    """As ``cluster.doctor``.

    Args:
        case: what it finds; tests put faults into it.
    """

    def __init__(self) -> None:
        self.case: Case = healthy()
        self.silent: dict[str, Problem] = {}
        self.asked: MachineQuestion | None = None
        self.spec: JobSpec | None = None
        self.project: StagedProject | None = None
        self.is_quick = False
        self.refuses: Exception | None = None
        self.examinations: list[tuple[Participant, ...]] = []

    def examine(
        self,
        nodes: Sequence[str] = (),
        *,
        asked: MachineQuestion = MachineQuestion(),  # noqa: B008 - frozen
        participants: Sequence[Participant] = (),
        spec: JobSpec | None = None,
        project: StagedProject | None = None,
        is_quick: bool = False,
        progress: Progress = SILENT,
    ) -> DoctorReport:
        self.asked, self.spec, self.project, self.is_quick = asked, spec, project, is_quick
        participants = spec.participants if spec else participants
        self.examinations.append(tuple(participants))
        if self.refuses is not None:
            raise self.refuses
        nodes = [one.node for one in participants] or nodes
        chosen = tuple(one for one in self.case.nodes if not nodes or one.name in nodes)
        progress.report("examining the nodes", 0, len(chosen))
        return DoctorReport(
            nodes=tuple(one.name for one in chosen),
            findings=examine(msgspec.structs.replace(self.case, nodes=chosen)),
            silent=self.silent,
            time_s=BEGIN_S,
            took_s=0.4,
        )
