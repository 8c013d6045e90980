"""Shard copies: send files between ranks, and keep a second copy of every shard on the next node.

Without copies, losing a node that has its own disk loses its layers. Shards travel over a separate
process group, from the thread that wrote them, so training continues.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from jupyter_mntrain.launch.checkpoints.directory import shard_name
from jupyter_mntrain.model import tunables
from jupyter_mntrain.train.world import World

LEFT_FREE_BYTES = tunables.size("train.disk_left_free_bytes")

PIECE_BYTES = 16 * 2**20
"""Bytes of a checkpoint that are sent at once: small, so that a step's own data never waits
long."""

_NOTHING = -1
"""Sent instead of a size: this rank has no shard to send."""
_HAVE_IT, _SEND_IT, _NO_ROOM = 0, 1, 2


class Neighbors:
    """Exchanges shards: this rank's goes to its keeper, and others' copies come here.

    Collective: every rank must construct one at the same time.

    Args:
        hosts: the node of each rank, by rank.
    """

    def __init__(self, world: World, hosts: Sequence[str]) -> None:
        keepers = keepers_of(hosts)
        self._rank = world.rank
        self._keeper = keepers[world.rank]
        self._kept = [rank for rank, keeper in enumerate(keepers) if keeper == world.rank]
        self._group = dist.new_group(backend="gloo")

    def exchange(self, shard: Path | None, folder: Callable[[], Path]) -> Exception | None:
        """Send this rank's shard and receive the copies it keeps. Collective, once per save.

        Args:
            shard: this rank's; ``None`` if it could not be written.
            folder: returns the directory for received copies, creating it.

        Returns:
            Why it failed, or ``None``.
        """
        problem: Exception | None = None
        # Every rank uses the same order, so two ranks never wait for each other.
        for rank in sorted({self._rank, *self._kept}):
            try:
                if rank != self._rank:
                    failed = take_file(folder, shard_name(rank), rank, self._group)
                    problem = problem or failed
                elif self._keeper is not None:
                    send_file(shard, self._keeper, self._group)
            except (OSError, RuntimeError) as error:
                problem = problem or error
        return problem


def send_file(path: Path | None, rank: int, group: dist.ProcessGroup | None = None) -> None:
    """Send a file to a rank that calls :func:`take_file`, unless that rank already has it.

    Args:
        path: ``None`` tells the receiver that there is no file.
    """
    size = _NOTHING if path is None else path.stat().st_size
    _tell(size, rank, group)
    if path is None or _hear(rank, group) != _SEND_IT:
        return
    with path.open("rb") as file:
        while piece := bytearray(file.read(PIECE_BYTES)):
            dist.send(torch.frombuffer(piece, dtype=torch.uint8), rank, group=group)


def take_file(
    folder: Callable[[], Path], name: str, rank: int, group: dist.ProcessGroup | None = None
) -> OSError | None:
    """Receive a file from a rank that calls :func:`send_file`.

    An existing file of the same size is assumed to be the same one: in a directory that all nodes
    share it is.

    Args:
        folder: returns the directory to write to, creating it.
        name: of the file in it.

    Returns:
        Why it failed, or ``None``.
    """
    size = _hear(rank, group)
    if size == _NOTHING:
        return None
    try:
        path = folder() / name
        is_here = path.exists() and path.stat().st_size == size
        if not is_here:
            refuse_to_fill(path.parent, size)
    except OSError as error:
        _tell(_NO_ROOM, rank, group)
        return error
    _tell(_HAVE_IT if is_here else _SEND_IT, rank, group)
    return None if is_here else _receive(path, rank, size, group)


def _receive(path: Path, rank: int, size: int, group: dist.ProcessGroup | None) -> OSError | None:
    """Receive the whole file even if the disk fails, since the sender would block otherwise."""
    problem: OSError | None = None
    with path.open("wb") as file:
        for begin in range(0, size, PIECE_BYTES):
            piece = torch.empty(min(PIECE_BYTES, size - begin), dtype=torch.uint8)
            dist.recv(piece, rank, group=group)
            try:
                file.write(piece.numpy().tobytes())
            except OSError as error:
                problem = error
    sync(path)
    return problem


def _tell(number: int, rank: int, group: dist.ProcessGroup | None) -> None:
    dist.send(torch.tensor([number]), rank, group=group)


def _hear(rank: int, group: dist.ProcessGroup | None) -> int:
    number = torch.zeros(1, dtype=torch.int64)
    dist.recv(number, rank, group=group)
    return int(number)


def keepers_of(hosts: Sequence[str]) -> list[int | None]:
    """Return the rank that keeps a copy of each rank's shard: one on the next node, if any."""
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


def refuse_to_fill(folder: Path, size_bytes: int) -> None:
    """Check that ``size_bytes`` more fit on the disk.

    Raises:
        OSError: less than :data:`LEFT_FREE_BYTES` would stay free.
    """
    free = shutil.disk_usage(folder).free
    if size_bytes > free - LEFT_FREE_BYTES:
        need = f"{(size_bytes + LEFT_FREE_BYTES) / 1e6:,.0f} MB"
        told = f"{free / 1e6:,.0f} MB are free, and {need} are needed"
        raise OSError(errno.ENOSPC, told, str(folder.parent))


def sync(path: Path) -> None:
    """Flush a file to disk, so that it survives a power failure."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
