"""Job files: lists what a job wrote on its nodes, and fetches it into one local folder.

Files of one name that are not the same on all nodes that have them are each in the folder of their
node there: every rank writes its own ``log.txt``, and Hydra its own ``.hydra/hydra.yaml``.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path, PurePosixPath

import msgspec

from jupyter_mntrain.cluster.files.pushing import ASK_INTERVAL_S, MIB
from jupyter_mntrain.launch.files.arriving import Arriving, alone
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import check_manifest, transfer_of
from jupyter_mntrain.launch.files.records import (
    MOST_PULLED,
    JobFiles,
    PieceManifest,
    WantedFiles,
)
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.launch.project.tree import check_paths, sha256_of
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.text.file_name import file_name

AT_ONCE = 2
"""Pieces from each node: one comes while the other is asked for. A cut loses what is on its way."""
MOST_NAMED = 3
"""Files that an error names."""
MOST_COMPARED = 32
"""Groups of small files that are compared at once, to find those that differ."""


class WrittenFiles(Record, frozen=True):
    """The files that a job wrote, by node.

    Args:
        nodes: by name: what it wrote there.
        silent: by name: why a node does not say it.
    """

    nodes: dict[str, JobFiles]
    silent: dict[str, Problem] = {}

    @property
    def count(self) -> int:
        """The number of files; one on several nodes counts once, unless a folder has too many."""
        if any(one.count > len(one.files) for one in self.nodes.values()):
            return sum(one.count for one in self.nodes.values())
        return len(self.paths)

    @property
    def size_bytes(self) -> int:
        """The size of all files on all nodes."""
        return sum(one.size_bytes for one in self.nodes.values())

    @property
    def paths(self) -> list[str]:
        """The sorted paths; not all of them if a folder has too many files."""
        return sorted({file.path for one in self.nodes.values() for file in one.files})


class PulledFiles(Record, frozen=True):
    """The files of a job that were fetched.

    Args:
        path: the file, or the folder of all of them.
        nodes: bytes that came from each, this time.
        left_out: what is no file, and why, by node and path.
        differ: what is not the same on the nodes that have it, by its path in the job.
        folders: where that of each node is, by its name: a folder in ``path``.
    """

    job_id: JobId
    path: str
    count: int
    size_bytes: int
    nodes: dict[str, int]
    took_s: float
    left_out: dict[str, str] = {}
    differ: tuple[str, ...] = ()
    folders: dict[str, str] = {}


async def fetch_job_files(
    job_id: JobId, seats: Sequence[FileCalls], path: str, to: Path, progress: Progress
) -> PulledFiles:
    """Fetch what a job wrote on its nodes into one local folder. Resumes where it was cut off.

    Args:
        path: a file or folder of it; empty for all.
        to: what it is called here; it must not exist.

    Raises:
        RefusedError: nobody has it, the disk is full, or a file changes while it is fetched.
        NodeError: a node does not answer.
    """
    asking = (persist(partial(one.job_files, job_id, path, MOST_PULLED)) for one in seats)
    held = await asyncio.gather(*asking)
    owners = _owners(held, WantedFiles(path))
    if not owners:
        cause = f"job {job_id} wrote no {path or 'file'} on {', '.join(one.node for one in seats)}"
        for name, why in (left for one in held for left in one.left_out.items()):
            cause = f"{name} of job {job_id} is left out: {why}"
        raise RefusedError(
            cause,
            kind=Kind.NO_FILE,
            fix=f"see what it wrote: mntrain pull {job_id} --list",
        )
    for one in held:
        check_paths([file.path for file in one.files])
    return await _Fetching(job_id, seats, path, held, owners, progress).bring(to)


def refuse_existing(to: Path) -> None:
    """Refuse a place that is taken: asked first, and once all has come."""
    if to.exists() or to.is_symlink():
        raise RefusedError(f"{to} already exists", fix="give another place: mntrain pull … PATH")


async def read_job_file(
    job_id: JobId, calls: FileCalls, path: str, progress: Progress = SILENT
) -> tuple[int, AsyncGenerator[bytes, None]]:
    """Return the size of one file and its content, both as of the time of the request.

    Raises:
        RefusedError: there is no such file; while it is read, also that it has changed.
        NodeError: the node does not answer.
    """
    manifest = await _read_there(job_id, calls, WantedFiles(path), progress)
    if [one.path for one in manifest.files] != [path]:
        raise RefusedError(f"{path} is a folder", fix=f"fetch it: mntrain pull {job_id}:{path}")
    transfer = transfer_of(job_id, "", manifest)

    async def pieces() -> AsyncGenerator[bytes, None]:
        for piece, digest in enumerate(manifest.pieces):
            content = await persist(partial(calls.piece, transfer, piece))
            if sha256_of(content) != digest:
                raise _changed([path])
            yield content

    return manifest.size_bytes, pieces()


async def _read_there(
    job_id: JobId, calls: FileCalls, asked: WantedFiles, progress: Progress
) -> PieceManifest:
    """Have a node read files, and return the hashes of their pieces."""
    while (hashing := await persist(partial(calls.offered, job_id, asked))).manifest is None:
        what = f"{calls.node} reads its files, MiB"
        progress.report(what, hashing.done_bytes // MIB, hashing.total_bytes // MIB)
        await asyncio.sleep(ASK_INTERVAL_S)
    check_manifest(hashing.manifest, MOST_PULLED)
    return hashing.manifest


def _owners(held: Sequence[JobFiles], wanted: WantedFiles) -> dict[str, list[int]]:
    """Return the nodes that have each file, by its path."""
    owners: dict[str, list[int]] = {}
    for seat, files in enumerate(held):
        for one in files.files:
            if wanted.includes(one.path):
                owners.setdefault(one.path, []).append(seat)
    return owners


@dataclass
class _Part:
    """Files that the same nodes have: any of these nodes may send any piece.

    Args:
        transfers: what they are asked for, by node.
        missing: pieces that nobody has been asked for.
        coming: how many are on their way.
    """

    arriving: Arriving
    transfers: Mapping[int, str]
    missing: deque[int] = field(default_factory=deque)
    coming: int = 0


class _Fetching:
    def __init__(
        self,
        job_id: JobId,
        seats: Sequence[FileCalls],
        path: str,
        held: Sequence[JobFiles],
        owners: Mapping[str, Sequence[int]],
        progress: Progress,
    ) -> None:
        self._job_id, self._seats, self._path, self._held = job_id, seats, path, held
        self._owners, self._progress = owners, progress
        self._what = f"{job_id}:{path}" if path else job_id
        self._differ: set[str] = set()
        self._folders = self._folder_names()
        self._parts: list[_Part] = []
        self._news = asyncio.Condition()
        self._came = {seat: 0 for seats in owners.values() for seat in seats}
        self._lost: dict[int, MntrainError] = {}
        self._changing: set[str] = set()

    async def bring(self, to: Path) -> PulledFiles:
        """Fetch all files.

        Raises:
            RefusedError, NodeError: as for :func:`fetch_job_files`.
        """
        key = hashlib.sha256(f"{self._job_id}:{self._path}".encode()).hexdigest()
        for of, apart in await self._manifests():
            here = next(iter(of.values()))
            if apart:
                here = self._moved(here, next(iter(of)))
            arriving = Arriving(to, to.parent, key, here, is_shared=True)
            transfers = {seat: transfer_of(self._job_id, "", one) for seat, one in of.items()}
            self._parts.append(_Part(arriving, transfers))
        with alone(self._parts[0].arriving.folder, self._what):
            await self._fetch_all()
        return PulledFiles(
            job_id=self._job_id,
            path=str(to),
            count=sum(len(part.arriving.manifest.files) for part in self._parts),
            size_bytes=sum(part.arriving.manifest.size_bytes for part in self._parts),
            nodes={self._seats[seat].node: size for seat, size in self._came.items()},
            took_s=0.0,
            left_out={
                f"{calls.node}: {name}": why
                for calls, held in zip(self._seats, self._held, strict=True)
                for name, why in held.left_out.items()
                if WantedFiles(self._path).includes(name)
            },
            differ=tuple(sorted(self._differ)),
            folders={
                self._seats[seat].node: self._folders[seat]
                for seat in sorted({seat for name in self._differ for seat in self._owners[name]})
            },
        )

    async def _fetch_all(self) -> None:
        """Fetch what is missing, and move all to its place."""
        await asyncio.to_thread(self._prepare)
        for part in self._parts:
            pieces = range(len(part.arriving.manifest.pieces))
            part.missing.extend(one for one in pieces if one not in part.arriving.held)
        missing = sum(len(part.missing) for part in self._parts)
        count = Count(self._progress, f"pulling {self._what}, pieces", missing)
        try:
            async with asyncio.TaskGroup() as group:
                for seat in list(self._came) * AT_ONCE:
                    group.create_task(self._fetch_from(seat, count))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        self._refuse_unfinished()
        self._progress.report(f"writing {self._what} to the disk", 0, None)
        await asyncio.to_thread(self._place)

    async def _manifests(self) -> list[tuple[dict[int, PieceManifest], bool]]:
        """Return the hashes of all files per node; files that only one node has come first.

        Each with whether those files have a place of their own for this node: those of other nodes
        differ.
        """
        sizes = [{one.path: one.size_bytes for one in held.files} for held in self._held]
        alike: dict[tuple[int, ...], set[str]] = {}
        for name, seats in self._owners.items():
            above = (str(one) for one in PurePosixPath(name).parents)
            # A file of one node that is a folder of another differs, as what is in it does.
            if files := [one for one in above if one in self._owners]:
                self._differ |= {name, *files}
            if len({sizes[seat][name] for seat in seats}) > 1:
                self._differ.add(name)
        for name, seats in self._owners.items():
            if name not in self._differ:
                alike.setdefault(tuple(seats), set()).add(name)
        found = []
        for seats, names in sorted(alike.items(), key=lambda one: len(one[0])):
            if of := await self._same(seats, names):
                found.append((of, False))
        apart = [
            {name for name in self._differ if seat in self._owners[name]}
            for seat in range(len(self._seats))
        ]
        return found + [
            ({seat: await self._manifest(seat, names)}, True)
            for seat, names in enumerate(apart)
            if names
        ]

    async def _same(self, seats: Sequence[int], names: set[str]) -> dict[int, PieceManifest]:
        """Return the hashes of the files that are equal on these nodes; note the others as
        differing.
        """
        while names:
            read = await asyncio.gather(*(self._manifest(seat, names) for seat in seats))
            unlike = [
                await self._unlike(seats[0], seat, read[0], one)
                for seat, one in zip(seats[1:], read[1:], strict=True)
            ]
            differ = set().union(*unlike)
            if not differ:
                return dict(zip(seats, read, strict=True))
            self._differ |= differ
            names = names - differ
        return {}

    async def _unlike(
        self, first: int, other: int, mine: PieceManifest, theirs: PieceManifest
    ) -> set[str]:
        """Return the files that differ between two nodes despite equal names and sizes.

        Small files share pieces: they are halved until each group is the same, or one file. Of very
        many that differ some that do not may be among them.
        """
        unlike, differing = set[str](), [_in_other_pieces(mine, theirs)]
        while True:
            unlike |= set().union(*(one for one in differing if len(one) == 1))
            groups = [half for one in differing if len(one) > 1 for half in _halves(one)]
            if len(groups) > MOST_COMPARED:
                return unlike.union(*groups)
            if not groups:
                return unlike
            differing = await asyncio.gather(
                *(self._differing(first, other, one) for one in groups)
            )

    async def _differing(self, first: int, other: int, names: set[str]) -> set[str]:
        """Return which of these files are in pieces that differ."""
        return _in_other_pieces(
            *await asyncio.gather(*(self._manifest(seat, names) for seat in (first, other)))
        )

    def _folder_names(self) -> dict[int, str]:
        """Choose a folder for each node's differing files: its name, or one that no file has."""
        inside = (_within(self._path, name) for name in self._owners)
        taken = {PurePosixPath(one).parts[0].casefold() for one in inside}
        names: dict[int, str] = {}
        for seat, calls in enumerate(self._seats):
            name = file_name(calls.node)
            while name.casefold() in taken:
                name += "_"
            taken.add(name.casefold())
            names[seat] = name
        return names

    def _moved(self, manifest: PieceManifest, seat: int) -> PieceManifest:
        """Return the manifest with its files moved into the node's folder."""
        folder = PurePosixPath(self._path) / self._folders[seat]
        files = tuple(
            msgspec.structs.replace(one, path=str(folder / _within(self._path, one.path)))
            for one in manifest.files
        )
        return msgspec.structs.replace(manifest, files=files)

    async def _fetch_from(self, seat: int, count: Count) -> None:
        """Fetch pieces from a node until none is missing; faster nodes thus send more of them."""
        mine = [part for part in self._parts if seat in part.transfers]
        while seat not in self._lost and (part := await self._next(mine)) is not None:
            piece = part.missing.popleft()
            part.coming += 1
            try:
                await self._fetch(seat, part, piece)
                count.more()
            finally:
                part.coming -= 1
                async with self._news:
                    self._news.notify_all()

    async def _next(self, mine: Sequence[_Part]) -> _Part | None:
        """Return a part with missing pieces; ``None`` once no part has any or can have
        any again.
        """

        def first() -> _Part | None:
            return next((part for part in mine if part.missing), None)

        async with self._news:
            # What is on its way from another node may not come.
            await self._news.wait_for(lambda: first() or not any(part.coming for part in mine))
        return first()

    async def _fetch(self, seat: int, part: _Part, piece: int) -> None:
        calls, arriving = self._seats[seat], part.arriving
        try:
            content = await persist(partial(calls.piece, part.transfers[seat], piece))
            await asyncio.to_thread(arriving.write, piece, content)
            self._came[seat] += len(content)
        except SpecError:
            self._changing |= _files_in(arriving.manifest, piece)
        except MntrainError as error:
            if not isinstance(error, NodeError) and error.kind is not Kind.OUT_OF_TURN:
                raise
            self._lost[seat] = error  # it does not answer, or its agent has restarted
            part.missing.append(piece)

    def _refuse_unfinished(self) -> None:
        if self._changing:
            raise _changed(sorted(self._changing))
        if any(part.missing for part in self._parts):
            error = next(iter(self._lost.values()))
            pieces = sum(len(part.arriving.manifest.pieces) for part in self._parts)
            have = pieces - sum(len(part.missing) for part in self._parts)
            problem = msgspec.structs.replace(
                error.problem,
                cause=f"{error.cause}; {have} of {pieces} pieces are here and stay",
                fix="pull again once it answers: it resumes from what is here",
            )
            raise NodeError.of(problem)

    def _prepare(self) -> None:
        arrivings = [part.arriving for part in self._parts]
        arrivings[0].keep_only({file.path for one in arrivings for file in one.manifest.files})
        needed = sum(one.manifest.size_bytes for one in arrivings)
        for one in arrivings:
            needed -= one.manifest.size_bytes
            one.prepare(f"{self._job_id}:{self._path}\n", self._tell_checked, others_bytes=needed)

    def _tell_checked(self, done_bytes: int) -> None:
        what = f"checking what is here of {self._what}, MiB"
        self._progress.report(what, done_bytes // MIB, None)

    def _place(self) -> None:
        for part in self._parts:
            part.arriving.sync()
        first = self._parts[0].arriving
        refuse_existing(first.goal)
        first.place(self._path)

    async def _manifest(self, seat: int, names: set[str]) -> PieceManifest:
        """Have a node read files, and return the hashes of their pieces."""
        held, calls = self._held[seat], self._seats[seat]
        others = (one.path for one in held.files if one.path not in names)
        wanted = WantedFiles(self._path)
        asked = WantedFiles(self._path, without=tuple(filter(wanted.includes, others)))
        manifest = await _read_there(self._job_id, calls, asked, self._progress)
        told = {one.path for one in manifest.files}
        if told != names:
            raise RefusedError(
                f"{min(told ^ names)} appeared or disappeared on {calls.node} meanwhile",
                kind=Kind.OUT_OF_TURN,
                fix="try again: it resumes from what is here",
            )
        return manifest


def _halves(names: Collection[str]) -> tuple[set[str], set[str]]:
    ordered = sorted(names)
    half = len(ordered) // 2
    return set(ordered[:half]), set(ordered[half:])


def _within(path: str, name: str) -> str:
    """Return a file's path relative to the fetched folder; its name if it is itself fetched."""
    return PurePosixPath(name).name if name == path else name.removeprefix(path).lstrip("/")


def _in_other_pieces(mine: PieceManifest, theirs: PieceManifest) -> set[str]:
    """Return the files whose pieces differ between two manifests of the same names.

    If some have changed their sizes meanwhile: those.
    """
    sizes = zip(mine.files, theirs.files, strict=True)
    if grown := {one.path for one, other in sizes if one.size_bytes != other.size_bytes}:
        return grown
    pieces = enumerate(zip(mine.pieces, theirs.pieces, strict=True))
    unlike = (piece for piece, (one, other) in pieces if one != other)
    return set[str]().union(*(_files_in(mine, piece) for piece in unlike))


def _files_in(manifest: PieceManifest, piece: int) -> set[str]:
    """Return the files that a piece contains parts of."""
    ends = list(accumulate(one.size_bytes for one in manifest.files))
    begin = piece * manifest.piece_bytes
    end = begin + manifest.size_of(piece)
    files = manifest.files[bisect_right(ends, begin) : bisect_left(ends, end) + 1]
    return {one.path for one in files if one.size_bytes}


def _changed(paths: Sequence[str]) -> RefusedError:
    return RefusedError(
        f"{_named(paths)} changed while it was fetched",
        kind=Kind.OUT_OF_TURN,
        fix="try again once nothing writes to it: what else has come stays",
    )


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return f"{', '.join(paths[:MOST_NAMED])}{more}"
