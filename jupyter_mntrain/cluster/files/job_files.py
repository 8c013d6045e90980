"""Job files: what a job wrote on its nodes, and how it comes home into one folder."""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster.files.pushing import ASK_INTERVAL_S
from jupyter_mntrain.cluster.files.swarm import MIB
from jupyter_mntrain.launch.files.arriving import Arriving
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import check_manifest, transfer_of
from jupyter_mntrain.launch.files.records import JobFiles, PieceManifest, WantedFiles
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.launch.project.tree import check_paths, sha256_of
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId

AT_ONCE = 2
"""Pieces from each node: one comes while the other is asked for. A cut loses what is on its way."""
MOST_NAMED = 3
"""Files that an error names."""
MOST_COMPARED = 20
"""Files of one name on two nodes that are compared one by one, to name those that differ."""


class WrittenFiles(Record, frozen=True):
    """What a job wrote.

    Args:
        nodes: by name: what it wrote there.
        silent: by name: why a node does not say it.
    """

    nodes: dict[str, JobFiles]
    silent: dict[str, Problem] = {}

    @property
    def count(self) -> int:
        """Those of one name on several nodes count once; not so in folders with too many."""
        if any(one.count > len(one.files) for one in self.nodes.values()):
            return sum(one.count for one in self.nodes.values())
        return len(self.paths)

    @property
    def size_bytes(self) -> int:
        """Of all of them, on all nodes."""
        return sum(one.size_bytes for one in self.nodes.values())

    @property
    def paths(self) -> list[str]:
        """Sorted; of a folder with too many files, not all."""
        return sorted({file.path for one in self.nodes.values() for file in one.files})


class PulledFiles(Record, frozen=True):
    """What has come home of a job.

    Args:
        path: the file, or the folder of all of them.
        nodes: bytes that came from each, this time.
        left_out: what is no file, and why, by node and path.
    """

    job_id: JobId
    path: str
    count: int
    size_bytes: int
    nodes: dict[str, int]
    took_s: float
    left_out: dict[str, str] = {}


async def fetch_job_files(
    job_id: JobId, seats: Sequence[FileCalls], path: str, to: Path, progress: Progress
) -> PulledFiles:
    """Bring what a job wrote on nodes into one folder here. What has come stays for the next time.

    Args:
        path: a file or folder of it; empty for all.
        to: what it is called here; it must not exist.

    Raises:
        RefusedError: nobody has it, two nodes have files of one name and different content, the
            disk is full, or a file changes while it is fetched.
        NodeError: a node does not answer.
    """
    held = await asyncio.gather(*(persist(partial(one.job_files, job_id, path)) for one in seats))
    owners = _owners(held, WantedFiles(path))
    if not owners:
        raise RefusedError(
            f"job {job_id} wrote no {path or 'file'} on {', '.join(one.node for one in seats)}",
            kind=Kind.NO_FILE,
            fix=f"see what it wrote: mntrain pull {job_id} --list",
        )
    check_paths(list(owners))
    return await _Fetching(job_id, seats, path, held, owners, progress).bring(to)


async def read_job_file(
    job_id: JobId, calls: FileCalls, path: str, progress: Progress = SILENT
) -> tuple[int, AsyncIterator[bytes]]:
    """The size of one file, and its content from its beginning, as it was when that was asked for.

    Raises:
        RefusedError: there is no such file; while it is read, also that it has changed.
        NodeError: the node does not answer.
    """
    manifest = await _read_there(job_id, calls, WantedFiles(path), progress)
    if [one.path for one in manifest.files] != [path]:
        raise RefusedError(f"{path} is a folder", fix=f"fetch it: mntrain pull {job_id}:{path}")
    transfer = transfer_of(job_id, "", manifest)

    async def pieces() -> AsyncIterator[bytes]:
        for piece, digest in enumerate(manifest.pieces):
            content = await persist(partial(calls.piece, transfer, piece))
            if sha256_of(content) != digest:
                raise _changed([path])
            yield content

    return manifest.size_bytes, pieces()


