"""The process group of a session: formed, broken to end a collective, and formed again."""

from __future__ import annotations

import gc
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

DESCRIPTORS: Final = Path("/proc/self/fd")
STORE_TIMEOUT: Final = timedelta(minutes=5)
NEVER: Final = timedelta(days=7)
"""A collective of a session waits for people who write the next line."""


class SessionGroup:
    """The group of all ranks, which cells use as torch's default group.

    Args:
        device: of this rank.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.is_broken = False
        self.times = -1
        """How often it has been formed again."""
        # torchrun's own store, which outlives every group.
        self._store, self._rank, self._size = next(rendezvous("env://", timeout=STORE_TIMEOUT))
        self._kept = {number for number, _ in _connections()}
        self._peers: set[str] = set()
        self.form(0)

    def form(self, times: int) -> None:
        """Form the group again. Collective.

        Args:
            times: the same on all ranks; nothing is done if that has been done.
        """
        if times <= self.times:
            return
        if dist.is_initialized():
            with suppress(RuntimeError, ValueError):
                dist.destroy_process_group()
            gc.collect()  # tracebacks of a broken collective keep its group, with threads and files
        backend = "cpu:gloo,cuda:nccl" if self._device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend,
            store=PrefixStore(f"session/{times}", self._store),
            rank=self._rank,
            world_size=self._size,
            timeout=NEVER,
        )
        dist.barrier()  # connects all
        self._peers = {peer for number, peer in _connections() if number not in self._kept}
        self.times, self.is_broken = times, False

    def least_idle_s(self, own_s: float) -> float:
        """Tell the other ranks how long this one has been idle, and return the shortest of all.

        Called every few seconds, by a thread of its own; what others told may be as old as that.
        Without torchrun's store, whose node is gone, each decides alone.
        """
        told = [f"session/idle/{rank}" for rank in range(self._size)]
        try:
            self._store.set(told[self._rank], str(own_s))
            if not self._store.check(told):
                return 0.0  # some rank has told nothing yet
            return min(float(one) for one in self._store.multi_get(told))
        except (RuntimeError, ValueError):
            return own_s

    def break_off(self) -> None:
        """Close the connections to other ranks, so that a collective on any of them ends with an
        error. Callable from any thread.

        Gloo cannot be told to stop waiting (its ``abort`` does nothing, torch 2.13); NCCL can.
        """
        self.is_broken = True
        if self._device.type == "cuda":
            abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
            if abort is not None:
                with suppress(RuntimeError, ValueError):
                    abort()
        for number, peer in _connections():
            if peer in self._peers and number not in self._kept:
                with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
                    one.shutdown(socket.SHUT_RDWR)


def _connections() -> Iterator[tuple[int, str]]:
    """Yield the descriptors of this process's TCP connections, and the other end's address."""
    for path in DESCRIPTORS.iterdir():
        with suppress(OSError):
            number = int(path.name)
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as one:
                if one.family in {socket.AF_INET, socket.AF_INET6}:
                    yield number, one.getpeername()[0]
