"""Shard copies: sends files between ranks, keeps a second copy of every shard on the next node.

Where each node has its own disk, a lost node would otherwise take its layers with it.

Shards go over a process group of their own, from the thread that wrote them: training goes on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from jupyter_mntrain.model import tunables
from jupyter_mntrain.train.checkpoint.directory import shard_name
from jupyter_mntrain.train.world import World

LEFT_FREE_BYTES = tunables.size("train.disk_left_free_bytes")

PIECE_BYTES = tunables.size("train.checkpoint_piece_bytes")

_NOTHING = -1
"""Said instead of a size: this rank has no shard to send."""
_HAVE_IT, _SEND_IT, _NO_ROOM = 0, 1, 2


class Neighbors:
    """Who keeps a copy of this rank's shard, and of whose shards this rank keeps one.

    Every rank makes one at the same time.

    Args:
        hosts: of all ranks.
    """

    def __init__(self, world: World, hosts: Sequence[str]) -> None:
        keepers = keepers_of(hosts)
        self._rank = world.rank
        self._keeper = keepers[world.rank]
        self._kept = [rank for rank, keeper in enumerate(keepers) if keeper == world.rank]
        self._group = dist.new_group(backend="gloo")

    def exchange(self, shard: Path | None, folder: Callable[[], Path]) -> str | None:
        """Send our shard and take those that we keep; why that failed, if it did. Every rank calls
        it for the same save.

        Args:
            shard: ours; ``None`` if it could not be written.
            folder: where others' are put.
        """
        problems = []
        # All go through all in one order, so nobody waits for somebody who waits for him.
        for rank in sorted({self._rank, *self._kept}):
            try:
                if rank == self._rank:
                    problems.append(self._send(shard))
                else:
                    problems.append(self._take(rank, folder))
            except (OSError, RuntimeError) as error:
                problems.append(f"copying failed: {error}")
        return next((one for one in problems if one), None)

    def _send(self, shard: Path | None) -> str | None:
        if self._keeper is not None:
            send_file(shard, self._keeper, self._group)
        return None

    def _take(self, rank: int, folder: Callable[[], Path]) -> str | None:
        return take_file(lambda: folder() / shard_name(rank), rank, self._group)


def send_file(path: Path | None, rank: int, group: dist.ProcessGroup | None = None) -> None:
    """Send a file to a rank that calls :func:`take_file`, unless it has it.

    Args:
        path: ``None`` if there is none: the other side waits to hear of it.
    """
    size = _NOTHING if path is None else path.stat().st_size
    _tell(size, rank, group)
    if path is None or _hear(rank, group) != _SEND_IT:
        return
    with path.open("rb") as file:
        while piece := bytearray(file.read(PIECE_BYTES)):
            dist.send(torch.frombuffer(piece, dtype=torch.uint8), rank, group=group)


def take_file(
    where: Callable[[], Path], rank: int, group: dist.ProcessGroup | None = None
) -> str | None:
    """Take a file from a rank that calls :func:`send_file`; why that failed, if it did.

    Args:
        where: it is to lie. What is there with the same size is taken to be it: a directory that
            all share has it already.
    """
    size = _hear(rank, group)
    if size == _NOTHING:
        return None
    try:
        path = where()
        is_here = path.exists() and path.stat().st_size == size
        if not is_here:
            refuse_to_fill(path.parent, size)
    except OSError as error:
        _tell(_NO_ROOM, rank, group)
        return str(error)
    _tell(_HAVE_IT if is_here else _SEND_IT, rank, group)
    return None if is_here else _receive(path, rank, size, group)


def _receive(path: Path, rank: int, size: int, group: dist.ProcessGroup | None) -> str | None:
    """All of it is received also when the disk fails: the sender waits."""
    problem = None
    with path.open("wb") as file:
        for begin in range(0, size, PIECE_BYTES):
            piece = torch.empty(min(PIECE_BYTES, size - begin), dtype=torch.uint8)
            dist.recv(piece, rank, group=group)
            try:
                file.write(piece.numpy().tobytes())
            except OSError as error:
                problem = str(error)
    sync(path)
    return problem


def _tell(number: int, rank: int, group: dist.ProcessGroup | None) -> None:
    dist.send(torch.tensor([number]), rank, group=group)


def _hear(rank: int, group: dist.ProcessGroup | None) -> int:
    number = torch.zeros(1, dtype=torch.int64)
    dist.recv(number, rank, group=group)
    return int(number)


def keepers_of(hosts: Sequence[str]) -> list[int | None]:
    """Who keeps a copy of each rank's shard: a rank on the next node; on one node nobody."""
    ranks: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, []).append(rank)
    names = list(ranks)
    if len(names) < 2:
        return [None] * len(hosts)
    keepers: list[int | None] = []
    for rank, host in enumerate(hosts):
        there = ranks[names[(names.index(host) + 1) % len(names)]]
        keepers.append(there[ranks[host].index(rank) % len(there)])
    return keepers


def all_hosts(world: World) -> tuple[str, ...]:
    """The nodes that ranks run on, by rank. Every rank calls it."""
    hosts = [""] * world.size
    dist.all_gather_object(hosts, world.host, group=world.group)
    return tuple(hosts)


def refuse_to_fill(folder: Path, size_bytes: int) -> None:
    """Raises:
    OSError: so many bytes more would leave the disk with less than it needs.
    """
    free = shutil.disk_usage(folder).free
    if size_bytes > free - LEFT_FREE_BYTES:
        raise OSError(
            f"{size_bytes / 1e9:.1f} GB do not fit into {folder.parent}, where "
            f"{free / 1e9:.1f} GB are free"
        )


def sync(path: Path) -> None:
    """Have a file survive a power cut."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
