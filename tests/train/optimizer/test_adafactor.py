"""Adafactor, compared with torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from jupyter_mntrain.train.optimizer.algorithms import ADAFACTOR_EPSILON, Adafactor, first_state

SHAPES = ((30, 20), (7,), (4, 5, 6))


def trained(kind: type[torch.optim.Adafactor], rate: float, decay: float) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=generator) * 0.1) for shape in SHAPES]
    optimizer = kind(weights, lr=rate, weight_decay=decay, eps=ADAFACTOR_EPSILON)
    if kind is Adafactor:
        for one in weights:
            optimizer.state[one] = first_state("adafactor", one, torch.float32)
    for step in range(20):
        for one in weights:
            one.grad = torch.randn(one.shape, generator=generator) * 10.0 ** (step % 5 - 3)
            one.grad[0] = 0  # like tokens that a batch has not
        optimizer.step()
    state = [optimizer.state[one] for one in weights]
    return [
        *weights,
        *(one[name] for one in state for name in sorted(one) if one[name] is not None),
    ]


@pytest.mark.parametrize(("rate", "decay"), [(1e-2, 0.0), (1e-3, 0.5), (0.9, 0.1)])
def test_it_does_what_torchs_does(rate: float, decay: float) -> None:
    for mine, torchs in zip(
        trained(Adafactor, rate, decay), trained(torch.optim.Adafactor, rate, decay), strict=True
    ):
        assert torch.allclose(mine, torchs, rtol=1e-4, atol=1e-7)


def test_a_closure_is_refused() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    with pytest.raises(ValueError, match="closure"):
        Adafactor([weight]).step(lambda: 0.0)
