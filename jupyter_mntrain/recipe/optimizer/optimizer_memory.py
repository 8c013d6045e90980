"""Optimizer memory: bytes of its state, and of the copies that a step makes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from jupyter_mntrain.model import tunables
from jupyter_mntrain.recipe.sections import OptimizerKind, Recipe

FLOAT32 = 4
WIDTHS = {"float32": 4, "bfloat16": 2}
"""Bytes per value."""

FEWEST_QUANTIZED = 4096
"""Values of the smallest tensor that is quantized, as in bitsandbytes."""

UPDATED_AT_ONCE_BYTES = tunables.size("train.updated_at_once_bytes")
"""Most bytes of parameters, in float32, whose temporary float32 copies exist at once."""

_BLOCKS: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 128}
"""Values that share a float32 scale in torchao."""

_CODES: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 16}
"""Entries of the float32 lookup table that each quantized tensor has."""


def gradient_width(recipe: Recipe) -> int:
    """Bytes per value of a gradient."""
    is_wide = recipe.optimizer.grad_dtype == "float32"
    return FLOAT32 if is_wide else WIDTHS[recipe.dtype]


def quantized_block(kind: OptimizerKind, values: int, per_row: int = 0) -> int | None:
    """Return how many values of a tensor share a scale; ``None`` if it is not quantized.

    Args:
        per_row: values in a row, where ranks have rows of it: none of them has a part of a block.
    """
    block = _BLOCKS.get(kind)
    if block is None or values < FEWEST_QUANTIZED or (per_row or values) % block:
        return None
    return block


def optimizer_bytes(recipe: Recipe, parameter: tuple[int, ...]) -> int:
    """Return the bytes of optimizer state for a parameter of this shape."""
    values, kind = math.prod(parameter), recipe.optimizer.kind
    width = WIDTHS[recipe.dtype]
    # Bytes per value of the updated tensor: the parameter, or a lasting or temporary float32 copy.
    updated = width if recipe.precision == "plain" else FLOAT32
    master = FLOAT32 * values if recipe.precision == "float32-master" else 0
    step = FLOAT32
    if kind == "adafactor":
        return step + master + updated * _factored_values(parameter)
    average = (width if recipe.precision == "stochastic-rounding" else updated) * values
    if kind != "adamw":
        average = updated * values
    shards = recipe.data_parallel.shards
    per_row = math.prod(parameter[1:]) if shards > 1 else 0
    block = quantized_block(kind, values * shards, per_row)
    if block is not None:
        codes = values if kind == "adamw-8bit" else values // 2
        average = codes + FLOAT32 * (values // block + _CODES[kind])
    return step + master + 2 * average


def outer_bytes(recipe: Recipe, parameters: Iterable[tuple[int, ...]]) -> int:
    """Bytes in host memory of what replicas that meet rarely keep between meetings: the weights of
    the last one, and their momentum, in float32; and of a fragment that is under way.
    """
    section = recipe.data_parallel
    if not section.meets_rarely:
        return 0
    values = sum(map(math.prod, parameters))
    copies = 2 if section.outer_momentum else 1
    held = math.ceil(values / section.sync_fragments) if section.sync_delay else 0
    return FLOAT32 * (copies * values + held)


def update_bytes(recipe: Recipe, parameters: Iterable[tuple[int, ...]]) -> int:
    """Bytes of the float32 copies that exist at once while weights are updated.

    Of one parameter, or of several of at most :data:`UPDATED_AT_ONCE_BYTES`. A compiled kernel for
    stochastic rounding has none.
    """
    given = gradient_width(recipe)
    has_narrow_targets = recipe.precision == "plain"
    if has_narrow_targets and given == WIDTHS[recipe.dtype]:
        return 0
    sizes = [FLOAT32 * math.prod(one) for one in parameters]
    most = max(sizes, default=0)
    if not recipe.memory.fused_backward:
        most = max(most, min(sum(sizes), UPDATED_AT_ONCE_BYTES))
    if has_narrow_targets:
        return most // 2  # gradients, cast to bfloat16
    cast = 0 if given == FLOAT32 else most
    if recipe.precision == "float32-master":
        return cast
    # Weights, gradients, and AdamW's averages if they are plain; less gradients that were cast.
    return cast - cast // 2 + most * (3 if recipe.optimizer.kind == "adamw" else 1)


def _factored_values(parameter: tuple[int, ...]) -> int:
    """Values in Adafactor's state: one per row and column, or all of a vector."""
    if len(parameter) <= 1:
        return math.prod(parameter)
    *others, rows, columns = parameter
    return math.prod(others) * (rows + columns)
