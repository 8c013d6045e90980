"""Requests to a job: save and stop, relayed to all of its ranks at the same step."""

from __future__ import annotations

import torch
import torch.distributed as dist

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.telemetry.controls import ControlReader


class Wish(Record, frozen=True):
    """What was requested of the job.

    Args:
        save: save a checkpoint now.
        stop: end after this step; then ``save`` is set, too.
    """

    save: bool = False
    stop: bool = False


class SharedWishes:
    """Requests as rank 0 reads them, broadcast to all ranks.

    A request may reach one node's agent a step earlier than another's. In a distributed run, the
    first :meth:`ask` creates a gloo group, so that asking never waits for a GPU.

    Args:
        reader: reads this node's control file.
    """

    def __init__(self, reader: ControlReader) -> None:
        self._reader = reader
        self._group: dist.ProcessGroup | None = None

    def ask(self) -> Wish:
        """Return the requests after an optimizer step. Collective: the same on all ranks."""
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
        """Confirm that this rank has saved; return once all have. Collective."""
        self._reader.saved()
        if self._group is not None:
            dist.barrier(group=self._group)

    def _read(self) -> Wish:
        stop = self._reader.wants_stop()
        return Wish(save=stop or self._reader.wants_save(), stop=stop)


def _is_shared() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
