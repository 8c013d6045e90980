"""Space: what large files are on this node, and which of them can be deleted."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.agent.machine.files.blob_store import UPLOADS, BlobStore
from jupyter_mntrain.agent.machine.files.job_files import work_folder
from jupyter_mntrain.agent.machine.files.transfers import TransferBook
from jupyter_mntrain.launch.checkpoints.places import CHECKPOINTS, RUNS
from jupyter_mntrain.launch.files.arriving import NAME, PARTIAL
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.launch.files.records import Cleaned, CleanRequest, HeldThing, NodeSpace
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import is_job_id

JOBS = "jobs"
"""Folder of the node's jobs, in its state directory."""
SMALL_BYTES = 1 << 20

INCOMPLETE_S = tunables.seconds("files.incomplete_kept_s")


class InUse(NamedTuple):
    """Files that running or waiting jobs need here.

    Args:
        projects: trees of their projects.
        words: their specs as JSON, to look for names and paths in.
        jobs: their ids.
    """

    projects: Collection[str]
    words: str
    jobs: Collection[str]


class FileSpace:
    """Measures and frees disk space. Its methods read disks: call them in threads."""

    def __init__(self, state: Path, transfers: TransferBook, blobs: BlobStore) -> None:
        self._state, self._transfers, self._blobs = state, transfers, blobs

    def look(self) -> NodeSpace:
        """List large files by root, project files, checkpoints by run, and files that jobs wrote in
        their working directories.
        """
        folders = dict(self._folders())
        return NodeSpace(
            roots={name: str(folder) for name, folder in folders.items()},
            free_bytes={name: shutil.disk_usage(one).free for name, one in folders.items()},
            things=tuple(self._things()),
        )

    def clean(self, request: CleanRequest, in_use: InUse) -> Cleaned:
        """Delete, or only list, project files that no job uses, incomplete transfers that nobody
        continues, and whatever is named.

        Raises:
            SpecError: a name is none.
        """
        gone = [*self._old_partials(), *self._blobs.clean(in_use.projects, request.is_trial)]
        kept: dict[str, str] = {}
        named: list[HeldThing] = []
        for text in dict.fromkeys(request.names):
            if is_job_id(text):
                work = work_folder(self._state / JOBS / text)
                if text in in_use.jobs:
                    kept[text] = "it runs or waits here"
                elif not work.is_dir():
                    kept[text] = "it has no files here"
                else:
                    named.append(_thing(f"files of {text}", work))
                continue
            name = parse_large_name(text)
            try:
                path = self._transfers.roots.path(name)
            except MntrainError as error:
                kept[text] = error.cause
                continue
            if not path.exists():
                kept[text] = "it is not here"
            elif text in in_use.words or str(path) in in_use.words:
                kept[text] = "a job that runs or waits here uses it"
            else:
                named.append(_thing(str(name), path))
        for one in () if request.is_trial else [*gone, *named]:
            if one.what != "blobs":
                _delete(Path(one.path))
        return Cleaned(things=(*gone, *named), kept=kept)

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for name in self._transfers.roots.folders:
            try:
                yield name, self._transfers.roots.base(name)
            except (MntrainError, OSError):  # not mounted
                continue

    def _things(self) -> Iterator[HeldThing]:
        for name, folder in self._folders():
            for path in sorted(folder.iterdir()):
                if path.name != PARTIAL:
                    yield _thing(f"{name}:{path.name}", path)
        yield from self._partials()
        yield _thing("blobs", self._blobs.directory)
        runs = self._state / RUNS
        for run in sorted(runs.iterdir()) if runs.is_dir() else ():
            if (run / CHECKPOINTS).is_dir():
                yield _thing(f"checkpoints of {run.name}", run / CHECKPOINTS)
        yield from self._of_jobs()

    def _of_jobs(self) -> Iterator[HeldThing]:
        """Yield the files of jobs, with small ones combined."""
        jobs = self._state / JOBS
        works = [work_folder(one) for one in sorted(jobs.glob("j-*"))] if jobs.is_dir() else []
        small: list[HeldThing] = []
        for work in works:
            thing = _thing(f"files of {work.parents[1].name}", work)
            if thing.size_bytes >= SMALL_BYTES:
                yield thing
            elif thing.size_bytes:
                small.append(thing)
        if small:
            yield HeldThing(
                what=f"files of {len(small)} small job{'s' * (len(small) != 1)}",
                path=str(jobs),
                size_bytes=sum(one.size_bytes for one in small),
                used_s=max((one.used_s or 0.0 for one in small), default=None),
            )

    def _partials(self) -> Iterator[HeldThing]:
        for _, folder in self._folders():
            partial = folder / PARTIAL
            for path in sorted(partial.iterdir()) if partial.is_dir() else ():
                try:
                    about = (path / NAME).read_text()[:200].strip()
                except OSError:
                    about = path.name
                yield _thing(f"incomplete {about}", path)

    def _old_partials(self) -> list[HeldThing]:
        busy, now_s = self._transfers.open_folders(), time.time()
        return [
            one
            for one in self._partials()
            if Path(one.path) not in busy and now_s - (one.used_s or 0.0) > INCOMPLETE_S
        ]


def _thing(what: str, path: Path) -> HeldThing:
    """Return the size of a folder as allocated on disk: files that arrived in part have holes."""
    size, used_s = 0, 0.0
    for one in _files(path):
        try:
            told = one.lstat()
        except OSError:
            continue
        size += told.st_blocks * 512
        used_s = max(used_s, told.st_atime, told.st_mtime)
    return HeldThing(what=what, path=str(path), size_bytes=size, used_s=used_s or None)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for parent, folders, names in os.walk(path):
        folders[:] = [one for one in folders if one != UPLOADS]
        yield from (Path(parent) / name for name in names)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
