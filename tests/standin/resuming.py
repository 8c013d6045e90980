"""A job in memory that can be resumed, and its checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from jupyter_mntrain.cluster.handle.checkpoints import KeptCheckpoint
from jupyter_mntrain.cluster.launch.resume import ResumePlan
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.api import CheckpointAction
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.checkpoint import BEST, RunCheckpoint, RunCheckpoints, WantedStep
from jupyter_mntrain.model.records.job import JobSpec, JobView, Origin
from jupyter_mntrain.plan.resume import refuse_finished, step_of
from tests.standin.pipeline import BEGIN_S

CHECKPOINTS = RunCheckpoints(
    run=JobId("j-0000feed"),
    checkpoints=(
        RunCheckpoint(400, 2, 3 << 20, BEGIN_S, 2, {"wopr": (0,), "muthur": (1,)}),
        RunCheckpoint(
            *(200, 1, 3 << 20, BEGIN_S - 60, 2, {"wopr": (0,)}, (1,), ("muthur",)),
            is_pinned=True,
            evaluation_loss=1.25,
            is_best=True,
        ),
    ),
    directories={"wopr": "/state/runs/j-0000feed/checkpoints"},
    silent=("hal",),
)


class StandInCheckpoints:
    """Copies and exports at once; notes what was asked."""

    def __init__(self, calls: list[tuple[str, Any]], job_id: JobId) -> None:
        self._calls, self._job_id = calls, job_id

    def copy(
        self, path: str, *, step: WantedStep | None = None, mixed_versions: bool, progress: Progress
    ) -> KeptCheckpoint:
        return self._kept("copy", path, step, mixed_versions)

    def export(
        self, path: str, *, step: WantedStep | None = None, mixed_versions: bool, progress: Progress
    ) -> KeptCheckpoint:
        return self._kept("export", path, step, mixed_versions)

    def _kept(
        self, what: str, path: str, step: WantedStep | None, mixed_versions: bool
    ) -> KeptCheckpoint:
        self._calls.append((what, (path, step, mixed_versions)))
        found = 400 if step is None else step_of(CHECKPOINTS, step)
        return KeptCheckpoint(CHECKPOINTS.run, found, path, ("wopr",), self._job_id)


class ResumableJob(ABC):
    calls: list[tuple[str, Any]]

    @abstractmethod
    def view(self) -> JobView: ...

    def plan_resume(
        self, spec: JobSpec | None = None, *, begin: int | str | None = None
    ) -> ResumePlan:
        self.calls.append(("plan_resume", begin))
        view, spec = self.view(), spec or self.view().spec
        begin = step_of(CHECKPOINTS, BEST) if begin == BEST else begin
        step = begin if isinstance(begin, int) else 400
        branch, path = begin is not None, begin if isinstance(begin, str) else None
        origin = Origin(view.job_id, view.run, is_branch=branch, step=step, path=path)
        program, before = program_of(spec).going_on_from(program_of(view.spec))
        refuse_finished(view, program.total_steps(), step)
        changes, spec = program.changes_since(before, step=step), program.spec
        return ResumePlan(
            spec=msgspec.structs.replace(spec, origin=origin),
            job=view.job_id,
            run=view.run,
            step=step,
            checkpoint=CHECKPOINTS.checkpoints[0],
            path=path,
            changes=changes,
            ranks=(view.attempt.world_size, spec.world_size),
            notes=(Problem(kind=Kind.OTHER_LOSSES, cause="other losses"),) if changes else (),
        )

    def checkpoints(self) -> RunCheckpoints:
        return CHECKPOINTS

    def change_checkpoint(self, step: int, action: CheckpointAction) -> RunCheckpoints:
        self.calls.append((action, step))
        return CHECKPOINTS
