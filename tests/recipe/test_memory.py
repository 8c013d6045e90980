"""Memory estimate, compared with the tensors that are actually held."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.pipelining import schedules
from torch.utils._python_dispatch import TorchDispatchMode

from jupyter_mntrain.recipe import memory
from jupyter_mntrain.recipe.instructions import zero_bubble_slots
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import (
    MemoryEstimate,
    StageShape,
    deferred_bytes,
    memory_estimate,
    saved_bytes,
)
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.formulas import ModelShape
from jupyter_mntrain.train.model.adapters import adapted_in, is_adapter, is_quantized, whole_in
from jupyter_mntrain.train.model.decoder import StageModule, model_shape, read_config
from jupyter_mntrain.train.model.losses import from_logits, make_loss
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.model.weight_gradients import WeightGradients
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.runtime import most_held
from tests.searches import pairs

VOCABULARY = 512
SMALL = (
    *("model.layers=3", "data.sequence_length=64", "pipeline.microbatches=2", "train.batch_size=4"),
    *("train.device=cpu", "optimizer.clip_norm=0"),
)


def built(*overrides: str) -> tuple[Recipe, ModelShape, StageModule, StageShape]:
    recipe = parse_recipe("", [*SMALL, *overrides])
    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, 1, config.num_hidden_layers)
    module = build_modules(recipe, config, layout, 0, torch.device("cpu"))[0]
    names = module.weights()
    stage = StageShape(
        parameters=tuple(tuple(one.shape) for name, one in names.items() if not is_adapter(name)),
        adapted=adapted_in(module) if recipe.trains_adapters else None,
        whole=whole_in(module) if recipe.trains_adapters else (),
        trains_head=module.causal.lm_head.weight.requires_grad,
        layers=len(module.layers),
        has_first=True,
        has_last=True,
        in_flight=1,
        loss="chunked" if module.leaves_head else "plain",
    )
    return recipe, model_shape(config), module, stage


PRECISIONS = {"float32": ("plain",), "bfloat16": ("plain", "float32-master", "stochastic-rounding")}


@pytest.mark.parametrize("kind", ["adamw", "adafactor", "adamw-8bit", "adamw-4bit"])
@pytest.mark.parametrize(
    ("dtype", "precision"), [(dtype, one) for dtype, some in PRECISIONS.items() for one in some]
)
def test_weights_gradients_and_optimizer_are_exact(dtype: str, precision: str, kind: str) -> None:
    recipe, shape, module, stage = built(
        *("model.preset=qwen2-tiny", f"model.dtype={dtype}", f"optimizer.kind={kind}"),
        f"optimizer.precision={precision}",
    )
    parameters = module.weights()
    optimizer = Optimizer(recipe, parameters, parameters)
    if not kind.endswith("bit"):  # compiling takes its time, and adds no state
        for one in parameters.values():
            one.grad = torch.ones_like(one)
        optimizer.update(torch.tensor(1.0))
    estimate = memory_estimate(shape, recipe, [stage])
    assert estimate.weights == estimate.gradients == sum(p.nbytes for p in parameters.values())
    assert estimate.optimizer == sum(one.nbytes for one in optimizer.state().values())


@pytest.mark.parametrize("precision", PRECISIONS["bfloat16"])
def test_gradients_in_float32_take_two_more_bytes_each(precision: str) -> None:
    fields = ("model.dtype=bfloat16", f"optimizer.precision={precision}")
    recipe, shape, _, stage = built(*fields, "optimizer.grad_dtype=float32")
    wide = memory_estimate(shape, recipe, [stage])
    narrow = memory_estimate(shape, built(*fields)[0], [stage])
    values = sum(math.prod(one) for one in stage.parameters)
    assert wide.gradients == narrow.gradients + 2 * values == 4 * values
    assert (wide.weights, wide.optimizer) == (narrow.weights, narrow.optimizer)


def held_bytes(module: StageModule, forward: Any) -> int:
    """What autograd and checkpoints hold after a forward pass, next to weights and its result."""
    weights = {place for one in module.weights().values() for place in storages_of(one)}
    saved: list[torch.Tensor] = []
    gc.freeze()  # so that only what is new is listed
    with saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):  # type: ignore[func-returns-value]
        result = forward()
    # isinstance would ask objects that warn of being deprecated.
    new = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    gc.unfreeze()
    mine = [one for one in new if one is not result]
    held = {place: part for one in mine + saved for place, part in storages_of(one).items()}
    held.pop(result.untyped_storage().data_ptr(), None)
    return sum(one.nbytes() for place, one in held.items() if place not in weights)


def storages_of(tensor: torch.Tensor) -> dict[int, torch.UntypedStorage]:
    """Of all its parts, by their place."""
    return {one.untyped_storage().data_ptr(): one.untyped_storage() for one in parts_of(tensor)}


def parts_of(tensor: Any) -> list[torch.Tensor]:
    """Of a tensor in 4 bits those that it consists of; else itself."""
    if not is_quantized(tensor):
        return [tensor]
    return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]


HALF = ("model.layers=5", "memory.checkpointing_every=2")


@pytest.mark.parametrize(
    ("family", "dtype", "attention", "checkpointing"),
    [
        *itertools.product(
            ("llama", "qwen3"), ("float32", "bfloat16"), ("sdpa", "eager"), ("none", "full")
        ),
        *itertools.product(("llama", "qwen3"), ("float32", "bfloat16"), ("sdpa",), ("selective",)),
        ("mistral", "bfloat16", "sdpa", "none"),
        ("qwen2", "float32", "sdpa", "none"),
    ],
)
def test_activations_are_close(family: str, dtype: str, attention: str, checkpointing: str) -> None:
    recipe, shape, module, stage = built(
        *(f"model.preset={family}-tiny", f"model.dtype={dtype}", f"model.attention={attention}"),
        *(f"memory.checkpointing={checkpointing}", "memory.loss=chunked"),
    )
    ids = torch.zeros(recipe.microbatch_size, recipe.data.sequence_length, dtype=torch.int64)
    positions = torch.arange(ids.shape[1]).expand(len(ids), -1)
    measured = held_bytes(module, lambda: module(ids, positions))
    assert saved_bytes(shape, recipe, stage) == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("length", [64, 512])
@pytest.mark.parametrize("attention", ["auto", "sdpa", "eager"])
def test_a_mask_that_keeps_documents_apart_is_counted_once(attention: str, length: int) -> None:
    recipe, shape, module, stage = built(
        *("model.preset=llama-tiny", f"model.attention={attention}", "data.packing=best-fit"),
        *("memory.loss=chunked", f"data.sequence_length={length}"),
    )
    ids = torch.zeros(recipe.microbatch_size, length, dtype=torch.int64)
    positions = (torch.arange(length) % (length // 2)).expand(len(ids), -1)
    ends = torch.tensor([[length // 2, length]], dtype=torch.int32).expand(len(ids), -1)
    measured = held_bytes(module, lambda: module(ids, positions, ends, length // 2))
    assert saved_bytes(shape, recipe, stage) == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_plain_loss_is_close(dtype: str) -> None:
    recipe, shape, module, stage = built("model.preset=llama-tiny", f"model.dtype={dtype}")
    tokens = (recipe.microbatch_size, recipe.data.sequence_length)
    hidden = torch.randn(*tokens, shape.hidden_size, requires_grad=True)
    hidden = hidden.to(module.causal.dtype)
    kept: list[torch.Tensor] = []

    def forward() -> torch.Tensor:
        kept.append(module.causal.lm_head(hidden))
        return from_logits(kept[0], torch.zeros(tokens, dtype=torch.int64))

    measured = held_bytes(module, forward)
    no_gradients = (
        memory_estimate(shape, recipe, [stage]).loss
        - memory_estimate(
            shape,
            recipe,
            [StageShape(stage.parameters, 3, has_first=True, has_last=True, in_flight=0)],
        ).loss
    )
    assert no_gradients == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-zero-bubble"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_chunked_loss_is_close(dtype: str, schedule: str) -> None:
    chunk, tokens = 16, (2, 64)
    recipe, shape, module, stage = built(
        *("model.preset=llama-tiny", f"model.dtype={dtype}", f"pipeline.schedule={schedule}"),
        *("memory.loss=chunked", f"memory.chunk_tokens={chunk}"),
    )
    splits_backward = schedule != "1f1b"
    loss = make_loss("chunked", module.causal.lm_head, chunk, splits_backward=splits_backward)
    hidden = torch.randn(*tokens, shape.hidden_size, requires_grad=True)
    normed = hidden.to(module.causal.dtype)
    result = loss(normed, torch.zeros(tokens, dtype=torch.int64))
    with Peak(normed, module.causal.lm_head.weight) as peak:
        result.backward()
    estimate = memory_estimate(shape, recipe, [stage]).loss
    # On a CPU, torch makes a float32 copy of what it compares; in chunks of its own, autograd
    # makes two gradients of the head.
    assert estimate == pytest.approx(peak.bytes, rel=0.4)
    assert (
        estimate
        < memory_estimate(shape, recipe, [msgspec.structs.replace(stage, loss="plain")]).loss
    )


class Peak(TorchDispatchMode):
    """The most bytes that are held at once of what is made."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()
        self.bytes = self.held = 0
        self._known = {one.untyped_storage().data_ptr() for one in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple) else (made,):
            if isinstance(one, torch.Tensor):
                self._note(one.untyped_storage())
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        if place in self._known:
            return
        self._known.add(place)
        self.held += size
        self.bytes = max(self.bytes, self.held)
        weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.held -= size


