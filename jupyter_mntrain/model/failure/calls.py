"""Calls: a rank's latest calls of torch.distributed, from torch's flight recorder."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record


class Call(Record, frozen=True):
    """A call of a collective.

    Args:
        seq: its number among the collectives of its group, from 1; the same on every rank.
        name: ``all_reduce``.
        tensors: what must be the same on every rank: ``1024 float32``; empty if nothing must be.
        is_over: this rank has done its part.
    """

    seq: int
    name: str
    tensors: str = ""
    is_over: bool = False

    @property
    def said(self) -> str:
        """The call as text, like ``all_reduce (seq 4, 1024 float32)``."""
        return f"{self.name} (seq {self.seq}{', ' if self.tensors else ''}{self.tensors})"


class GroupCalls(Record, frozen=True):
    """The last collectives of a rank in one process group, in order.

    Args:
        group: torch's name of it, the same on every rank; ``0`` is the default group.
        backend: ``gloo`` or ``nccl``.
    """

    group: str
    backend: str
    calls: tuple[Call, ...]
