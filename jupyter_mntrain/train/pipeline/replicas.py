"""Replicas: sums of what parallel pipelines have, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.quantities import by_size

BUCKET_BYTES = tunables.size("train.gradient_bucket_bytes")


def add_up(gradients: Iterable[torch.Tensor], group: dist.ProcessGroup) -> int:
    """All-reduce gradients over the replicas, in buckets; the sums are bitwise equal.

    Args:
        gradients: in the same order on every rank of the group; of one dtype.

    Returns:
        Bytes sent, and as many received, by this rank in a ring all-reduce.
    """
    total = 0
    for bucket in by_size(gradients, lambda one: one.nbytes, BUCKET_BYTES):
        flat = torch.cat([one.reshape(-1) for one in bucket])
        dist.all_reduce(flat, group=group)
        sums = torch.split(flat, [one.numel() for one in bucket])
        torch._foreach_copy_(
            bucket, [part.view_as(one) for part, one in zip(sums, bucket, strict=True)]
        )
        total += flat.nbytes
    return ring_bytes(total, dist.get_world_size(group))


def ring_bytes(size_bytes: int, ranks: int) -> int:
    """Bytes that a rank sends, and as many that it receives, in a ring all-reduce."""
    return 2 * size_bytes * (ranks - 1) // ranks
