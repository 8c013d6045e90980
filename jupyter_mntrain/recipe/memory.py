"""Memory estimate: bytes that a rank will hold, part by part. Pure; imports no torch.

Weights, gradients and optimizer are exact. Activations are what autograd saves of transformers'
Llama-like layers, read off their code and measured; beside them a backward pass needs some room
for what it is just computing, which nobody counts here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.recipe.sections import LossKind, OptimizerKind, Recipe
from jupyter_mntrain.telemetry.formulas import ModelShape

FLOAT32 = 4
WIDTHS = {"float32": 4, "bfloat16": 2}
"""Bytes of a value."""

FEWEST_QUANTIZED = 4096
"""Values; smaller tensors are few bytes and keep their precision, as in bitsandbytes."""

LARGE_LOGITS_BYTES = 128 << 20
"""Of a microbatch, in float32. Less is not worth projecting twice."""

_BLOCKS: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 128}
"""Values that share a float32 scale: torchao's own sizes."""

_CODES: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 16}
"""Values that a code can stand for: a float32 table of them comes with every tensor."""


class StageShape(Record, frozen=True):
    """A stage as far as memory depends on it."""

    parameters: tuple[tuple[int, ...], ...]
    """The shape of each."""
    layers: int
    has_first: bool
    has_last: bool
    in_flight: int
    """Microbatches whose backward pass is still to come, at most."""
    loss: LossKind = "plain"
    norms_heads: bool = False
    """Whether queries and keys are normalized, as in Qwen3."""
    offloads: bool = False
    """Whether what waits for its backward pass waits on the host."""


class MemoryEstimate(Record, frozen=True):
    """Bytes on one rank."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    loss: int = 0
    transfers: int = 0
    """Received activations and gradients: torch has a buffer for every microbatch."""
    host: int = 0
    """Offloaded activations: not on the device, and not in the total."""

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
    """Of a rank that holds these stages, at the moment of a step when it holds most."""
    stages = list(stages)
    parameters = [one for stage in stages for one in stage.parameters]
    width = WIDTHS[recipe.model.dtype]
    backwards = recipe.train.accumulation * recipe.pipeline.microbatches
    sizes = [math.prod(one) * width for one in parameters]
    # Used up one by one, unless they have to wait for the gradients of other microbatches.
    waiting = {
        where: sum(
            saved_bytes(shape, recipe, one) * one.in_flight
            for one in stages
            if one.offloads == (where == "host")
        )
        for where in ("device", "host")
    }
    shards = recipe.data_parallel.shards
    # Beside the whole, which is gathered for a step, the rows that this rank keeps.
    kept = sum(math.prod(_rows(one, shards)) * width for one in parameters) if shards > 1 else 0
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
    """What one of so many ranks keeps of a parameter of this shape, at most."""
    return (-(-parameter[0] // shards), *parameter[1:])


def fitting_loss(recipe: Recipe, vocabulary_size: int) -> LossKind:
    """What the recipe asks for; ``auto`` where there is no Liger."""
    if recipe.memory.loss != "auto":
        return recipe.memory.loss
    logits = FLOAT32 * _tokens(recipe) * vocabulary_size
    return "chunked" if logits > LARGE_LOGITS_BYTES else "plain"


def quantized_block(kind: OptimizerKind, values: int) -> int | None:
    """How many values of a tensor share a scale; ``None`` if it is not quantized."""
    block = _BLOCKS.get(kind)
    if block is None or values < FEWEST_QUANTIZED or values % block:
        return None
    return block


def optimizer_bytes(recipe: Recipe, parameter: tuple[int, ...]) -> int:
    """What the optimizer remembers of a parameter of this shape."""
    values, kind = math.prod(parameter), recipe.optimizer.kind
    width = WIDTHS[recipe.model.dtype]
    # What is updated: the parameter, a float32 copy of it, or one that is there for the moment.
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
    """What autograd saves of one microbatch in a stage, without the loss."""
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
    """What one layer saves of one token."""
    width, hidden = WIDTHS[recipe.model.dtype], shape.hidden_size
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    norms = 2 * (_norm_bytes(hidden, width) + width * hidden)
    if norms_heads:
        norms += _norm_bytes(queries, width, shape.heads)
        norms += _norm_bytes(keys, width, shape.key_value_heads)
    if recipe.model.attention == "eager":
        # Keys and values repeated for every head; probabilities in float32, then as the model is.
        scores = shape.heads * recipe.data.sequence_length
        narrow = width if width != FLOAT32 else 0
        attention = width * 4 * queries + scores * (FLOAT32 + narrow)
    else:
        attention = width * 2 * (queries + keys) + FLOAT32 * shape.heads
    gated_mlp = width * 4 * shape.intermediate_size
    return norms + attention + gated_mlp


def _norm_bytes(values: int, width: int, norms: int = 1) -> int:
    """Of so many values in so many norms: what goes in, in float32, its scale, and what is left."""
    return (FLOAT32 + width) * values + FLOAT32 * norms


def _product_values(shape: ModelShape) -> int:
    """What the matrix products and the attention of a layer give for one token."""
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    return 2 * queries + 2 * keys + 2 * shape.hidden_size + 2 * shape.intermediate_size


def _layer_at_work(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """The one layer that is computed again, or brought back, just now."""
    is_kept_here = recipe.memory.checkpointing == "none" and not stage.offloads
    if is_kept_here or not stage.layers:
        return 0
    return _tokens(recipe) * _layer_bytes(shape, recipe, norms_heads=stage.norms_heads)


def _loss_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """From the last norm to the loss."""
    width, vocabulary = WIDTHS[recipe.model.dtype], shape.vocabulary_size
    tokens, normed = _tokens(recipe), width * shape.hidden_size
    # Probabilities in float32, of which the backward pass makes as many gradients.
    logits = (width + FLOAT32) * vocabulary
    gradients = (FLOAT32 + (width if width != FLOAT32 else 0)) * vocabulary
    if stage.loss == "plain":
        return tokens * (stage.in_flight * (normed + logits) + gradients)
    at_once = min(tokens, recipe.memory.chunk_tokens) * (logits + gradients)
    if stage.loss == "liger":
        # It makes the gradients in the forward pass.
        made = tokens * normed + width * shape.hidden_size * vocabulary
        return stage.in_flight * made + at_once
    return stage.in_flight * tokens * normed + at_once


def _transfer_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    boundary = _tokens(recipe) * shape.hidden_size * WIDTHS[recipe.model.dtype]
    received = (not stage.has_first) + (not stage.has_last)
    return received * recipe.pipeline.microbatches * boundary


def _factored_values(parameter: tuple[int, ...]) -> int:
    """Adafactor's: one per row and one per column, or all of a vector."""
    if len(parameter) <= 1:
        return math.prod(parameter)
    *others, rows, columns = parameter
    return math.prod(others) * (rows + columns)


def _tokens(recipe: Recipe) -> int:
    """Of a microbatch."""
    return recipe.microbatch_size * recipe.data.sequence_length


def _shown(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
