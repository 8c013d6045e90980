"""Averaging over replicas, in the precision that goes over the network."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn import functional

from jupyter_mntrain.recipe.parts.data_parallel import BLOCK, SCALE_BYTES
from jupyter_mntrain.train.model.stages import DTYPES
from jupyter_mntrain.train.pipeline.replicas import ring_bytes

MOST = 127
"""In an int8 to both sides of zero."""


def average(values: torch.Tensor, dtype: str, group: dist.ProcessGroup) -> tuple[torch.Tensor, int]:
    """Average over all ranks of a group, which get the same bits. Collective.

    Args:
        values: flat, float32; may be overwritten.
        dtype: of what is sent: ``float32``, ``bfloat16`` or ``int8``.

    Returns:
        The mean in float32, and the bytes that this rank sent, and as many received.
    """
    count = dist.get_world_size(group)
    if dtype == "int8":
        return _average_quantized(values, count, group)
    sent = values.to(DTYPES[dtype])
    dist.all_reduce(sent, group=group)
    return sent.float().div_(count), ring_bytes(sent.nbytes, count)


def _average_quantized(
    values: torch.Tensor, count: int, group: dist.ProcessGroup
) -> tuple[torch.Tensor, int]:
    """Each rank averages an equal part of all: sums of int8 would overflow on their way."""
    parts = functional.pad(values, (0, -len(values) % (count * BLOCK))).view(count, -1)
    sent = quantized(parts)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    mean = quantized(restored(received).mean(dim=0, keepdim=True))
    means = sent.new_empty(sent.shape)
    dist.all_gather_into_tensor(means, mean, group=group)
    return restored(means).view(-1)[: len(values)], ring_bytes(sent.nbytes, count)


def quantized(rows: torch.Tensor) -> torch.Tensor:
    """Bytes of each row: an int8 per value, then a float32 scale per :data:`BLOCK` values.

    Args:
        rows: float32, of whole blocks.
    """
    blocks = rows.view(len(rows), -1, BLOCK)
    scales = blocks.abs().amax(dim=-1, keepdim=True) / MOST
    whole = (blocks / scales.where(scales != 0, 1.0)).round_().nan_to_num_().to(torch.int8)
    parts = (whole.view(len(rows), -1), scales.view(len(rows), -1).view(torch.int8))
    return torch.cat(parts, dim=1)


def restored(rows: torch.Tensor) -> torch.Tensor:
    """The float32 values of :func:`quantized`; NaN in a block with one that was not finite."""
    blocks = rows.shape[1] // (BLOCK + SCALE_BYTES)
    whole, scales = torch.split(rows, [blocks * BLOCK, blocks * SCALE_BYTES], dim=1)
    scales = scales.contiguous().view(torch.float32).unsqueeze(-1)
    values: torch.Tensor = whole.reshape(len(rows), blocks, BLOCK) * scales
    return values.view(len(rows), -1)
