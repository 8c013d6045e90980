"""Memory estimate: bytes that a rank will hold, part by part. Pure; imports no torch.

Weights, gradients and optimizer state are exact. Activations are what autograd saves of
transformers' Llama-like layers, derived from their code and checked by measurement; temporary
buffers of the backward pass are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.recipe.sections import LossKind, OptimizerKind, Recipe
from jupyter_mntrain.telemetry.formulas import ModelShape

FLOAT32 = 4
WIDTHS = {"float32": 4, "bfloat16": 2}
"""Bytes per value."""

FEWEST_QUANTIZED = 4096
"""Values of the smallest tensor that is quantized, as in bitsandbytes."""

LARGE_LOGITS_BYTES = 128 << 20
"""Size of a microbatch's float32 logits above which ``auto`` computes the loss in chunks."""

_BLOCKS: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 128}
"""Values that share a float32 scale in torchao."""

_CODES: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 16}
"""Entries of the float32 lookup table that each quantized tensor has."""


class StageShape(Record, frozen=True):
    """What the memory of a stage depends on."""

    parameters: tuple[tuple[int, ...], ...]
    """Their shapes."""
    layers: int
    has_first: bool
    has_last: bool
    in_flight: int
    """Most microbatches that await their backward pass at once."""
    loss: LossKind = "plain"
    norms_heads: bool = False
    """Whether queries and keys are normalized, as in Qwen3."""
    offloads: bool = False
    """Whether activations are offloaded to the host."""


class MemoryEstimate(Record, frozen=True):
    """Bytes that one rank holds."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    loss: int = 0
    transfers: int = 0
    """Receive buffers: torch has one for every microbatch."""
    host: int = 0
    """Offloaded activations, which are not part of the total."""

    @property
    def total(self) -> int:
        return sum(self._parts().values())

    def _parts(self) -> dict[str, int]:
        names = (name for name in self.__struct_fields__ if name != "host")
        return {name: getattr(self, name) for name in names}

    @property
    def shown_parts(self) -> str:
        return " + ".join(f"{name} {_shown(size)}" for name, size in self._parts().items() if size)

    @property
    def shown_total(self) -> str:
        host = f", and {_shown(self.host)} on the host" if self.host else ""
        return f"{_shown(self.total)}{host}"

    def __str__(self) -> str:
        return f"{self.shown_parts} = {self.shown_total}"


def memory_estimate(
    shape: ModelShape, recipe: Recipe, stages: Iterable[StageShape]
) -> MemoryEstimate:
    """Estimate a rank's memory at the peak of a step, from the stages it holds."""
    stages = list(stages)
    parameters = [one for stage in stages for one in stage.parameters]
    width = WIDTHS[recipe.model.dtype]
    backwards = recipe.train.accumulation * recipe.pipeline.microbatches
    sizes = [math.prod(one) * width for one in parameters]
    waiting = {
        where: sum(
            saved_bytes(shape, recipe, one) * one.in_flight
            for one in stages
            if one.offloads == (where == "host")
        )
        for where in ("device", "host")
    }
    shards = recipe.data_parallel.shards
    # Sharded weights are gathered for a step; the rank's own rows come on top.
    kept = sum(math.prod(_rows(one, shards)) * width for one in parameters) if shards > 1 else 0
    # Each gradient is freed at once, unless it must wait for those of other microbatches.
    is_used_up = recipe.memory.fused_backward and backwards == 1
    return MemoryEstimate(
        weights=sum(sizes) + kept,
        gradients=max(sizes, default=0) if is_used_up else sum(sizes) + kept,
        optimizer=sum(optimizer_bytes(recipe, _rows(one, shards)) for one in parameters),
        activations=waiting["device"] + sum(_layer_at_work(shape, recipe, one) for one in stages),
        loss=sum(_loss_bytes(shape, recipe, one) for one in stages if one.has_last),
        transfers=sum(_transfer_bytes(shape, recipe, one) for one in stages),
        host=waiting["host"],
    )


