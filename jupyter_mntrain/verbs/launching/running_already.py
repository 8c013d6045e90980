"""A job that a notebook has started already, so that "Run all" does not start another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.launch.project.tree import Tree
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.bundles import PROGRAM
from jupyter_mntrain.verbs.verb import Context
from jupyter_mntrain.workload.built import Built

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

_NOTEBOOK = ".ipynb"
"""Suffix of notebooks, which change with each run of their cells."""


def running_already(context: Context, built: Built, submitted_by: str) -> Job | None:
    """Return the newest unfinished job that does the same on the same nodes.

    It must have been launched from a notebook by the same person on this machine.

    A command line is asked for what it says: only a notebook is run again from its beginning.
    """
    if context.program != PROGRAM:
        return None
    alike = [
        view
        for view in built.cluster.jobs()
        if view.state not in TERMINAL
        and view.submitted_by == submitted_by
        and _is_alike(built.spec, view)
    ]
    for view in sorted(alike, key=lambda one: one.attempt.submitted_s, reverse=True):
        job = built.cluster.job(view.job_id)
        try:
            if job.spec().files == built.spec.files and _has_same_project(job, built):
                return job
        except MntrainError:  # unknown: launch as requested
            continue
    return None


def resumed_already(context: Context, built: Built, job: Job, submitted_by: str) -> Job | None:
    """Return the unfinished job by which the same person has resumed this one from a notebook.

    Args:
        built: what is to be resumed now, with the same settings.
        job: any ended job of the run.
    """
    if context.program != PROGRAM:
        return None
    run = job.view().run
    for view in built.cluster.jobs():
        if (
            view.run == run
            and view.job_id != job.id
            and view.state not in TERMINAL
            and view.submitted_by == submitted_by
            and _asked(built.spec) == _asked(view.spec)
            and _nodes(built.spec) == _nodes(view.spec)
        ):
            return built.cluster.job(view.job_id)
    return None


def running_already_text(job: Job, *, now_s: float, is_resumed: bool = False) -> Text:
    """Say that the job runs already, and how to launch another one."""
    since = formats.duration(max(0.0, now_s - job.view().attempt.submitted_s))
    did, another = "launched", "Launch another one: --another. "
    if is_resumed:
        did, another = "resumed", ""
    return Text.assemble(
        ("▶ ", "green"),
        (job.id, "bold"),
        f" runs this already, {did} here {since} ago: it is shown, and nothing was started. "
        f"Wait for it: --wait. {another}"
        f"Stop it: {PROGRAM} stop {job.id}",
    )


def _is_alike(mine: JobSpec, view: JobView) -> bool:
    theirs = view.spec
    begins = (_begin(mine), _asked(mine), _nodes(mine))
    return begins == (_begin(theirs), _asked(theirs), _nodes(theirs))


def _begin(spec: JobSpec) -> tuple[object, ...] | None:
    return (spec.origin.job, spec.origin.path) if spec.origin else None


def _asked(spec: JobSpec) -> tuple[object, ...]:
    own = {
        name: value for name, value in spec.environment.items() if name not in spec.from_environment
    }
    words = (spec.entry, spec.name, spec.torchrun_arguments, spec.from_environment)
    return (*words, spec.workdir, spec.python, own)


def _nodes(spec: JobSpec) -> list[tuple[str, int]]:
    """Return nodes and their processes without regard to order, which a plan may change."""
    return sorted((one.node, one.nproc) for one in spec.participants)


def _has_same_project(job: Job, built: Built) -> bool:
    theirs, staged = job.view().spec.project, built.project
    if staged is None:
        return theirs == built.spec.project
    if theirs is None or theirs == staged.sha256:
        return theirs is not None
    return _without_notebooks(job.project()) == _without_notebooks(staged.tree)


def _without_notebooks(tree: Tree | None) -> object:
    return tree and tuple(one for one in tree.files if not one.path.endswith(_NOTEBOOK))