async def _read_there(
    job_id: JobId, calls: FileCalls, asked: WantedFiles, progress: Progress
) -> PieceManifest:
    """Hashes of files of a node, which reads them."""
    while (hashing := await persist(partial(calls.offered, job_id, asked))).manifest is None:
        what = f"{calls.node} reads its files, MiB"
        progress.report(what, hashing.done_bytes // MIB, hashing.total_bytes // MIB)
        await asyncio.sleep(ASK_INTERVAL_S)
    check_manifest(hashing.manifest)
    return hashing.manifest


def _owners(held: Sequence[JobFiles], wanted: WantedFiles) -> dict[str, list[int]]:
    """The nodes that have a file, by its path."""
    owners: dict[str, list[int]] = {}
    for seat, files in enumerate(held):
        for one in files.files:
            if wanted.includes(one.path):
                owners.setdefault(one.path, []).append(seat)
    return owners


@dataclass
class _Part:
    """Files that the same nodes have: each of them may give any piece.

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
        manifests = await self._manifests()
        key = hashlib.sha256(f"{self._job_id}:{self._path}".encode()).hexdigest()
        for of in manifests:
            arriving = Arriving(to, to.parent, key, next(iter(of.values())), is_shared=True)
            transfers = {seat: transfer_of(self._job_id, "", one) for seat, one in of.items()}
            self._parts.append(_Part(arriving, transfers))
        await asyncio.to_thread(self._prepare, to)
        for part in self._parts:
            pieces = range(len(part.arriving.manifest.pieces))
            part.missing.extend(one for one in pieces if one not in part.arriving.held)
        missing = sum(len(part.missing) for part in self._parts)
        count = Count(self._progress, f"pulling {self._path or self._job_id}, pieces", missing)
        try:
            async with asyncio.TaskGroup() as group:
                for seat in list(self._came) * AT_ONCE:
                    group.create_task(self._fetch_from(seat, count))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        self._refuse_unfinished()
        self._progress.report("writing to the disk", 0, None)
        await asyncio.to_thread(self._place)
        return PulledFiles(
            job_id=self._job_id,
            path=str(to),
            count=len(self._owners),
            size_bytes=sum(part.arriving.manifest.size_bytes for part in self._parts),
            nodes={self._seats[seat].node: size for seat, size in self._came.items()},
            took_s=0.0,
            left_out={
                f"{calls.node}: {name}": why
                for calls, held in zip(self._seats, self._held, strict=True)
                for name, why in held.left_out.items()
                if WantedFiles(self._path).includes(name)
            },
        )

    async def _manifests(self) -> list[dict[int, PieceManifest]]:
        """Hashes of all files, from each node that has them; what only one node has comes first.

        Raises:
            RefusedError: two nodes have files of one name that are not the same.
        """
        sizes = [{one.path: one.size_bytes for one in held.files} for held in self._held]
        alike: dict[tuple[int, ...], set[str]] = {}
        unlike: set[str] = set()
        for name, seats in self._owners.items():
            if len({sizes[seat][name] for seat in seats}) > 1:
                unlike.add(name)
            else:
                alike.setdefault(tuple(seats), set()).add(name)
        found = []
        for seats, names in sorted(alike.items(), key=lambda one: len(one[0])):
            read = await asyncio.gather(*(self._manifest(seat, names) for seat in seats))
            of = dict(zip(seats, read, strict=True))
            for seat in seats[1:]:
                unlike |= await self._unlike(of[seats[0]], of[seat], seats[0], seat)
            found.append(of)
        if unlike:
            self._refuse(sorted(unlike))
        return found

    async def _unlike(
        self, mine: PieceManifest, theirs: PieceManifest, first: int, other: int
    ) -> set[str]:
        """Which files, that two nodes have with the same sizes, are not the same."""
        found = _in_other_pieces(mine, theirs)
        if len(mine.files) == 1 or not found:
            return found
        # Small files share pieces.
        unlike: set[str] = set()
        for name in sorted(found)[:MOST_COMPARED]:
            one = [await self._manifest(seat, {name}) for seat in (first, other)]
            unlike |= _in_other_pieces(*one)
        return unlike or found

    def _refuse(self, unlike: Sequence[str]) -> None:
        names = [self._seats[seat].node for seat in self._owners[unlike[0]]]
        raise RefusedError(
            f"{_named(unlike)}: not the same on {' and '.join(names)}",
            fix=f"fetch those of one node, and then of the other: --node {names[0]}",
        )

    async def _fetch_from(self, seat: int, count: Count) -> None:
        """Fetch pieces that a node has until none is missing. The faster one, the more it gives."""
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
        """A part that misses pieces; ``None`` once none does, and none can any more."""

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
                cause=f"{error.cause}; {have} of {pieces} pieces are here, and stay",
                fix="pull again once it answers: that goes on with what is here",
            )
            raise NodeError.of(problem)

    def _prepare(self, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        arrivings = [part.arriving for part in self._parts]
        needed = sum(one.manifest.size_bytes for one in arrivings)
        for one in arrivings:
            needed -= one.manifest.size_bytes
            one.prepare(f"{self._job_id}:{self._path}\n", self._tell_checked, others_bytes=needed)
        arrivings[0].keep_only(self._owners)

    def _tell_checked(self, done_bytes: int) -> None:
        self._progress.report("checking what is here, MiB", done_bytes // MIB, None)

    def _place(self) -> None:
        for part in self._parts:
            part.arriving.sync()
        self._parts[0].arriving.place(self._path)

    async def _manifest(self, seat: int, names: set[str]) -> PieceManifest:
        """Hashes of files of a node, which reads them."""
        held, calls = self._held[seat], self._seats[seat]
        others = (one.path for one in held.files if one.path not in names)
        wanted = WantedFiles(self._path)
        asked = WantedFiles(self._path, without=tuple(filter(wanted.includes, others)))
        manifest = await _read_there(self._job_id, calls, asked, self._progress)
        told = {one.path for one in manifest.files}
        if told != names:
            raise RefusedError(
                f"{min(told ^ names)} came or went on {calls.node} meanwhile",
                kind=Kind.OUT_OF_TURN,
                fix="try again: what has come stays",
            )
        return manifest


def _in_other_pieces(mine: PieceManifest, theirs: PieceManifest) -> set[str]:
    """Files of two lists, of the same names and sizes, with pieces that are not the same."""
    unlike = (
        piece
        for piece, (one, other) in enumerate(zip(mine.pieces, theirs.pieces, strict=True))
        if one != other
    )
    return set().union(*(_files_in(mine, piece) for piece in unlike))


def _files_in(manifest: PieceManifest, piece: int) -> set[str]:
    """The files that a piece has parts of."""
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
