"""Split parameters: each of the ranks that share them has some of their rows, and its state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from jupyter_mntrain.recipe.optimizer.sharded_memory import shard_shape

_FLAT = (".codes", ".scale")
"""Parts of torchao's quantized averages, which hold the values of a row one after the other."""


class Split(NamedTuple):
    """How parameters are split.

    Args:
        group: the ranks that share them.
        rows: begin and end of this rank's rows, by parameter.
        whole: all rows, by parameter.
    """

    group: dist.ProcessGroup
    rows: Mapping[str, tuple[int, int]]
    whole: Mapping[str, int]

    def largest(self, name: str, part: torch.Tensor) -> int:
        """Values of the largest part of a parameter, of which this rank has ``part``: the same on
        all ranks, also on one that has no rows of it.
        """
        whole = (self.whole[name], *part.shape[1:])
        return math.prod(shard_shape(whole, self.group.size()))

    def add_up(self, parts: Sequence[torch.Tensor]) -> None:
        """Replace tensors by their sums over the ranks. Collective."""
        flat = torch.cat([one.reshape(-1).float() for one in parts])
        dist.all_reduce(flat, group=self.group)
        sums = torch.split(flat, [one.numel() for one in parts])
        for one, total in zip(parts, sums, strict=True):
            one.copy_(total.view_as(one))


def rows_of_state(
    state: str, tensor: torch.Tensor, parameter: torch.Tensor, rows: tuple[int, int]
) -> tuple[int, int] | None:
    """Rows of an optimizer's whole tensor that a rank has; ``None`` if it has all of it.

    Args:
        state: its kind, such as ``exp_avg`` or ``exp_avg.scale``.
        parameter: the rank's part, of these rows.
    """
    begin, end = rows
    if state.endswith(_FLAT) and tensor.shape != parameter.shape:
        each = len(tensor) // max(1, end - begin)
        return begin * each, end * each
    if state.endswith("col_var"):
        return rows if tensor.ndim > 2 else None
    is_split = state.endswith("row_var") or tensor.shape == parameter.shape
    return rows if is_split else None
