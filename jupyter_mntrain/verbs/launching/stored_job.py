"""Stored jobs: reads them from a job file or from the cluster."""

from __future__ import annotations

import re
import tomllib
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_mntrain.launch.spec_file import KEY, is_spec, read_spec
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import JobNotFoundError, NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import PYTHON, SPEC_VERSION, JobSpec, JobView, Participant
from jupyter_mntrain.model.text.spelling import closest
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.plan.resume import reported_step
from jupyter_mntrain.plan.software.versions import unacknowledged
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.verbs.launching.job_files import runs_program
from jupyter_mntrain.verbs.verb import Context, named_job
from jupyter_mntrain.workload.workload import read_text

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

_JOB = re.compile(r"j-\w+|[0-9a-f]{2,8}")


class StoredJob(Record, frozen=True):
    """A job read from a file or from the cluster.

    Args:
        spec: of a job of the cluster without its acknowledgment that versions differ, which was for
            that launch; that of a job file stands there for everybody to read.
        took: its description for people.
        directory: base of its relative paths.
        starts_over: what to say if it has a checkpoint and starts over.
    """

    spec: JobSpec
    took: str
    directory: Path
    starts_over: Problem | None = None


def find_saved(context: Context, args: Namespace) -> StoredJob | None:
    """Return the named job file or job; ``None`` if the name is that of a recipe or script.

    Raises:
        SpecError: the file is neither a recipe nor a job file, or is invalid.
        JobNotFoundError: no such file, and no reachable node knows such a job.
    """
    if context.cell is not None:
        if args.target or not is_spec(context.cell):
            return None
        # Line 1 is the magic itself, so that line numbers in errors match the cell.
        spec = read_spec("\n" + context.cell, name="cell")
        return StoredJob(spec, "the cell as a job file", context.directory)
    if not args.target:
        return None
    path = context.directory / in_home(args.target)
    if path.is_file():
        return None if path.suffix in PYTHON or runs_program(args) else _from_file(path)
    if path.exists() or runs_program(args) or not _JOB.fullmatch(args.target):
        return None
    return _from_job(context, args)


def refuse_gone(context: Context, cluster: Cluster, participants: Sequence[Participant]) -> None:
    """Refuse if former participants are missing; name all of them in one error.

    Raises:
        NodeError: names them, and says how to choose others.
    """
    wanted = [one.node for one in participants]
    with context.screen.progress() as progress:
        views = cluster.nodes_when_ready(wanted, progress=progress)
    answering = [view.info for view in views if view.info and view.liveness != "lost"]
    names = {name for info in answering for name in info.names}
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    there = sorted(info.name for info in answering)
    who = f"there is {', '.join(there)}" if there else "no node answers"
    raise NodeError(
        f"{', '.join(missing)} took part in this job and "
        f"{'does' if len(missing) == 1 else 'do'} not answer now",
        fix=f"choose nodes with --member HOST:N ({who}), or start the missing ones",
    )


def _from_file(path: Path) -> StoredJob | None:
    text = read_text(path)
    if is_spec(text):
        return StoredJob(read_spec(text, name=path.name), f"job file {path.name}", path.parent)
    if path.suffix == ".toml":
        _refuse_neither(text, path.name)
    return None


def _from_job(context: Context, args: Namespace) -> StoredJob:
    try:
        job = named_job(context, args, args.target)
    except JobNotFoundError:
        raise JobNotFoundError(
            f"{args.target}: neither a file here nor a job that a reachable node knows",
            fix=f"see {context.program} jobs; jobs known only to unreachable nodes are not listed",
        ) from None
    view = job.view()
    spec = job.spec()
    over = None if spec.origin and spec.origin.place else _starts_over(view)
    return StoredJob(unacknowledged(spec), f"job {job.id} again", context.directory, over)


def _starts_over(view: JobView) -> Problem | None:
    step = reported_step([view])
    if step is None:
        return None
    return Problem(
        kind=Kind.STARTS_OVER,
        cause=f"this starts job {view.job_id} over at step 1, in a run of its own",
        fix=f"to resume from step {step}: mntrain resume {view.job_id}",
    )


def _refuse_neither(text: str, name: str) -> None:
    """Refuse a file that is neither. The recipe parser reports misspelled sections."""
    try:
        keys = list(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return
    sections = Recipe.__struct_fields__
    if not keys or any(closest(key, sections) for key in keys):
        return
    tables = " ".join(f"[{section}]" for section in sections)
    raise SpecError(
        f"{name}: neither a recipe nor a job file: it begins with {keys[0]!r}",
        fix=f"a recipe has {tables}, a job file the line {KEY} = {SPEC_VERSION}",
    )
