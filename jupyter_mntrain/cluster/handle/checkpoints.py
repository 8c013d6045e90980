"""Checkpoints of a run: lists, pins, deletes, copies and exports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

import msgspec

from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import CheckpointAction
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.checkpoint import RunCheckpoint, RunCheckpoints, WantedStep
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, JobView, Participant
from jupyter_mntrain.plan.resume import whole_checkpoint

SUPERVISOR = f"{TRAINER}.keep"

What = Literal["copy", "export"]


class KeptCheckpoint(Record, frozen=True):
    """A checkpoint that was copied or exported.

    Args:
        path: where it is now.
        nodes: that wrote there.
        job_id: of the job that did it, for its log.
    """

    run: JobId
    step: int
    path: str
    nodes: tuple[str, ...]
    job_id: JobId


class Launching(Protocol):
    """The part of a cluster that is needed to launch jobs."""

    def refuse_read_only(self) -> None: ...

    def known_jobs(self) -> tuple[JobView, ...]: ...

    def launch(self, spec: JobSpec, *, progress: Progress = SILENT) -> Job: ...


class Checkpoints:
    """The checkpoints of one run, from :meth:`Cluster.checkpoints`. Safe from any thread.

    Args:
        cluster: an open one.
        job: any of the run.
    """

    def __init__(self, cluster: Launching, job: Job) -> None:
        self._cluster, self._job = cluster, job

    def list(self) -> RunCheckpoints:
        """List all checkpoints on the nodes that answer, newest first."""
        return self._job.checkpoints()

    def change(self, step: int, action: CheckpointAction) -> RunCheckpoints:
        """Delete, pin or unpin a checkpoint, as :meth:`Job.change_checkpoint` does."""
        return self._job.change_checkpoint(step, action)

    def copy(
        self,
        path: str,
        *,
        step: WantedStep | None = None,
        mixed_versions: bool = False,
        progress: Progress = SILENT,
    ) -> KeptCheckpoint:
        """Copy a checkpoint to a directory on the nodes, and verify every shard. Waits for the end.

        The manifest comes last: a copy that was cut off is none. ``resume`` with ``begin=path``
        begins with it, also after everything else is gone. Meanwhile the original is pinned.

        Args:
            path: absolute, or from ``~``; one that all nodes share, or each has its own.
            step: or ``best``, that with the lowest evaluation loss; default: the newest that is
                whole.
            mixed_versions: do it although versions of torch and the like differ between its nodes;
                that this was said of the run's own launch does not count.

        Raises:
            RefusedError: there is none, the nodes that answer do not have all of it, or it could
                not be written.
            SpecError: the job runs a script, whose checkpoints are its own; or a relative path.
            NodeError: as for :meth:`Cluster.launch`.
        """
        return self._keep("copy", path, step, progress, mixed_versions=mixed_versions)

    def export(
        self,
        directory: str,
        *,
        step: WantedStep | None = None,
        mixed_versions: bool = False,
        progress: Progress = SILENT,
    ) -> KeptCheckpoint:
        """Export a checkpoint as a Hugging Face directory on one node, without a GPU. Waits for the
        end.

        Args:
            directory: absolute, or from ``~``; new or empty.
            step: or ``best``, that with the lowest evaluation loss; default: the newest that is
                whole.
            mixed_versions: as for :meth:`copy`.

        Raises:
            RefusedError, SpecError, NodeError: as for :meth:`copy`.
        """
        return self._keep("export", directory, step, progress, mixed_versions=mixed_versions)

    def _keep(
        self,
        what: What,
        path: str,
        step: WantedStep | None,
        progress: Progress,
        *,
        mixed_versions: bool,
    ) -> KeptCheckpoint:
        if not path.startswith(("/", "~")):
            cause = f"{path}: not an absolute path"
            raise SpecError(cause, fix="give one on the nodes, from / or ~")
        self._cluster.refuse_read_only()
        view, spec = self._job.view(), self._job.spec()
        if program_of(spec).is_script:
            cause = f"job {view.job_id} runs a script, whose checkpoints are its own"
            raise SpecError(cause, fix="copy or convert them as that script says")
        one = whole_checkpoint(self.list(), step)
        keeping = msgspec.structs.replace(
            self._spec(what, spec, view, one, path), mixed_versions=mixed_versions
        )
        with self._pinned(one):
            job = self._cluster.launch(keeping, progress=progress)
            with job.ending_with_driver():
                ended = job.wait(progress=progress)
        if ended.state != "succeeded":
            raise _not_kept(what, one, ended)
        names = tuple(place.node for place in ended.attempt.placements)
        nodes = names if what == "copy" else names[:1]
        return KeptCheckpoint(run=view.run, step=one.step, path=path, nodes=nodes, job_id=job.id)

    def _spec(
        self, what: What, spec: JobSpec, view: JobView, one: RunCheckpoint, path: str
    ) -> JobSpec:
        """Return a job with one process, without GPUs, on each node that is needed."""
        program = program_of(spec)
        known = {
            place.node: place
            for other in (*self._cluster.known_jobs(), view)
            if other.run == view.run
            for place in other.attempt.placements
        }
        return JobSpec(
            entry=(
                "-m",
                SUPERVISOR,
                what,
                view.run,
                str(one.step),
                path,
                *program.arguments(),
            ),
            participants=tuple(
                Participant(node=known[name].node_id, nproc=1, interface=known[name].interface)
                for name in one.fewest_nodes()
            ),
            name=f"{what} {view.run}",
            files={name: spec.files[name] for name in sorted(program.own_files)},
            python=spec.python,
            environment=spec.environment,
            from_environment=spec.from_environment,
        )

    @contextmanager
    def _pinned(self, one: RunCheckpoint) -> Iterator[None]:
        """Keep a running job from pruning the checkpoint."""
        if one.is_pinned:
            yield
            return
        self._job.change_checkpoint(one.step, "pin")
        try:
            yield
        finally:
            self._job.change_checkpoint(one.step, "unpin")


def _not_kept(what: What, one: RunCheckpoint, ended: JobView) -> RefusedError:
    problem = ended.problem
    if problem is None:
        cause = f"job {ended.job_id}, which was to {what} checkpoint {one.step}, is {ended.state}"
        return RefusedError(cause, fix=f"see mntrain logs {ended.job_id}")
    return RefusedError.of(problem)
