"""Gradients of weights that are deferred equal those of autograd to the last bit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from jupyter_mntrain.recipe.sections import MemorySection, ModelSection, Recipe
from jupyter_mntrain.train.model.activations import Offload, keep_less
from jupyter_mntrain.train.model.decoder import StageModule, materialize, meta_stage, read_config
from jupyter_mntrain.train.model.weight_gradients import WeightGradients
from jupyter_mntrain.train.optimizer.optimizer import FusedBackward
from tests.train.model.test_offloading import Recorded

CPU = torch.device("cpu")
MICROBATCHES, LENGTH, VOCABULARY, LAYERS = 3, 8, 300, 2


def decoder(family: str, dtype: torch.dtype = torch.float32, **memory: object) -> StageModule:
    config = read_config(ModelSection(preset=f"{family}-tiny", layers=LAYERS), VOCABULARY)
    stage = meta_stage(config, range(LAYERS), first=True, last=True, dtype=dtype, attention="sdpa")
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(one.shape, generator=generator).mul(0.1).to(dtype)
        for name, one in stage.weights().items()
    }
    materialize(stage, weights, CPU)
    keep_less(stage, Recipe(memory=MemorySection(**memory)), CPU)  # type: ignore[arg-type]
    return stage


def losses(stage: StageModule) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    positions = torch.arange(LENGTH).expand(2, LENGTH)
    for _ in range(MICROBATCHES):
        ids = torch.randint(VOCABULARY, (2, LENGTH), generator=generator)
        yield stage(ids, positions).float().square().mean()


def train(stage: StageModule, *, deferred: int | None = None) -> dict[str, torch.Tensor]:
    """Gradients of several microbatches, with those of ``deferred`` deferred at once."""
    given = None if deferred is None else WeightGradients(stage)
    waiting = []
    if given is not None:
        given.are_deferred = deferred != 0
    for loss in losses(stage):
        loss.backward()
        if given is not None:
            waiting.append(given.build())
            if len(waiting) > (deferred or 0):
                waiting.pop(0)()
    for compute in waiting:
        compute()
    return {name: one.grad for name, one in stage.weights().items() if one.grad is not None}


def refuse_difference(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], one) for name, one in wanted.items())
    assert all(found[name].dtype == one.dtype for name, one in wanted.items())


@pytest.mark.parametrize("deferred", [0, 1, MICROBATCHES])
@pytest.mark.parametrize("checkpointing", ["none", "full", "selective"])
def test_they_are_equal_however_many_are_put_off(deferred: int, checkpointing: str) -> None:
    # Its projections have biases, and its embedding is tied.
    wanted = train(decoder("qwen2", checkpointing=checkpointing))
    refuse_difference(
        train(decoder("qwen2", checkpointing=checkpointing), deferred=deferred), wanted
    )


def test_until_they_are_computed_weights_of_linear_layers_have_none() -> None:
    stage = decoder("llama")
    given = WeightGradients(stage)
    given.are_deferred = True
    next(losses(stage)).backward()
    linear = {
        f"{name}.weight" for name, one in stage.causal.named_modules() if type(one) is nn.Linear
    }
    assert len(linear) == 7 * LAYERS + 1
    without = {name for name, one in stage.weights().items() if one.grad is None}
    assert without == linear
    given.build()()
    assert all(one.grad is not None for one in stage.weights().values())


def test_what_is_offloaded_is_fetched_once() -> None:
    wanted, stage, copies = train(decoder("llama")), decoder("llama"), Recorded()
    stage.keeping = Offload(stage.weights().values(), copies, layers=LAYERS, smallest_bytes=0)
    refuse_difference(train(stage, deferred=1), wanted)
    assert copies.here == 0


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="torch is older than 2.10")
def test_sums_in_float32_of_bfloat16_gradients() -> None:
    def sums(deferred: int | None) -> dict[str, torch.Tensor]:
        stage = decoder("llama", torch.bfloat16)
        for one in stage.weights().values():
            one.grad_dtype = torch.float32
        return train(stage, deferred=deferred)

    wanted = sums(None)
    assert {one.dtype for one in wanted.values()} == {torch.float32}
    refuse_difference(sums(2), wanted)


def test_a_fused_update_waits_until_a_weight_has_all_of_them() -> None:
    stage = decoder("llama")
    updated: dict[str, torch.Tensor] = {}

    def update(name: str) -> None:
        gradient = stage.weights()[name].grad
        assert gradient is not None
        updated[name] = gradient.clone()

    FusedBackward(stage.weights(), MICROBATCHES, update)
    train(stage, deferred=2)
    refuse_difference(updated, train(decoder("llama")))


def test_a_forward_pass_without_gradients_keeps_nothing() -> None:
    stage = decoder("llama")
    given = WeightGradients(stage)
    given.are_deferred = True
    with torch.no_grad():
        assert not any(loss.requires_grad for loss in losses(stage))
    given.build()()
    assert all(one.grad is None for one in stage.weights().values())
