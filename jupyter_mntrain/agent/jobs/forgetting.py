"""Forgetting: deletes ended jobs, but keeps what only they know about a run's checkpoints."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.jobs.run_checkpoints import drop_empty, place_of_checkpoints
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.records.job import JobRecord

log = logging.getLogger("mntrain.agent")


class Book(Protocol):
    """The node's jobs, as in :class:`~jupyter_mntrain.agent.jobs.book.JobBook`."""

    directory: Path
    node: str

    def all(self) -> Collection[LocalJob]: ...

    def of_run(self, run: JobId) -> list[LocalJob]: ...

    def drop(self, job: LocalJob) -> None: ...


def deletion_of(book: Book, record: JobRecord) -> JobDeletion:
    """Return what deleting a job would free here, and what would stay. Reads the disk."""
    checkpoints = place_of_checkpoints(record, book.directory)
    is_last = all(one.record.job_id == record.job_id for one in book.of_run(record.run))
    return JobDeletion(
        node=book.node,
        directory=str(book.directory / record.job_id),
        size_bytes=_size(book.directory / record.job_id),
        is_last_of_run=is_last,
        checkpoints=str(checkpoints) if is_last and checkpoints.exists() else "",
        checkpoints_bytes=_size(checkpoints) if is_last else 0,
    )


def delete(book: Book, job: LocalJob, *, with_checkpoints: bool) -> None:
    """Delete a job that has ended. Its run's checkpoints stay unless they are to be deleted, too,
    and no other job of the run is left here.

    Raises:
        RefusedError: it has not ended.
    """
    record = job.record
    if not job.is_final or record.is_live:
        raise RefusedError(
            f"job {record.job_id} has not ended here",
            kind=Kind.STILL_RUNNING,
            fix=f"end it first: mntrain stop {record.job_id}",
            node=book.node,
        )
    book.drop(job)
    shutil.rmtree(job.directory, ignore_errors=True)
    if book.of_run(record.run):
        return
    if with_checkpoints:
        shutil.rmtree(place_of_checkpoints(record, book.directory), ignore_errors=True)
    drop_empty(record, book.directory)


def prune(book: Book, kept: int) -> None:
    """Delete the oldest ended jobs beyond ``kept``, and log it. The last job of a run with
    checkpoints stays: without it, nothing could resume from them.
    """
    ended = [job for job in book.all() if job.is_final and not job.file.is_live]
    ended.sort(key=lambda job: job.record.attempt.submitted_s)
    for job in ended[: max(0, len(ended) - kept)]:
        record = job.record
        checkpoints = place_of_checkpoints(record, book.directory)
        if len(book.of_run(record.run)) == 1 and _holds_any(checkpoints):
            log.info(
                "job %s is older than the newest %d, and stays: it is the last of a run whose "
                "checkpoints are in %s; to delete it: mntrain rm %s",
                record.job_id,
                kept,
                checkpoints,
                record.job_id,
            )
            continue
        delete(book, job, with_checkpoints=False)
        log.warning(
            "job %s deleted: only the newest %d ended ones are kept (agent.jobs_kept)",
            record.job_id,
            kept,
        )


def _holds_any(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


def _size(directory: Path) -> int:
    """Return the bytes on disk. The freed middle of a file does not count."""
    found = 0
    for path in directory.rglob("*"):
        try:
            found += path.lstat().st_blocks * 512
        except OSError:
            continue  # deleted meanwhile
    return found
