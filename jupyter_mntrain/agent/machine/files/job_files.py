"""Job files: what a job wrote in its working directory, without the files that were sent there."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from jupyter_mntrain.launch.files.manifest import MOST_FILES
from jupyter_mntrain.launch.files.records import MOST_PULLED, JobFiles, LargeFile, WantedFiles
from jupyter_mntrain.launch.project.tree import BLOBS, blob_path, check_paths, read_tree, sha256_of
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobRecord

WORK = "work"
_ATTEMPT = re.compile(r"attempt-(\d+)")
_CACHES = frozenset({"__pycache__"})
"""Folders that Python writes by itself."""
MOST_LEFT_OUT = 20
SHORT = 200
"""Paths of fewer letters than this are never too long."""


def work_folder(directory: Path) -> Path:
    """Return the folder of the newest attempt, with what earlier ones wrote. It may not exist.

    Args:
        directory: of the job, ``jobs/ID``.
    """
    there = directory.iterdir() if directory.is_dir() else ()
    numbers = [int(match[1]) for one in there if (match := _ATTEMPT.fullmatch(one.name))]
    return directory / f"attempt-{max(numbers, default=0)}" / WORK


def job_files(
    record: JobRecord, directory: Path, path: str = "", most: int = MOST_FILES
) -> JobFiles:
    """List what a job wrote here. Reads the disk: 200,000 files take seconds.

    Args:
        directory: of the job, ``jobs/ID``.
        path: only this file, or what is in this folder.
        most: files that are listed; the others are only counted.
    """
    work = work_folder(directory)
    sent, left_out = _sent(record, work), dict[str, str]()
    files, count, size = [], 0, 0
    for name, told in _walk(work, path, left_out):
        if name in sent and _is_as_sent(work / name, sent[name], told.st_size):
            continue
        count, size = count + 1, size + told.st_size
        if count <= most:
            is_executable = bool(told.st_mode & stat.S_IXUSR)
            files.append(LargeFile(name, told.st_size, is_executable=is_executable))
    return JobFiles(
        path=str(work),
        files=tuple(sorted(files, key=lambda one: one.path)),
        count=count,
        size_bytes=size,
        left_out=left_out,
    )


def wanted_files(
    record: JobRecord, directory: Path, wanted: WantedFiles
) -> tuple[Path, tuple[LargeFile, ...]]:
    """Return the folder and files that a driver is about to fetch.

    Raises:
        RefusedError: there are none, or too many.
    """
    held = job_files(record, directory, wanted.path, MOST_PULLED)
    if held.count > len(held.files):
        there = f" in {wanted.path}" if wanted.path else ""
        raise RefusedError(
            f"job {record.job_id} wrote {held.count} files{there}, more than {MOST_PULLED}",
            kind=Kind.TOO_LARGE,
            fix=f"fetch folder by folder: mntrain pull {record.job_id}:FOLDER; or have it pack "
            "them into archives",
        )
    without = frozenset(wanted.without)
    files = tuple(one for one in held.files if one.path not in without)
    if not files:
        raise RefusedError(
            f"job {record.job_id} wrote no {wanted.path or 'file'}",
            kind=Kind.NO_FILE,
            fix=f"see what it wrote: mntrain pull {record.job_id} --list",
        )
    return Path(held.path), files


def _walk(work: Path, path: str, left_out: dict[str, str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all files with their paths below the folder, including those of linked folders in it.

    Args:
        path: only this file, or what is in this folder.
        left_out: gets what is no file.
    """
    top = work.resolve()
    start = work / path
    # No folder of a path is a link: nothing is looked at twice, or elsewhere.
    if path and (not _can_be_sent(path) or start.parent.resolve() != (top / path).parent):
        return
    folders = []
    if start.is_dir() and not start.is_symlink():
        folders.append(path)
    elif path:
        yield from _file(str(start), path, top, left_out)
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(work / folder) as found:
                entries = list(found)
        except OSError as error:
            if folder:
                _leave_out(left_out, folder, f"a folder that cannot be read: {error.strerror}")
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield from _file(entry.path, name, top, left_out)
            elif entry.name not in _CACHES:
                folders.append(name)


def _file(
    path: str, name: str, top: Path, left_out: dict[str, str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Return a file's entry, if it is a regular file."""
    try:
        told = os.lstat(path)
        if stat.S_ISLNK(told.st_mode):
            if not Path(path).resolve(strict=True).is_relative_to(top):
                _leave_out(left_out, name, "a link out of the job's folder")
                return
            told = os.stat(path)  # noqa: PTH116 - a Path for each of 200,000 files takes seconds
            if stat.S_ISDIR(told.st_mode):
                _leave_out(left_out, name, "a link to a folder")
                return
    except (OSError, RuntimeError):
        if os.path.lexists(path):  # else it was deleted meanwhile
            _leave_out(left_out, name, "a link to nothing")
        return
    if not stat.S_ISREG(told.st_mode):
        _leave_out(left_out, name, "not a file")
    elif not (name.isascii() and len(name) < SHORT) and not _can_be_sent(name):
        _leave_out(left_out, name, "a name that cannot be sent")
    else:
        yield name, told


def _leave_out(left_out: dict[str, str], name: str, why: str) -> None:
    if len(left_out) < MOST_LEFT_OUT:
        left_out[ascii(name)[1:-1]] = why


def _can_be_sent(name: str) -> bool:
    try:
        check_paths([name])
    except SpecError:
        return False
    return True


def _sent(record: JobRecord, work: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that was sent with the job, by path."""
    sent = {name: sha256_of(text.encode()) for name, text in record.spec.files.items()}
    try:
        command = json.loads((work.parent / "command.json").read_bytes())
        project = command.get("project")
        if project:
            tree = read_tree(blob_path(work.parents[3] / BLOBS, project).read_bytes())
            sent = {one.path: one.sha256 for one in tree.files} | sent
    except (OSError, ValueError, SpecError):  # cleaned: all counts as written
        pass
    return sent


def _is_as_sent(path: Path, sha256: str, size: int) -> bool:
    """Return whether a file that was sent is unchanged."""
    try:
        return size <= MOST_SENT_BYTES and sha256_of(path.read_bytes()) == sha256
    except OSError:
        return False


MOST_SENT_BYTES = 64 << 20
"""No file of a project that is larger is read for this: it counts as written."""
