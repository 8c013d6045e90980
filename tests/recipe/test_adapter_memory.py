"""Memory of adapters, and of weights in 4 bits next to them, compared with what is held."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jupyter_mntrain.recipe.memory import memory_estimate, saved_bytes
from jupyter_mntrain.recipe.sections import dequantizing_bytes
from jupyter_mntrain.train.model.adapters import quantized
from jupyter_mntrain.train.model.losses import make_loss
from tests.recipe.test_memory import HALF, Peak, built, held_bytes, parts_of


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("adapters.dropout=0.1",),
        ("adapters.quantize_base=nf4",),
        ('adapters.train_whole=["embedding", "head"]',),
        HALF,
    ],
)
@pytest.mark.parametrize("checkpointing", ["auto", "full", "selective"])
def test_activations_of_adapters_are_close(checkpointing: str, more: tuple[str, ...]) -> None:
    recipe, shape, module, stage = built(
        *("model.preset=llama-tiny", "adapters.rank=16", "memory.loss=chunked"),
        *(f"memory.checkpointing={checkpointing}", *more),
    )
    ids = torch.zeros(recipe.microbatch_size, recipe.data.sequence_length, dtype=torch.int64)
    positions = torch.arange(ids.shape[1]).expand(len(ids), -1)
    measured = held_bytes(module, lambda: module(ids, positions))
    assert saved_bytes(shape, recipe, stage) == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_in_4_bits_are_exact(dtype: str) -> None:
    recipe, shape, module, stage = built(
        *("model.preset=llama-tiny", f"model.dtype={dtype}", "adapters.rank=4"),
        "adapters.quantize_base=nf4",
    )
    held = sum(part.nbytes for one in module.weights().values() for part in parts_of(one))
    assert memory_estimate(shape, recipe, [stage]).weights == held


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_whole_weight_is_made_from_is_close(dtype: torch.dtype) -> None:
    weight: Any = quantized(torch.randn(512, 1024).to(dtype))
    with Peak(*parts_of(weight)) as peak:
        weight.get_original_weight()
    expected = dequantizing_bytes((512, 1024), dtype.itemsize)
    assert expected == pytest.approx(peak.bytes, rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_chunked_loss_makes_no_gradient_of_a_frozen_head(dtype: str) -> None:
    recipe, shape, module, stage = built(
        *("model.preset=llama-tiny", f"model.dtype={dtype}", "adapters.rank=4"),
        *("memory.loss=chunked", "memory.chunk_tokens=16"),
    )
    loss = make_loss("chunked", module.causal.lm_head, 16, splits_backward=False)
    hidden = torch.randn(2, 64, shape.hidden_size, requires_grad=True)
    normed = hidden.to(module.causal.dtype)
    result = loss(normed, torch.zeros((2, 64), dtype=torch.int64))
    with Peak(normed, module.causal.lm_head.weight) as peak:
        result.backward()
    assert memory_estimate(shape, recipe, [stage]).loss == pytest.approx(peak.bytes, rel=0.4)
