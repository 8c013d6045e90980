"""Memory estimate: the bytes that each rank of a recipe will hold, by part. Pure; no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_mntrain.families import (
    families,
    family_of,
    linears,
    normal,
    parameters,
    shape_of,
    wrong_count,
)
from jupyter_mntrain.families.directories import CONFIG, read_object, refuse_directory
from jupyter_mntrain.launch.files.hub_names import hub_copy, hub_id, snapshot
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.instructions import counts_without_links
from jupyter_mntrain.recipe.layout import Layout, lay_out
from jupyter_mntrain.recipe.parse import check, preset_config
from jupyter_mntrain.recipe.schedules import BATCHED, KINDS, ScheduleName
from jupyter_mntrain.recipe.sections import (
    DataParallelSection,
    LinearShape,
    LossKind,
    OptimizerKind,
    Recipe,
    adapted,
    adapter_shapes,
    check_base,
    dequantizing_bytes,
    nf4_bytes,
)
from jupyter_mntrain.recipe.transfers import FORMATS, Format, Transfer, wire_bytes
from jupyter_mntrain.telemetry.formulas import ModelShape

# Sharded memory: how many values of sharded weights or gradients a rank holds at once. Pure.


GATHERED_LAYERS = 2
"""Layers whose weights exist at once where each layer's are dropped after use: the one at work, and
the buffer in which the next one's arrive, or the gradients of the one before leave."""


def shard_shape(parameter: tuple[int, ...], shards: int) -> tuple[int, ...]:
    """Return the shape of the largest shard of a parameter: some of its rows."""
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
    """Count the values of embedding and head."""
    return sum(math.prod(one) for one in parameters if one[0] == vocabulary_size)


# Optimizer memory: bytes of its state, and of the copies that a step makes. Pure.


FLOAT32 = 4
WIDTHS = {"float32": 4, "bfloat16": 2}
"""Bytes per value."""

FEWEST_QUANTIZED = 4096
"""Values of the smallest tensor that is quantized, as in bitsandbytes."""

# Parameters, in float32, whose float32 copies the optimizer holds at once: few kernels against
# memory.
UPDATED_AT_ONCE_BYTES = 256 * 2**20
"""Most bytes of parameters, in float32, whose temporary float32 copies exist at once."""

_BLOCKS: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 128}
"""Values that share a float32 scale in torchao."""

_CODES: dict[OptimizerKind, int] = {"adamw-8bit": 256, "adamw-4bit": 16}
"""Entries of the float32 lookup table that each quantized tensor has."""


def gradient_width(recipe: Recipe) -> int:
    """Return the bytes per value of a gradient."""
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
    """Return the bytes in host memory that rarely syncing replicas keep between syncs.

    They are weights and momentum of the last sync in float32, and the fragment in transit.
    """
    section = recipe.data_parallel
    if not section.syncs_rarely:
        return 0
    values = sum(map(math.prod, parameters))
    copies = 2 if section.outer_momentum else 1
    held = math.ceil(values / section.sync_fragments) if section.sync_delay else 0
    return FLOAT32 * (copies * values + held)


def update_bytes(recipe: Recipe, parameters: Iterable[tuple[int, ...]]) -> int:
    """Return the bytes of the float32 copies that exist at once while weights are updated.

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
    """Count the values in Adafactor's state: one per row and column, or all of a vector."""
    if len(parameter) <= 1:
        return math.prod(parameter)
    *others, rows, columns = parameter
    return math.prod(others) * (rows + columns)


# Memory that a rank will hold, part by part, as it is shown. Pure.


class MemoryEstimate(Record, frozen=True):
    """The bytes that one rank holds."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    loss: int = 0
    deferred: int = 0
    """Inputs of linear layers, and gradients of their outputs, that are kept until the gradients of
    their weights are computed."""
    transfers: int = 0
    """Receive buffers: torch has one for every microbatch."""
    sent: int = 0
    """Activations and gradients that were sent, until torch forgets them."""
    update: int = 0
    """Temporary float32 copies of the optimizer's step, where they exceed what is freed by then:
    activations and loss."""
    dequantized: int = 0
    """Of the largest weight in 4 bits, while it is computed with: its values, and what they are
    made from."""
    host: int = 0
    """Not part of the total: offloaded activations, and what is kept between rare syncs."""

    @property
    def total(self) -> int:
        return sum(self._parts().values())

    def _parts(self) -> dict[str, int]:
        names = (name for name in self.__struct_fields__ if name != "host")
        return {name: getattr(self, name) for name in names}

    @property
    def shown_parts(self) -> str:
        return " + ".join(
            f"{name} {shown_bytes(size)}" for name, size in self._parts().items() if size
        )

    @property
    def shown_total(self) -> str:
        host = f", and {shown_bytes(self.host)} on the host" if self.host else ""
        return f"{shown_bytes(self.total)}{host}"

    def __str__(self) -> str:
        return f"{self.shown_parts} = {self.shown_total}"


def shown_bytes(size: int) -> str:
    """Format a size in decimal units, as GPUs are sold."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


