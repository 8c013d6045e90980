"""Memory estimate: bytes that a rank will hold, part by part. Pure; imports no torch.

Weights, gradients and optimizer state are exact. Activations are what autograd saves of
transformers' layers, derived from their code and checked by measurement; temporary
buffers of the backward pass are not counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.recipe.devices.memory_estimate import MemoryEstimate
from jupyter_mntrain.recipe.optimizer.optimizer_memory import (
    FLOAT32,
    WIDTHS,
    gradient_width,
    optimizer_bytes,
    outer_bytes,
    update_bytes,
)
from jupyter_mntrain.recipe.optimizer.sharded_memory import held_values, shard_shape
from jupyter_mntrain.recipe.parts.adapters import (
    LinearShape,
    adapter_shapes,
    dequantizing_bytes,
    nf4_bytes,
)
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import LossKind, Recipe
from jupyter_mntrain.telemetry.formulas import ModelShape

LARGE_LOGITS_BYTES = 128 << 20
"""Size of a microbatch's float32 logits above which ``auto`` computes the loss in chunks."""


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
    offloads: bool = False
    """Whether activations are offloaded to the host."""
    kept_back: int = 0
    """Most microbatches whose gradients of weights are put off at once."""
    adapted: tuple[LinearShape, ...] | None = None
    """Shapes of linear layers with an adapter, beside which other parameters are frozen."""
    whole: tuple[tuple[int, ...], ...] = ()
    """Shapes of embedding and head, where these are trained beside adapters."""
    trains_head: bool = False
    """Whether the head is; likewise."""

    @property
    def freezes_head(self) -> bool:
        return self.adapted is not None and not self.trains_head

    @property
    def frozen(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the parameters that have no gradients."""
        if self.adapted is None:
            return ()
        return tuple((Counter(self.parameters) - Counter(self.whole)).elements())

    def trained(self, recipe: Recipe) -> tuple[tuple[int, ...], ...]:
        """Shapes of the parameters that have gradients."""
        if self.adapted is None:
            return self.parameters
        rank = recipe.adapters.rank
        beside = (one for linear in self.adapted for one in adapter_shapes(rank, linear))
        return (*beside, *self.whole)


def memory_estimate(
    shape: ModelShape, recipe: Recipe, stages: Iterable[StageShape]
) -> MemoryEstimate:
    """Estimate a rank's memory at the peak of a step, from the stages it holds."""
    stages = list(stages)
    trained = [one for stage in stages for one in stage.trained(recipe)]
    frozen = [one for stage in stages for one in stage.frozen]
    parameters = frozen + trained
    of_gradients = [math.prod(one) * gradient_width(recipe) for one in trained]
    waiting = {
        where: sum(
            saved_bytes(shape, recipe, one) * one.in_flight
            for one in stages
            if one.offloads == (where == "host")
        )
        for where in ("device", "host")
    }
    shards = recipe.data_parallel.shards
    weights, gradients = (
        held_values(
            recipe.data_parallel,
            some,
            layers=sum(stage.layers for stage in stages),
            vocabulary_size=shape.vocabulary_size,
        )
        for some in (parameters, trained)
    )
    width = WIDTHS[recipe.dtype]
    in_4_bits = [one for stage in stages for one in _quantized(recipe, stage)]
    saved = sum(math.prod(one) * width - nf4_bytes(one, width) for one in in_4_bits)
    # Each gradient is freed at once, unless it must wait for those of other microbatches.
    is_used = recipe.memory.fused_backward and _backwards(recipe) == 1
    at_work = sum(_layer_at_work(shape, recipe, one) for one in stages)
    loss = sum(_loss_bytes(shape, recipe, one) for one in stages if one.has_last)
    put_off = sum(_put_off_beside(shape, recipe, one) for one in stages)
    # The largest weights, of embedding and head, are updated while no layer is at work.
    freed = loss + at_work + put_off + (0 if recipe.memory.fused_backward else waiting["device"])
    return MemoryEstimate(
        weights=weights * width - saved,
        gradients=max(of_gradients, default=0) if is_used else gradients * gradient_width(recipe),
        optimizer=sum(
            count * optimizer_bytes(recipe, shard_shape(one, shards))
            for one, count in Counter(trained).items()
        ),
        activations=waiting["device"] + at_work,
        loss=loss,
        put_off=put_off,
        update=max(0, update_bytes(recipe, [shard_shape(one, shards) for one in trained]) - freed),
        transfers=sum(_transfer_bytes(shape, recipe, one) for one in stages),
        sent=sum(_sent_bytes(shape, recipe, one) for one in stages),
        dequantized=max((dequantizing_bytes(one, width) for one in in_4_bits), default=0),
        host=waiting["host"] + outer_bytes(recipe, (shard_shape(one, shards) for one in trained)),
    )


def _quantized(recipe: Recipe, stage: StageShape) -> tuple[LinearShape, ...]:
    """Shapes of a stage's weights that are kept in 4 bits."""
    return stage.adapted or () if recipe.adapters.quantizes else ()


def fitting_loss(recipe: Recipe, vocabulary_size: int) -> LossKind:
    """Return the recipe's loss, resolving ``auto`` without Liger."""
    if recipe.memory.loss != "auto":
        return recipe.memory.loss
    logits = FLOAT32 * _tokens(recipe) * vocabulary_size
    return "chunked" if logits > LARGE_LOGITS_BYTES else "plain"


def saved_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the bytes that autograd saves of one microbatch in a stage, without the loss."""
    width = WIDTHS[recipe.dtype]
    layer = _layer_bytes(shape, recipe)
    kept = {
        "none": layer,
        "full": width * shape.hidden_size,
        "selective": width * (shape.hidden_size + _product_values(shape)),
    }[recipe.checkpointing]
    ids = 8 if stage.has_first else 0
    rotations = 2 * width * shape.head_dim
    mask = width * recipe.data.sequence_length if _has_mask(shape, recipe) else 0
    norm = _norm_bytes(shape, shape.hidden_size, width) if stage.has_last else 0
    again = recipe.recomputed(stage.layers)
    layers = again * kept + (stage.layers - again) * layer + _adapter_bytes(recipe, stage, again)
    return _tokens(recipe) * (layers + ids + rotations + mask + norm)


def _adapter_bytes(recipe: Recipe, stage: StageShape, again: int = 0) -> int:
    """Bytes that autograd saves of a stage's adapters for one token.

    Of each: what its first matrix gives; with dropout, its input and the mask; where products are
    kept, what its second matrix gives.

    Args:
        again: layers that are recomputed.
    """
    width, section, kept = WIDTHS[recipe.dtype], recipe.adapters, 0
    for given, taken in stage.adapted or ():
        whole = width * section.rank + ((width + 1) * taken if section.dropout else 0)
        less = width * (section.rank + given) if recipe.checkpointing == "selective" else 0
        kept += (again * less + (stage.layers - again) * whole) // stage.layers
    return kept


def put_off_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the bytes that are kept of one microbatch while its gradients of weights are put off.

    Projections of the same input share it. The head is a part of the chunked losses, which compute
    its gradient with their own.
    """
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    inputs = 2 * shape.hidden_size + queries + shape.intermediate_size
    outputs = queries + 2 * keys + 2 * shape.hidden_size + shape.mlp_outputs
    has_head = stage.has_last and stage.loss == "plain" and not stage.freezes_head
    head = shape.hidden_size + shape.vocabulary_size if has_head else 0
    ranks = 2 * recipe.adapters.rank * len(stage.adapted or ())
    values = stage.layers * (inputs + outputs) + head + ranks
    return _tokens(recipe) * WIDTHS[recipe.dtype] * values


def _put_off_beside(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Bytes that are put off at most, beyond what microbatches in flight hold at most."""
    if not stage.kept_back:
        return 0
    microbatches, ahead = recipe.microbatches, stage.in_flight
    saved = 0 if stage.offloads else saved_bytes(shape, recipe, stage)
    each = put_off_bytes(shape, recipe, stage)
    most = 0
    # Around the backward pass after which there are as many put off, or fewer in flight.
    for done in {min(stage.kept_back, microbatches - 1), microbatches - ahead, microbatches - 1}:
        flying, kept = min(ahead, microbatches - done), min(stage.kept_back, done)
        most = max(most, flying * saved + kept * each, (flying - 1) * saved + (kept + 1) * each)
    return max(0, most - ahead * saved)


def _has_mask(shape: ModelShape, recipe: Recipe) -> bool:
    """Whether attention gets a mask, which its layers share; bfloat16 needs none on a GPU."""
    kind, on_cpu = recipe.model.attention, recipe.train.device == "cpu"
    has_kernel = kind == "auto" and recipe.dtype == "bfloat16" and not on_cpu
    needs = recipe.data.is_packed or shape.layer.is_capped
    masks = kind in {"auto", "sdpa"} and needs and not has_kernel
    return kind == "eager" or masks


def _layer_bytes(shape: ModelShape, recipe: Recipe) -> int:
    """Bytes that autograd saves in one layer for one token."""
    width, hidden = WIDTHS[recipe.dtype], shape.hidden_size
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    kind = shape.layer
    # Besides the norms, the inputs of attention and MLP.
    norms = kind.norms * _norm_bytes(shape, hidden, width) + 2 * width * hidden
    if kind.head_norm != "none":
        each = kind.head_norm == "each"
        norms += _norm_bytes(shape, queries, width, shape.heads if each else 1)
        norms += _norm_bytes(shape, keys, width, shape.key_value_heads if each else 1)
    if recipe.model.attention == "eager" or (kind.is_capped and _has_mask(shape, recipe)):
        # Keys and values repeated for every head; probabilities in float32 and the model's dtype.
        scores = shape.heads * recipe.data.sequence_length
        narrow = width if width != FLOAT32 else 0
        capped = width if kind.is_capped else 0
        attention = width * 4 * queries + scores * (FLOAT32 + narrow + capped)
    else:
        attention = width * 2 * (queries + keys) + FLOAT32 * shape.heads
    if kind.is_fused:
        attention += width * (queries + keys)
    mlp = width * kind.mlp_values * shape.intermediate_size
    return norms + attention + mlp


def _norm_bytes(shape: ModelShape, values: int, width: int, norms: int = 1) -> int:
    """Bytes that norms save: their float32 input and scale, and what they multiply by weights."""
    kind = shape.layer.norm
    if kind == "layer":  # input, mean and scale
        return width * values + 2 * FLOAT32 * norms
    normed = FLOAT32 if kind == "offset" else width
    return (FLOAT32 + normed) * values + FLOAT32 * norms


def _product_values(shape: ModelShape) -> int:
    """Values that a layer's matrix products and attention produce for one token."""
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    return 2 * queries + 2 * keys + 2 * shape.hidden_size + shape.mlp_outputs


def _layer_at_work(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Bytes of the one layer that is being recomputed, or fetched from the host before it."""
    is_kept_here = recipe.checkpointing == "none" and not stage.offloads
    if is_kept_here or not stage.layers:
        return 0
    layer = _tokens(recipe) * _layer_bytes(shape, recipe)
    layer += _tokens(recipe) * _adapter_bytes(recipe, stage) // stage.layers
    # While one is used, what was saved of the one before it is on its way.
    on_its_way = saved_bytes(shape, recipe, stage) // stage.layers if stage.offloads else 0
    return layer + on_its_way


def _loss_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Bytes from the last norm to the loss."""
    width, vocabulary = WIDTHS[recipe.dtype], shape.vocabulary_size
    tokens, normed = _tokens(recipe), width * shape.hidden_size
    # Float32 probabilities, and gradients of the same size in the backward pass.
    logits = (width + FLOAT32) * vocabulary
    gradients = (FLOAT32 + (width if width != FLOAT32 else 0)) * vocabulary
    if stage.loss == "plain":
        return tokens * (stage.in_flight * (normed + logits) + gradients)
    chunk, head = min(tokens, recipe.memory.chunk_tokens), width * shape.hidden_size * vocabulary
    if stage.loss == "liger":
        # Liger computes gradients in the forward pass.
        return stage.in_flight * (tokens * normed + head) + chunk * (logits + gradients)
    if not KINDS[recipe.schedule].splits_backward:
        # Float32 logits, a temporary copy, and where the labels are; autograd keeps nothing.
        logits, gradients = (2 * FLOAT32 + 1) * vocabulary, 0
    # A microbatch's gradient of the head, before it is added to that of the others; none of a
    # frozen one.
    added = head if _backwards(recipe) > 1 and not stage.freezes_head else 0
    return stage.in_flight * tokens * normed + chunk * (logits + gradients) + added


def _transfer_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    received = (not stage.has_first) + (not stage.has_last)
    return received * recipe.microbatches * _boundary_bytes(shape, recipe)


def _sent_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Bytes of what a stage has sent and torch still holds.

    torch's 1F1B waits for each send before the next: it holds the results that await their
    backward pass, and the last send. All other schedules keep every send, with its tensor, until
    the end of the step (``send_ops`` in ``torch/distributed/pipelining/schedules.py``); that of
    the two stages at the tip of a V, which exchange nothing, is counted, too.
    """
    count = onward = recipe.microbatches
    if recipe.schedule == "1f1b":
        count, onward = 2, stage.in_flight + 1
    held = onward * (not stage.has_last) + count * (not stage.has_first)
    return held * _boundary_bytes(shape, recipe)


def _boundary_bytes(shape: ModelShape, recipe: Recipe) -> int:
    """Bytes of a microbatch's hidden states, which stages exchange."""
    return _tokens(recipe) * shape.hidden_size * WIDTHS[recipe.dtype]


def _backwards(recipe: Recipe) -> int:
    """Backward passes whose gradients are added up in a step."""
    return recipe.train.accumulation * recipe.microbatches


def _tokens(recipe: Recipe) -> int:
    """Tokens per microbatch."""
    return recipe.microbatch_size * recipe.data.sequence_length
