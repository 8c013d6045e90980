"""Job files: what a job wrote on its nodes, and how it comes home into one folder."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jupyter_mntrain.cluster.files.pushing import ASK_INTERVAL_S
from jupyter_mntrain.cluster.files.swarm import MIB
from jupyter_mntrain.launch.files.arriving import Arriving
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import check_manifest, transfer_of
from jupyter_mntrain.launch.files.records import JobFiles, PieceManifest, WantedFiles
from jupyter_mntrain.launch.progress import Count, Progress
from jupyter_mntrain.launch.project.tree import check_paths
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RefusedError
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
        nodes: bytes that came from each.
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
    held = await asyncio.gather(*(persist(partial(one.job_files, job_id)) for one in seats))
    owners = _owners(held, WantedFiles(path))
    if not owners:
        raise RefusedError(
            f"job {job_id} wrote no {path or 'file'} on {', '.join(one.node for one in seats)}",
            kind=Kind.NO_FILE,
            fix=f"see what it wrote: mntrain status {job_id}",
        )
    check_paths(list(owners))
    fetching = _Fetching(job_id, seats, path, held, owners, progress)
    await fetching.refuse_unlike()
    return await fetching.bring(to)


def _owners(held: Sequence[JobFiles], wanted: WantedFiles) -> dict[str, list[int]]:
    """The nodes that have a file, by its path."""
    owners: dict[str, list[int]] = {}
    for seat, files in enumerate(held):
        for one in files.files:
            if wanted.includes(one.path):
                owners.setdefault(one.path, []).append(seat)
    return owners


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

    async def refuse_unlike(self) -> None:
        """Refuse if two nodes have files of one name that are not the same.

        Raises:
            RefusedError: as told.
        """
        sizes = [{one.path: one.size_bytes for one in held.files} for held in self._held]
        unlike: set[str] = set()
        pairs: dict[tuple[int, int], set[str]] = {}
        for name, seats in self._owners.items():
            for other in seats[1:]:
                if sizes[other][name] != sizes[seats[0]][name]:
                    unlike.add(name)
                else:
                    pairs.setdefault((seats[0], other), set()).add(name)
        for (first, other), names in pairs.items():
            unlike |= await self._unlike(first, other, names)
        if unlike:
            self._refuse(sorted(unlike))

    async def _unlike(self, first: int, other: int, names: set[str]) -> set[str]:
        """Which files, that two nodes have with the same sizes, are not the same."""
        mine, theirs = await asyncio.gather(
            self._manifest(first, names), self._manifest(other, names)
        )
        found = _in_other_pieces(mine, theirs)
        if len(names) == 1 or not found:
            return found
        # Small files share pieces.
        each = [await self._unlike(first, other, {name}) for name in sorted(found)[:MOST_COMPARED]]
        return set().union(*each) or found

    def _refuse(self, unlike: Sequence[str]) -> None:
        named = ", ".join(unlike[:MOST_NAMED])
        more = f" and {len(unlike) - MOST_NAMED} more" if len(unlike) > MOST_NAMED else ""
        names = [self._seats[seat].node for seat in self._owners[unlike[0]]]
        raise RefusedError(
            f"{named}{more}: not the same on {' and '.join(names)}",
            fix=f"fetch those of one node, and then of the other: --node {names[0]}",
        )

    async def bring(self, to: Path) -> PulledFiles:
        """Fetch each file from the first node that has it."""
        own = [
            {name for name, seats in self._owners.items() if seats[0] == seat}
            for seat in range(len(self._seats))
        ]
        giving = [seat for seat, names in enumerate(own) if names]
        manifests = await asyncio.gather(*(self._manifest(seat, own[seat]) for seat in giving))
        key = hashlib.sha256(f"{self._job_id}:{self._path}".encode()).hexdigest()
        arrivings = [Arriving(to, to.parent, key, one, is_shared=True) for one in manifests]
        await asyncio.to_thread(self._prepare, to, arrivings)
        missing = [
            (seat, arriving, piece)
            for seat, arriving in zip(giving, arrivings, strict=True)
            for piece in sorted(set(range(len(arriving.manifest.pieces))) - arriving.held)
        ]
        count = Count(self._progress, f"pulling {self._path or self._job_id}, pieces", len(missing))
        turns = {seat: asyncio.Semaphore(AT_ONCE) for seat in giving}

        async def fetch(seat: int, arriving: Arriving, piece: int) -> None:
            calls = self._seats[seat]
            transfer = transfer_of(self._job_id, "", arriving.manifest)
            async with turns[seat]:
                content = await persist(lambda: calls.piece(transfer, piece))
                await asyncio.to_thread(arriving.write, piece, content)
            count.more()

        try:
            async with asyncio.TaskGroup() as group:
                for one in missing:
                    group.create_task(fetch(*one))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        await asyncio.to_thread(self._place, arrivings)
        return PulledFiles(
            job_id=self._job_id,
            path=str(to),
            count=len(self._owners),
            size_bytes=sum(one.size_bytes for one in manifests),
            nodes={
                self._seats[seat].node: one.size_bytes
                for seat, one in zip(giving, manifests, strict=True)
            },
            took_s=0.0,
            left_out={
                f"{calls.node}: {name}": why
                for calls, held in zip(self._seats, self._held, strict=True)
                for name, why in held.left_out.items()
                if WantedFiles(self._path).includes(name)
            },
        )

    def _prepare(self, to: Path, arrivings: Sequence[Arriving]) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        for one in arrivings:
            one.prepare(f"{self._job_id}:{self._path}\n")
        arrivings[0].keep_only(self._owners)

    def _place(self, arrivings: Sequence[Arriving]) -> None:
        for one in arrivings:
            one.sync()
        arrivings[0].place(self._path)

    async def _manifest(self, seat: int, names: set[str]) -> PieceManifest:
        """Hashes of files of a node, which reads them."""
        held, calls = self._held[seat], self._seats[seat]
        others = (one.path for one in held.files if one.path not in names)
        wanted = WantedFiles(self._path)
        asked = WantedFiles(self._path, without=tuple(filter(wanted.includes, others)))
        while True:
            hashing = await persist(lambda: calls.offered(self._job_id, asked))
            if hashing.manifest is not None:
                check_manifest(hashing.manifest)
                told = {one.path for one in hashing.manifest.files}
                if told != names:
                    raise RefusedError(
                        f"{min(told ^ names)} came or went on {calls.node} meanwhile",
                        kind=Kind.OUT_OF_TURN,
                        fix="try again: what has come stays",
                    )
                return hashing.manifest
            what = f"{calls.node} reads its files, MiB"
            self._progress.report(what, hashing.done_bytes // MIB, hashing.total_bytes // MIB)
            await asyncio.sleep(ASK_INTERVAL_S)


def _in_other_pieces(mine: PieceManifest, theirs: PieceManifest) -> set[str]:
    """Files of two lists, of the same names and sizes, with pieces that are not the same."""
    found: set[str] = set()
    begin = 0
    for one in mine.files:
        end = begin + one.size_bytes
        pieces = range(begin // mine.piece_bytes, -(-end // mine.piece_bytes))
        if any(mine.pieces[piece] != theirs.pieces[piece] for piece in pieces):
            found.add(one.path)
        begin = end
    return found