# Memory estimate: bytes that a rank will hold, part by part. Pure; imports no torch.
#
# Weights, gradients and optimizer state are exact. Activations are what autograd saves of
# transformers' layers, derived from their code and checked by measurement; temporary
# buffers of the backward pass are not counted.


LARGE_LOGITS_BYTES = 128 << 20
"""Size of a microbatch's float32 logits above which ``auto`` computes the loss in chunks."""


class StageShape(Record, frozen=True):
    """The properties of a stage that its memory depends on."""

    parameters: tuple[tuple[int, ...], ...]
    """The shapes of its parameters."""
    layers: int
    has_first: bool
    has_last: bool
    in_flight: int
    """Most microbatches that await their backward pass at once."""
    loss: LossKind = "plain"
    offloads: bool = False
    """Whether activations are offloaded to the host."""
    deferred: int = 0
    """Most microbatches whose gradients of weights are deferred at once."""
    adapted: tuple[LinearShape, ...] | None = None
    """Shapes of linear layers with an adapter, next to which other parameters are frozen."""
    whole: tuple[tuple[int, ...], ...] = ()
    """Shapes of embedding and head, where these are trained alongside adapters."""
    trains_head: bool = False
    """Whether the head is trained alongside adapters."""
    transfers: tuple[Transfer, Transfer] = ("none", "none")
    """How the boundaries before and after it send."""

    @property
    def freezes_head(self) -> bool:
        return self.adapted is not None and not self.trains_head

    @property
    def frozen(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters that have no gradients."""
        if self.adapted is None:
            return ()
        return tuple((Counter(self.parameters) - Counter(self.whole)).elements())

    def trained(self, recipe: Recipe) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the parameters that have gradients."""
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
    deferred = sum(_deferred_bytes(shape, recipe, one) for one in stages)
    # The largest weights, of embedding and head, are updated while no layer is at work.
    freed = loss + at_work + deferred + (0 if recipe.memory.fused_backward else waiting["device"])
    return MemoryEstimate(
        weights=weights * width - saved,
        gradients=max(of_gradients, default=0) if is_used else gradients * gradient_width(recipe),
        optimizer=sum(
            count * optimizer_bytes(recipe, shard_shape(one, shards))
            for one, count in Counter(trained).items()
        ),
        activations=waiting["device"] + at_work,
        loss=loss,
        deferred=deferred,
        update=max(0, update_bytes(recipe, [shard_shape(one, shards) for one in trained]) - freed),
        transfers=sum(_transfer_bytes(shape, recipe, one) for one in stages),
        sent=sum(_sent_bytes(shape, recipe, one) for one in stages),
        dequantized=max((dequantizing_bytes(one, width) for one in in_4_bits), default=0),
        host=waiting["host"] + outer_bytes(recipe, (shard_shape(one, shards) for one in trained)),
    )


def _quantized(recipe: Recipe, stage: StageShape) -> tuple[LinearShape, ...]:
    """Return the shapes of a stage's weights that are kept in 4 bits."""
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
    """Return the bytes that autograd saves of a stage's adapters for one token.

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


def deferred_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the bytes that are kept of one microbatch while its weight gradients are deferred.

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


def _deferred_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the maximum of deferred bytes, beyond the maximum for microbatches in flight."""
    if not stage.deferred:
        return 0
    microbatches, ahead = recipe.microbatches, stage.in_flight
    saved = 0 if stage.offloads else saved_bytes(shape, recipe, stage)
    each = deferred_bytes(shape, recipe, stage)
    most = 0
    # Around the backward pass after which there are as many deferred, or fewer in flight.
    for done in {min(stage.deferred, microbatches - 1), microbatches - ahead, microbatches - 1}:
        flying, kept = min(ahead, microbatches - done), min(stage.deferred, done)
        most = max(most, flying * saved + kept * each, (flying - 1) * saved + (kept + 1) * each)
    return max(0, most - ahead * saved)


def _has_mask(shape: ModelShape, recipe: Recipe) -> bool:
    """Whether attention gets a mask, which its layers share; bfloat16 on a GPU needs none."""
    kind, on_cpu = recipe.model.attention, recipe.train.device == "cpu"
    has_kernel = kind == "auto" and recipe.dtype == "bfloat16" and not on_cpu
    needs = recipe.data.is_packed or shape.layer.is_capped
    masks = kind in {"auto", "sdpa"} and needs and not has_kernel
    return kind == "eager" or masks


def _layer_bytes(shape: ModelShape, recipe: Recipe) -> int:
    """Return the bytes that autograd saves in one layer for one token."""
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
    """Return the bytes that norms save: float32 input and scale, and the input of their weights."""
    kind = shape.layer.norm
    if kind == "layer":  # input, mean and scale
        return width * values + 2 * FLOAT32 * norms
    normed = FLOAT32 if kind == "offset" else width
    return (FLOAT32 + normed) * values + FLOAT32 * norms


def _product_values(shape: ModelShape) -> int:
    """Count the values that a layer's matrix products and attention produce for one token."""
    queries, keys = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    return 2 * queries + 2 * keys + 2 * shape.hidden_size + shape.mlp_outputs


def _layer_at_work(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the bytes of the one layer that is being recomputed, or fetched from the host."""
    is_kept_here = recipe.checkpointing == "none" and not stage.offloads
    if is_kept_here or not stage.layers:
        return 0
    layer = _tokens(recipe) * _layer_bytes(shape, recipe)
    layer += _tokens(recipe) * _adapter_bytes(recipe, stage) // stage.layers
    # While one is used, what was saved of the one before it is on its way.
    on_its_way = saved_bytes(shape, recipe, stage) // stage.layers if stage.offloads else 0
    return layer + on_its_way


def _loss_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the bytes from the last norm to the loss."""
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
    """Return the bytes of what a stage receives into, for each microbatch.

    What comes in fewer bits has buffers of its own, next to torch's. What is sent so stays until
    its backward pass; otherwise it is what is sent that stays.
    """
    before, after = (FORMATS[one] for one in stage.transfers)
    whole, size = _boundary_bytes(shape, recipe), 0
    ends = ((before.forward, stage.has_first), (after.backward, stage.has_last))
    for form in (form for form, is_end in ends if not is_end):
        each = whole + (0 if form == "none" else _boundary_bytes(shape, recipe, form))
        size += recipe.microbatches * each
    if not stage.has_last and after.forward != "none":
        size += stage.in_flight * whole
    return size


def _sent_bytes(shape: ModelShape, recipe: Recipe, stage: StageShape) -> int:
    """Return the bytes that a stage has sent and torch still holds.

    torch's 1F1B waits for each send before the next: it holds the results that await their
    backward pass, and the last send. All other schedules keep every send, with its tensor, until
    the end of the step (``send_ops`` in ``torch/distributed/pipelining/schedules.py``); that of
    the two stages at the tip of a V, which exchange nothing, is counted, too.
    """
    count = onward = recipe.microbatches
    if recipe.schedule == "1f1b":
        count, onward = 2, stage.in_flight + 1
    before, after = (FORMATS[one] for one in stage.transfers)
    size = 0 if stage.has_last else onward * _boundary_bytes(shape, recipe, after.forward)
    if not stage.has_first:
        size += count * _boundary_bytes(shape, recipe, before.backward)
    return size


def _boundary_bytes(shape: ModelShape, recipe: Recipe, form: Format = "none") -> int:
    """Return the bytes of a microbatch's hidden states, which stages exchange."""
    return wire_bytes(form, _tokens(recipe), shape.hidden_size, WIDTHS[recipe.dtype])


def _backwards(recipe: Recipe) -> int:
    """Count the backward passes whose gradients are summed in a step."""
    return recipe.train.accumulation * recipe.microbatches


def _tokens(recipe: Recipe) -> int:
    """Return the number of tokens per microbatch."""
    return recipe.microbatch_size * recipe.data.sequence_length


# Memory forecast: estimates what each rank of a recipe will hold. Pure; imports no torch.


Config = Mapping[str, Any]
"""Fields of a Hugging Face ``config.json``."""

_KEEP_ALL: frozenset[ScheduleName] = frozenset({"gpipe", "looped-bfs"})


CUDA_BYTES = 500_000_000
"""CUDA's context and torch's kernels: 300 to 500 MB, depending on the card and its driver."""

NCCL_BUFFER_BYTES = 4 << 20
"""NCCL's documented default of ``NCCL_BUFFSIZE``, for each channel and direction."""

GROUP_CHANNELS, PAIR_CHANNELS = 16, 2
"""Channels that NCCL opens in a group over NVLink, and between two ranks; fewer over sockets."""

RESERVE_SHARE = 0.05
"""What torch's allocator keeps beyond its tensors, as a share of them. Not measured."""


PROCESS_BYTES = 390_000_000
"""Resident memory of a rank with Python, torch and transformers, and no tensors: 320 MiB once they
are imported, 375 once its process group is there (measured, torch 2.13)."""


class DeviceOverhead(Record, frozen=True):
    """Approximate bytes that a rank needs on its GPU or, on CPUs, its node, besides its tensors."""

    cuda: int
    nccl: int
    reserve: int
    """What torch's allocator holds besides tensors."""
    process: int

    @property
    def total(self) -> int:
        return self.cuda + self.nccl + self.reserve + self.process

    def __str__(self) -> str:
        parts = {"CUDA": self.cuda, "NCCL": self.nccl, "reserve": self.reserve}
        parts["the process"] = self.process
        return " + ".join(f"{name} {shown_bytes(size)}" for name, size in parts.items() if size)


CPU_OVERHEAD = DeviceOverhead(cuda=0, nccl=0, reserve=0, process=PROCESS_BYTES)


def gpu_overhead(
    recipe: Recipe, layout: Layout, place: int, estimate: MemoryEstimate, *, is_tied: bool
) -> DeviceOverhead:
    """Estimate what a rank takes on its GPU besides its tensors.

    Args:
        place: of the rank in its pipeline.
        estimate: of its tensors.
    """
    parallel = recipe.data_parallel
    ranks = layout.world_size * parallel.width
    groups = (ranks > 1) + (parallel.replicas > 1) + (parallel.shards > 1)
    groups += parallel.width > 1 and layout.world_size > 1
    groups += parallel.syncs_rarely and parallel.shards > 1
    # One communicator per direction with each neighbor, where there are any.
    is_batched = recipe.schedule in BATCHED
    trains_tied = is_tied and recipe.trains_tied
    pairs = 0 if is_batched else 2 * len(layout.neighbors(place, tied=trains_tied))
    channels = groups * GROUP_CHANNELS + pairs * PAIR_CHANNELS
    return DeviceOverhead(
        cuda=CUDA_BYTES,
        nccl=2 * NCCL_BUFFER_BYTES * channels,
        reserve=round(RESERVE_SHARE * estimate.total),
        process=0,
    )


def model_config(recipe: Recipe) -> Config | None:
    """Return the config of the recipe's model; ``None`` if its directory is not on this machine."""
    if recipe.model.path is None:
        size = recipe.data.vocabulary_size + len(recipe.tokens.add)
        return {**preset_config(recipe.model), "vocab_size": size}
    try:
        config = normal(read_object(_here(recipe.model.path) / CONFIG))
    except RecipeError:
        return None
    if str(config.get("model_type")) not in families() or wrong_count(config) is not None:
        return None
    return {**config, "vocab_size": config["vocab_size"] + len(recipe.tokens.add)}


def refuse_model_here(recipe: Recipe) -> None:
    """Raise the trainer's error about the recipe's model, if its config is on this machine.

    Raises:
        RecipeError: the trainer cannot use it.
    """
    path = recipe.model.path
    if path is not None and (directory := _here(path)).is_dir():
        refuse_directory(directory, path)


def _here(path: str) -> Path:
    """Return where a model is on this machine, if it is; of a hub model, at least its config."""
    model = hub_copy(path) or hub_id(path)
    directory = in_home(path)
    cached = None if model is None or directory.exists() else snapshot(model)
    return cached or directory


def forecast(recipe: Recipe, config: Config, ranks: int) -> list[MemoryEstimate]:
    """Estimate each rank's memory on GPUs, by its index in a pipeline.

    Slow links may need more microbatches in flight than are counted here.

    Args:
        ranks: total ranks of all pipelines.

    Raises:
        RecipeError: the recipe cannot run on this number of ranks.
    """
    shape, is_tied = shape_of(config), bool(config.get("tie_word_embeddings"))
    check(recipe, ranks, layers=shape.layers, is_tied=is_tied)
    layout = lay_out(recipe, ranks, shape.layers)
    return [place_forecast(recipe, config, layout, place) for place in range(layout.world_size)]


def place_forecast(recipe: Recipe, config: Config, layout: Layout, place: int) -> MemoryEstimate:
    """Estimate the memory of one rank in a pipeline, without the checks of :func:`forecast`."""
    stages = [_stage(recipe, config, layout, index) for index in layout.stages_of(place)]
    return memory_estimate(shape_of(config), recipe, stages)


def _stage(recipe: Recipe, config: Config, layout: Layout, index: int) -> StageShape:
    count = len(layout.stages)
    microbatches, ahead, deferred = recipe.microbatches, count - index, 0
    if KINDS[recipe.schedule].is_eager:
        counts = counts_without_links(recipe, count)
        ahead, deferred = counts.ahead[index], counts.deferred[index]
    elif recipe.schedule in _KEEP_ALL:
        ahead = microbatches
    is_first, is_last = index == 0, index == layout.last_stage
    layers = len(layout.stages[index])
    # One name may be for none of its boundaries, which takes more.
    given = recipe.transfer
    sends: list[Transfer] = ["none"] * (count + 1)
    if not isinstance(given, str):
        sends[1:-1] = given
    return StageShape(
        parameters=parameters(config, layers, is_first=is_first, is_last=is_last),
        adapted=adapted_linears(recipe, config) * layers if recipe.trains_adapters else None,
        whole=_trained_whole(recipe, config, is_first=is_first, is_last=is_last),
        trains_head=is_last and trains_head(recipe, config),
        layers=layers,
        has_first=is_first,
        has_last=is_last,
        in_flight=min(ahead, microbatches),
        loss=fitting_loss(recipe, config["vocab_size"]),
        offloads=recipe.memory.offload_activations,
        deferred=deferred if count > 1 else 0,
        transfers=(sends[index], sends[index + 1]),
    )


def adapted_linears(recipe: Recipe, config: Config) -> tuple[LinearShape, ...]:
    """Return the shapes of the linear layers in a layer that have an adapter.

    Raises:
        RecipeError: the adapters do not fit the model.
    """
    check_base(recipe.adapters, config["model_type"], transposed=family_of(config).transposed)
    known = linears(config)
    return tuple(known[name] for name in adapted(recipe.adapters, known))


def adapter_values(recipe: Recipe, config: Config) -> int | None:
    """Return the values of a layer's adapters; ``None`` if all weights are trained."""
    if not recipe.trains_adapters:
        return None
    return recipe.adapters.rank * sum(map(sum, adapted_linears(recipe, config)))


def trains_head(recipe: Recipe, config: Config) -> bool:
    """Whether the output projection has gradients."""
    return recipe.adapters.trains("head", is_tied=bool(config.get("tie_word_embeddings")))


def _trained_whole(
    recipe: Recipe, config: Config, *, is_first: bool, is_last: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a stage's embedding and head that are trained alongside adapters."""
    if not recipe.trains_adapters:
        return ()
    shape, is_tied = shape_of(config), bool(config.get("tie_word_embeddings"))
    is_shared = is_tied and is_first
    count = int(is_first and recipe.adapters.trains("embedding", is_tied=is_tied))
    count += is_last and not is_shared and trains_head(recipe, config)
    return ((shape.vocabulary_size, shape.hidden_size),) * count


def shown_adapters(recipe: Recipe, config: Config) -> tuple[str, ...]:
    """Return a line about the adapters of a model, if the recipe has some."""
    if not recipe.trains_adapters:
        return ()
    shape, section = shape_of(config), recipe.adapters
    everything = parameters(config, shape.layers, is_first=True, is_last=True)
    beside = shape.layers * (adapter_values(recipe, config) or 0)
    whole = _trained_whole(recipe, config, is_first=True, is_last=True)
    trained = beside + sum(map(math.prod, whole))
    share = trained / (beside + sum(map(math.prod, everything)))
    names = ", ".join(name.rpartition(".")[2] for name in adapted(section, linears(config)))
    line = f"adapters: {trained:,} parameters are trained, {share:.2%} of all: rank {section.rank}"
    line += f", alpha {section.chosen_alpha:g}, of {names}"
    if section.train_whole:
        line += f", and the whole {' and '.join(dict.fromkeys(section.train_whole))}"
    if section.quantizes:
        line += ", whose frozen weights are kept in 4 bits (NF4)"
    return (line,)


def trained_parameters(
    recipe: Recipe, config: Config, layers: int, *, is_first: bool, is_last: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a stage's parameters that have gradients.

    With adapters, those are theirs and of what is trained in full alongside them.
    """
    if not recipe.trains_adapters:
        return parameters(config, layers, is_first=is_first, is_last=is_last)
    rank = recipe.adapters.rank
    layer = (adapter_shapes(rank, one) for one in adapted_linears(recipe, config))
    beside = tuple(one for both in layer for one in both) * layers
    return beside + _trained_whole(recipe, config, is_first=is_first, is_last=is_last)
