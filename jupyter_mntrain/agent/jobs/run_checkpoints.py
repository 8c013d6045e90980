"""Run checkpoints: lists the checkpoints of a run on this node, and changes them for drivers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.launch.checkpoints.places import checkpoints_of_run
from jupyter_mntrain.model.api import CheckpointChange
from jupyter_mntrain.model.errors import RecipeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.checkpoint import NodeCheckpoints
from jupyter_mntrain.model.records.job import JobRecord
from jupyter_mntrain.model.whereabouts import in_home

log = logging.getLogger("mntrain.agent")


def checkpoints_here(record: JobRecord, jobs: Path) -> NodeCheckpoints:
    """Return what this node has of the checkpoints of a job's run. Reads the disk.

    Args:
        jobs: the directory of the node's jobs.

    Raises:
        RecipeError: the job's recipe is not valid, so its directory is not known.
    """
    directory = _directory(record, jobs)
    return NodeCheckpoints(
        run=record.run,
        directory=str(directory.path),
        checkpoints=directory.held(),
        unfinished=directory.unfinished(),
        other_bytes=directory.other_bytes(),
    )


def place_of_checkpoints(record: JobRecord, jobs: Path) -> Path:
    """Return the directory of the checkpoints of a job's run, including one that the recipe names.

    Args:
        jobs: the directory of the node's jobs.
    """
    try:
        return _told_place(record, jobs)
    except RecipeError:  # of another version: nobody knows its directory any more
        return checkpoints_of_run(jobs, record.run)


def checkpoints_in(path: str) -> NodeCheckpoints:
    """Return the checkpoints in a directory here, whichever run saved them. Reads the disk."""
    place = in_home(path)
    directory = CheckpointDirectory(place)
    return NodeCheckpoints(
        run=JobId(""),
        directory=str(place),
        checkpoints=directory.held(),
        unfinished=directory.unfinished(),
        is_there=place.is_dir(),
    )


def change_checkpoint(
    record: JobRecord, jobs: Path, change: CheckpointChange, *, is_running: bool
) -> None:
    """Delete, pin or unpin this node's part of a checkpoint. Idempotent.

    Args:
        is_running: a job of the run is running here.

    Raises:
        RefusedError: it is pinned, or the run may need it at any moment; or the disk refuses.
    """
    directory, node = _directory(record, jobs), record.part.node
    steps = directory.manifests().keys()
    if change.step not in steps:
        return
    if change.action == "delete":
        if directory.is_pinned(change.step):
            fix = f"unpin it first: mntrain checkpoints {record.job_id} --unpin {change.step}"
            raise RefusedError(f"checkpoint {change.step} is pinned", fix=fix, node=node)
        if is_running and change.step == max(steps):
            cause = f"the run is running, and {change.step} is its newest checkpoint"
            raise RefusedError(cause, fix="stop the job first, or save a newer one", node=node)
        directory.remove(change.step)
        _remove_copy(record, change.step)
        return
    try:
        directory.pin(change.step, is_pinned=change.action == "pin")
    except OSError as error:
        cause = f"checkpoint {change.step} cannot be marked: {error}"
        raise RefusedError(cause, fix="make its directory writable", node=node) from None


def _remove_copy(record: JobRecord, step: int) -> None:
    """Delete the durable copy as well: a restart would resume from it, as the newest."""
    path = program_of(record.spec).copies_directory(record.run)
    if path is not None:
        CheckpointDirectory(path).remove(step)


def refuse_second(record: JobRecord, active: Iterable[JobRecord]) -> None:
    """Refuse to start a job while another one of its run runs here, as both would write to the same
    directory. Two drivers may have resumed it at once.

    Args:
        record: of the job that is to start.
        active: records of the jobs that have not ended here.

    Raises:
        RefusedError: as told.
    """
    for other in active:
        is_other = other.job_id != record.job_id and not other.is_queued
        if is_other and other.run == record.run:
            raise RefusedError(
                f"job {other.job_id} of the same run is still running here",
                kind=Kind.STILL_RUNNING,
                fix=f"watch it: mntrain attach {other.job_id}; or stop it first",
                node=record.part.node,
            )


def drop_empty(record: JobRecord, jobs: Path) -> None:
    """Delete a run's directories if nothing was saved; otherwise keep them, and log it."""
    checkpoints, usual = place_of_checkpoints(record, jobs), checkpoints_of_run(jobs, record.run)
    for empty in (checkpoints, usual, usual.parent):
        with suppress(OSError):
            empty.rmdir()
    if checkpoints.exists():
        log.warning(
            "the last job of run %s is deleted; its checkpoints stay in %s: delete that "
            "directory if nobody needs them; mntrain launch RECIPE --from that directory begins "
            "with them",
            record.run,
            checkpoints,
        )


def _directory(record: JobRecord, jobs: Path) -> CheckpointDirectory:
    return CheckpointDirectory(_told_place(record, jobs))


def _told_place(record: JobRecord, jobs: Path) -> Path:
    """Return the directory that the job's recipe names, else the usual one. Raises RecipeError if
    the recipe is not valid.
    """
    named = program_of(record.spec).checkpoint_directory(record.run)
    return named or checkpoints_of_run(jobs, record.run)