def test_fused_backward_forgets_gradients_only_with_a_single_microbatch() -> None:
    one = ("pipeline.microbatches=1", "memory.fused_backward=true")
    _, shape, _, stage = built("model.preset=llama-tiny")
    several = memory_estimate(shape, built("memory.fused_backward=true")[0], [stage])
    single = memory_estimate(shape, built(*one)[0], [stage])
    assert several.gradients == several.weights
    assert single.gradients == VOCABULARY * shape.hidden_size * 4


@pytest.mark.parametrize(
    ("fields", "copies"),
    [
        (("optimizer.precision=plain",), 0),
        (("optimizer.precision=float32-master",), 1),
        (("optimizer.precision=stochastic-rounding",), 3.5),
        (("optimizer.precision=stochastic-rounding", "optimizer.kind=adafactor"), 1.5),
    ],
)
def test_the_optimizers_float32_copies_take_the_place_of_activations(
    fields: tuple[str, ...], copies: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, shape, _, stage = built("model.preset=llama-tiny", "model.dtype=bfloat16", *fields)
    monkeypatch.setattr(memory, "UPDATED_AT_ONCE_BYTES", 1)
    assert memory_estimate(shape, recipe, [stage]).update == 0, "activations take more"
    short = (*fields, "data.sequence_length=8", "train.batch_size=8", "memory.chunk_tokens=1")
    short = (*short, "memory.loss=chunked", "pipeline.microbatches=8")
    recipe, shape, _, stage = built("model.preset=llama-tiny", "model.dtype=bfloat16", *short)
    values = sum(math.prod(one) for one in stage.parameters)
    largest = max(math.prod(one) for one in stage.parameters)
    for most, at_once in ((1 << 30, values), (1, largest)):
        monkeypatch.setattr(memory, "UPDATED_AT_ONCE_BYTES", most)
        estimate = memory_estimate(shape, recipe, [stage])
        held = 4 * copies * at_once
        assert estimate.update == max(0, held - estimate.activations - estimate.loss)
    assert copies == 0 or values * 4 * copies > estimate.activations + estimate.loss


@pytest.mark.parametrize(
    ("preset", "dtype", "checkpointing"),
    pairs(["llama-tiny", "qwen3-tiny"], ["float32", "bfloat16"], ["none", "full"]),
)
def test_what_is_put_off_is_exact(preset: str, dtype: str, checkpointing: str) -> None:
    recipe, shape, module, stage = built(
        *(f"model.preset={preset}", f"model.dtype={dtype}", "memory.loss=plain"),
        f"memory.checkpointing={checkpointing}",
    )
    weight_gradients = WeightGradients(module)
    weight_gradients.are_deferred = True
    ids = torch.arange(recipe.data.sequence_length).repeat(recipe.microbatch_size, 1)
    with Peak(*module.weights().values()) as peak:
        module(ids, ids).float().square().mean().backward()
        gc.collect()
        gradients = sum(one.grad.nbytes for one in module.parameters() if one.grad is not None)
        before = peak.held - gradients
    assert before == pytest.approx(deferred_bytes(shape, recipe, stage), rel=0.01)


@pytest.mark.parametrize(
    ("checkpointing", "ahead", "deferred", "microbatches"),
    [
        (checkpointing, ahead, deferred, microbatches)
        for checkpointing in ("none", "full")
        for ahead in (1, 3, 6)
        for deferred in (0, 1, 4, 9)
        for microbatches in (6, 9)
    ],
)
def test_what_is_put_off_is_counted_beside_what_is_in_flight(
    checkpointing: str, ahead: int, deferred: int, microbatches: int
) -> None:
    recipe, shape, _, stage = built(
        *("model.preset=llama-tiny", f"memory.checkpointing={checkpointing}", "memory.loss=plain"),
        *(f"pipeline.microbatches={microbatches}", f"train.batch_size={microbatches}"),
    )
    stage = msgspec.structs.replace(stage, in_flight=ahead, deferred=deferred)
    saved, each = saved_bytes(shape, recipe, stage), deferred_bytes(shape, recipe, stage)
    held = most = 0
    for ((kind, _, _),) in zero_bubble_slots(0, ahead, deferred, microbatches):
        held += {"F": saved, "I": each - saved, "B": -saved, "W": -each}[kind]
        most = max(most, held)
    assert held == 0
    without = memory_estimate(shape, recipe, [msgspec.structs.replace(stage, deferred=0)])
    estimate = memory_estimate(shape, recipe, [stage])
    assert estimate.total - without.total == estimate.deferred == most - ahead * saved


def test_it_is_said_in_one_line() -> None:
    estimate = MemoryEstimate(
        weights=1_200_000_000, gradients=1_200_000_000, optimizer=4_800_000_000, loss=25_000
    )
    parts = "weights 1.2 GB + gradients 1.2 GB + optimizer 4.8 GB + loss 25.0 kB = 7.2 GB"
    assert str(estimate) == parts
    assert str(MemoryEstimate(weights=3_000_000, host=1)) == (
        "weights 3.0 MB = 3.0 MB, and 0.0 kB on the host"
    )


def test_microbatches_in_flight_are_counted_until_their_weights_have_their_gradients() -> None:
    def action(text: str) -> Any:
        return schedules._Action.from_str(text)

    order = ["0F0", "0F1", None, "0I0", "3F0", "3I0", "0F2", "0W0", "3W0", "0F3", "0B1", "0B2"]
    schedule = SimpleNamespace(pipeline_order={0: [one and action(one) for one in order]})
    assert most_held(schedule, 0, (0, 3), 4) == [3, 1]
    single = SimpleNamespace(_stage=SimpleNamespace(num_stages=3, stage_index=1))
    assert most_held(single, 1, (1,), 8) == [2]
    assert most_held(single, 1, (1,), 1) == [1]
