"""Requests to a job (save, stop), taken by all of its ranks at the same step."""

from __future__ import annotations

import torch
import torch.distributed as dist

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.telemetry.controls import ControlReader


class Wish(Record, frozen=True):
    """What is wanted after this step.

    Args:
        save: of everything, now.
        stop: to end after this step; ``save`` is then wanted, too.
    """

    save: bool = False
    stop: bool = False


class SharedWishes:
    """Rank 0 reads for all: one node's agent hears of a wish a step before another's.

    Where a process group is there, the first to ask makes one on gloo, together with all others:
    asking then waits for no GPU.

    Args:
        reader: what stands in this node's file of controls.
    """

    def __init__(self, reader: ControlReader) -> None:
        self._reader = reader
        self._group: dist.ProcessGroup | None = None

    def ask(self) -> Wish:
        """After an optimizer step, on all ranks: the same answer on each."""
        if self._group is None:
            if not _is_shared():
                return self._read()
            self._group = dist.new_group(backend="gloo")
        votes = torch.zeros(2, dtype=torch.uint8)
        if dist.get_rank() == 0:
            wish = self._read()
            votes[0], votes[1] = wish.save, wish.stop
        dist.broadcast(votes, src=0, group=self._group)
        save, stop = votes.tolist()
        return Wish(save=bool(save), stop=bool(stop))

    def saved(self) -> None:
        """Once this rank has saved; returns when all have."""
        self._reader.saved()
        if self._group is not None:
            dist.barrier(group=self._group)

    def _read(self) -> Wish:
        stop = self._reader.wants_stop()
        return Wish(save=stop or self._reader.wants_save(), stop=stop)


def _is_shared() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
