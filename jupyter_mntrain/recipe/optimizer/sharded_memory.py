"""Sharded memory: how many values of sharded weights or gradients a rank holds at once. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jupyter_mntrain.recipe.parts.data_parallel import DataParallelSection

GATHERED_LAYERS = 2
"""Layers whose weights exist at once where each layer's are dropped after use: the one at work, and
the buffer in which the next one's arrive, or the gradients of the one before leave."""


def shard_shape(parameter: tuple[int, ...], shards: int) -> tuple[int, ...]:
    """Shape of the largest shard of a parameter: some of its rows."""
    return (-(-parameter[0] // shards), *parameter[1:])


def held_values(
    section: DataParallelSection,
    parameters: Sequence[tuple[int, ...]],
    *,
    layers: int,
    vocabulary_size: int,
) -> int:
    """Return the most values that a rank holds of these parameters, or of their gradients.

    Its own rows, and what is gathered: all, or with ``reshard_after_forward`` embedding, head and
    few layers.
    """
    whole = sum(map(math.prod, parameters))
    if section.shards == 1:
        return whole
    own = sum(math.prod(shard_shape(one, section.shards)) for one in parameters)
    if not section.reshard_after_forward or not layers:
        return own + whole
    ends = end_values(parameters, vocabulary_size)
    return own + min(whole, ends + GATHERED_LAYERS * (whole - ends) // layers)


def end_values(parameters: Sequence[tuple[int, ...]], vocabulary_size: int) -> int:
    """Values of embedding and head."""
    return sum(math.prod(one) for one in parameters if one[0] == vocabulary_size)
