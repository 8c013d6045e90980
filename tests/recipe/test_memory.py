"""Memory estimate, compared with the tensors that are actually held."""

from __future__ import annotations

import gc
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.pipelining import schedules

from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import (
    MemoryEstimate,
    StageShape,
    memory_estimate,
    saved_bytes,
)
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.formulas import ModelShape
from jupyter_mntrain.train.model.decoder import StageModule, model_shape, read_config
from jupyter_mntrain.train.model.losses import from_logits
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.runtime import most_held

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
        parameters=tuple(tuple(one.shape) for one in names.values()),
        layers=len(module.layers),
        has_first=True,
        has_last=True,
        in_flight=1,
        loss="chunked" if module.leaves_head else "plain",
        norms_heads=any("q_norm" in name for name in names),
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


def held_bytes(module: StageModule, forward: Any) -> int:
    """What autograd and checkpoints hold after a forward pass, beside weights and its result."""
    weights = {one.untyped_storage().data_ptr() for one in module.weights().values()}
    saved: list[torch.Tensor] = []
    gc.freeze()  # so that only what is new is listed
    with saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):  # type: ignore[func-returns-value]
        result = forward()
    # isinstance would ask objects that warn of being deprecated.
    new = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    gc.unfreeze()
    mine = [one for one in new if one is not result]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in mine + saved}
    storages.pop(result.untyped_storage().data_ptr(), None)
    return sum(one.nbytes() for place, one in storages.items() if place not in weights)


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


def test_fused_backward_forgets_gradients_only_with_a_single_microbatch() -> None:
    one = ("pipeline.microbatches=1", "memory.fused_backward=true")
    _, shape, _, stage = built("model.preset=llama-tiny")
    several = memory_estimate(shape, built("memory.fused_backward=true")[0], [stage])
    single = memory_estimate(shape, built(*one)[0], [stage])
    assert several.gradients == several.weights
    assert single.gradients == VOCABULARY * shape.hidden_size * 4


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