def _rows(parameter: tuple[int, ...], shards: int) -> tuple[int, ...]:
    """Shape of the largest shard of a parameter."""
    return (-(-parameter[0] // shards), *parameter[1:])


def fitting_loss(recipe: Recipe, vocabulary_size: int) -> LossKind:
    """Return the recipe's loss, resolving ``auto`` without Liger."""
    if recipe.memory.loss != "auto":
        return recipe.memory.loss
    logits = FLOAT32 * _tokens(recipe) * vocabulary_size
    return "chunked" if logits > LARGE_LOGITS_BYTES else "plain"


def quantized_block(kind: OptimizerKind, values: int) -> int | None:
    """Return how many values of a tensor share a scale; ``None`` if it is not quantized."""
    block = _BLOCKS.get(kind)
    if block is None or values < FEWEST_QUANTIZED or values % block:
        return None
    return block


def optimizer_bytes(recipe: Recipe, parameter: tuple[int, ...]) -> int:
    """Return the bytes of optimizer state for a parameter of this shape."""
    values, kind = math.prod(parameter), recipe.optimizer.kind
    width = WIDTHS[recipe.model.dtype]
    # Bytes per value of the updated tensor: the parameter, or a lasting or temporary float32 copy.
    updated = width if recipe.precision == "plain" else FLOAT32
    master = FLOAT32 * values if recipe.precision == "float32-master" else 0
    step = FLOAT32
    if kind == "adafactor":
        return step + master + updated * _factored_values(parameter)
    average = (width if recipe.precision == "stochastic-rounding" else updated) * values
    if kind != "adamw":
        average = updated * values
    block = quantized_block(kind, values)
    if block is not None:
        codes = values if kind == "adamw-8bit" else values // 2
        average = codes + FLOAT32 * (values // block + _CODES[kind])
    return step + master + 2 * average


def saved_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the bytes that autograd saves of one microbatch in a stage, without the loss."""
    width = WIDTHS[recipe.model.dtype]
    layer = _layer_bytes(shape, recipe, norms_heads=stage.norms_heads)
    kept = {
        "none": layer,
        "full": width * shape.hidden_size,
        "selective": width * (shape.hidden_size + _product_values(shape)),
    }[recipe.memory.checkpointing]
    ids = 8 if stage.has_first else 0
    rotations = 2 * width * shape.head_dim
    mask = width * recipe.data.sequence_length if recipe.model.attention == "eager" else 0
    norm = _norm_bytes(shape.hidden_size, width) if stage.has_last else 0
    return _tokens(recipe) * (stage.layers * kept + ids + rotations + mask + norm)


def _layer_bytes(shape: ModelShape, recipe: Recipe, *, norms_heads: bool) -> int:
    """Bytes that autograd saves in one layer for one token."""
    width, hidden = WIDTHS[recipe.model.dtype], shape.hidden_size
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    norms = 2 * (_norm_bytes(hidden, width) + width * hidden)
    if norms_heads:
        norms += _norm_bytes(queries, width, shape.heads)
        norms += _norm_bytes(keys, width, shape.key_value_heads)
    if recipe.model.attention == "eager":
        # Keys and values repeated for every head; probabilities in float32 and the model's dtype.
        scores = shape.heads * recipe.data.sequence_length
        narrow = width if width != FLOAT32 else 0
        attention = width * 4 * queries + scores * (FLOAT32 + narrow)
    else:
        attention = width * 2 * (queries + keys) + FLOAT32 * shape.heads
    gated_mlp = width * 4 * shape.intermediate_size
    return norms + attention + gated_mlp


def _norm_bytes(values: int, width: int, norms: int = 1) -> int:
    """Bytes that norms save: their float32 input and scale, and their output."""
    return (FLOAT32 + width) * values + FLOAT32 * norms


def _product_values(shape: ModelShape) -> int:
    """Values that a layer's matrix products and attention produce for one token."""
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    return 2 * queries + 2 * keys + 2 * shape.hidden_size + 2 * shape.intermediate_size


def _layer_at_work(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Bytes of the one layer that is being recomputed, or fetched from the host."""
    is_kept_here = recipe.memory.checkpointing == "none" and not stage.offloads
    if is_kept_here or not stage.layers:
        return 0
    return _tokens(recipe) * _layer_bytes(shape, recipe, norms_heads=stage.norms_heads)


def _loss_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Bytes from the last norm to the loss."""
    width, vocabulary = WIDTHS[recipe.model.dtype], shape.vocabulary_size
    tokens, normed = _tokens(recipe), width * shape.hidden_size
    # Float32 probabilities, and gradients of the same size in the backward pass.
    logits = (width + FLOAT32) * vocabulary
    gradients = (FLOAT32 + (width if width != FLOAT32 else 0)) * vocabulary
    if stage.loss == "plain":
        return tokens * (stage.in_flight * (normed + logits) + gradients)
    at_once = min(tokens, recipe.memory.chunk_tokens) * (logits + gradients)
    if stage.loss == "liger":
        # Liger computes gradients in the forward pass.
        made = tokens * normed + width * shape.hidden_size * vocabulary
        return stage.in_flight * made + at_once
    return stage.in_flight * tokens * normed + at_once


def _transfer_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    boundary = _tokens(recipe) * shape.hidden_size * WIDTHS[recipe.model.dtype]
    received = (not stage.has_first) + (not stage.has_last)
    return received * recipe.pipeline.microbatches * boundary


def _factored_values(parameter: tuple[int, ...]) -> int:
    """Values in Adafactor's state: one per row and column, or all of a vector."""
    if len(parameter) <= 1:
        return math.prod(parameter)
    *others, rows, columns = parameter
    return math.prod(others) * (rows + columns)


def _tokens(recipe: Recipe) -> int:
    """Tokens per microbatch."""
    return recipe.microbatch_size * recipe.data.sequence_length


def _shown(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
