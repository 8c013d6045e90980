"""Job files: what a job wrote in the folder that it runs in, apart from what was sent there."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from jupyter_mntrain.launch.files.manifest import MOST_FILES
from jupyter_mntrain.launch.files.records import JobFiles, LargeFile, WantedFiles
from jupyter_mntrain.launch.project.tree import BLOBS, blob_path, check_paths, read_tree, sha256_of
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobRecord

WORK = "work"
_ATTEMPT = re.compile(r"attempt-(\d+)")
_CACHES = frozenset({"__pycache__"})
"""Folders that Python writes by itself."""
MOST_LEFT_OUT = 20


def work_folder(directory: Path) -> Path:
    """Where the newest attempt runs, which has what earlier ones wrote; it may not exist.

    Args:
        directory: of the job, ``jobs/ID``.
    """
    there = directory.iterdir() if directory.is_dir() else ()
    numbers = [int(match[1]) for one in there if (match := _ATTEMPT.fullmatch(one.name))]
    return directory / f"attempt-{max(numbers, default=0)}" / WORK


def job_files(record: JobRecord, directory: Path) -> JobFiles:
    """What a job wrote here. Reads the disk.

    Args:
        directory: of the job, ``jobs/ID``.
    """
    work = work_folder(directory)
    sent, left_out = _sent(record, work), dict[str, str]()
    files, count, size = [], 0, 0
    for name, told in _walk(work, left_out):
        if name in sent and _is_as_sent(work / name, sent[name], told.st_size):
            continue
        count, size = count + 1, size + told.st_size
        if count <= MOST_FILES:
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
    """The folder and files that a driver is about to fetch.

    Raises:
        RefusedError: there are none, or too many.
    """
    held = job_files(record, directory)
    if held.count > len(held.files):
        raise RefusedError(
            f"job {record.job_id} wrote {held.count} files, more than {MOST_FILES}",
            kind=Kind.TOO_LARGE,
            fix="have it pack them into archives, or raise the setting files.files",
        )
    without = frozenset(wanted.without)
    files = tuple(
        one for one in held.files if one.path not in without and wanted.includes(one.path)
    )
    if not files:
        raise RefusedError(
            f"job {record.job_id} wrote no {wanted.path or 'file'}",
            kind=Kind.NO_FILE,
            fix=f"see what it wrote: mntrain status {record.job_id}",
        )
    return Path(held.path), files


def _walk(work: Path, left_out: dict[str, str]) -> Iterator[tuple[str, os.stat_result]]:
    """Every file with its path below the folder, links to others in it included.

    Args:
        left_out: gets what is no file.
    """
    top = work.resolve()
    for parent, folders, names in os.walk(work):
        for one in [*names, *(f for f in folders if (Path(parent) / f).is_symlink())]:
            path = Path(parent) / one
            name = os.path.relpath(path, work)
            why = _why_not(path, name, top)
            if not why:
                try:
                    yield name, path.stat()
                except OSError:  # deleted meanwhile
                    continue
            elif len(left_out) < MOST_LEFT_OUT:
                left_out[ascii(name)[1:-1]] = why
        folders[:] = [one for one in folders if one not in _CACHES]


def _why_not(path: Path, name: str, top: Path) -> str:
    """Why something cannot be fetched; empty if it can."""
    try:
        check_paths([name])
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):
            real = path.resolve()
            if not real.is_relative_to(top):
                return "a link out of the job's folder"
            kind = path.stat().st_mode
            if stat.S_ISDIR(kind):
                return "a link to a folder"
    except SpecError:
        return "a name that cannot be sent"
    except (OSError, RuntimeError):
        return "a link to nothing"
    return "" if stat.S_ISREG(kind) else "not a file"


def _sent(record: JobRecord, work: Path) -> dict[str, str]:
    """SHA-256 of what was sent with the job, by path."""
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
    """Whether nothing has written to a file that was sent."""
    try:
        return size <= MOST_SENT_BYTES and sha256_of(path.read_bytes()) == sha256
    except OSError:
        return False


MOST_SENT_BYTES = 64 << 20
"""No file of a project that is larger is read for this: it counts as written."""
