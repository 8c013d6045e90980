"""Stochastic rounding: its random numbers, and the kernel that draws them itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.optimizer import precision
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.optimizer.precision import rounded_adamw

FIELDS = (
    *("model.dtype=bfloat16", "optimizer.precision=stochastic-rounding", "optimizer.clip_norm=0"),
    *("optimizer.warmup_steps=0", "train.steps=1000", "optimizer.weight_decay=0.5"),
)


def trained(monkeypatch: pytest.MonkeyPatch, update: Any = None) -> dict[str, torch.Tensor]:
    """Weights and state after some steps; with ``update``, as on a GPU with a compiler."""
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: nn.Parameter(torch.randn(shape, generator=generator).bfloat16())
        for name, shape in (("a.weight", (300, 70)), ("b.weight", (513,)))
    }
    optimizer = Optimizer(parse_recipe("", FIELDS), weights, weights)
    if update is not None:
        monkeypatch.setattr(precision, "_compiled_adamw", lambda: update)
        for each in optimizer._updates:
            monkeypatch.setattr(each, "_is_compiled", True)
    for _ in range(4):
        for one in weights.values():
            one.grad = torch.randn(one.shape, generator=generator).bfloat16()
        optimizer.update(torch.tensor(1.0))
    return {**{name: one.detach() for name, one in weights.items()}, **optimizer.state()}


def assert_same(kernel: dict[str, torch.Tensor], torchs: dict[str, torch.Tensor]) -> None:
    assert kernel.keys() == torchs.keys()
    for name, one in torchs.items():
        assert kernel[name].dtype == one.dtype
        if name.startswith("step/"):
            assert kernel[name] == one == 4
            continue
        # Float32 results that differ in their last bit are now and then rounded apart.
        assert (kernel[name] != one).double().mean() < 0.01, name
        assert torch.allclose(kernel[name].float(), one.float(), rtol=1 / 64, atol=1e-6), name


def test_the_kernel_does_what_torchs_adamw_and_rounding_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(trained(monkeypatch, rounded_adamw), trained(monkeypatch))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_compiled_it_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(rounded_adamw, dynamic=True, fullgraph=True)
    assert_same(trained(monkeypatch, compiled), trained(monkeypatch))


def test_the_random_numbers_are_even_and_independent() -> None:
    places = torch.arange(1 << 18, dtype=torch.int32)
    noise = torch.stack(
        [
            one
            for key in (0, 1, -1234567)
            for one in precision._noise(places, torch.tensor([key], dtype=torch.int32))
        ]
    ).double()
    assert noise.min() >= 0
    assert noise.max() < 1 << 16
    spread = (noise - (2**16 - 1) / 2) / (2**16 / 12**0.5)
    sigma = 1 / (1 << 9)  # of a mean of 2^18
    assert spread.mean(1).abs().max() < 5 * sigma
    assert (spread.square().mean(1) - 1).abs().max() < 5 * sigma
    correlation = spread @ spread.T / (1 << 18)
    assert (correlation - torch.eye(len(noise))).fill_diagonal_(0).abs().max() < 5 * sigma
    for distance in (1, 2, 64, 1000):
        near = (spread[:, distance:] * spread[:, :-distance]).mean(1)
        assert near.abs().max() < 5 * sigma, distance
