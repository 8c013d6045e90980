"""The built-in trainer, with stages that sleep for their share: many ranks on few cores.

    torchrun … -m benchmarks.sleeping SECONDS RECIPE

Each stage sleeps ``SECONDS`` in the forward pass of a microbatch, as long for the gradients of its
inputs, and as long for those of its weights. Everything else is real: the schedule, what is sent,
and a model that should be tiny.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

from jupyter_mntrain.train.__main__ import main as train
from jupyter_mntrain.train.model import stages
from jupyter_mntrain.train.model.decoder import StageModule
from jupyter_mntrain.train.model.weight_gradients import WeightGradients


class _Sleep(torch.autograd.Function):
    """Returns its input; sleeps in both passes."""

    @staticmethod
    def forward(context: Any, given: torch.Tensor, stage: StageModule, each_s: float) -> Any:
        context.stage, context.each_s = stage, each_s
        time.sleep(each_s)
        return given.view_as(given)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        weights = context.stage.weight_gradients
        defers = weights is not None and weights.are_deferred
        time.sleep(context.each_s * (1 if defers else 2))
        return gradient, None, None


def sleeping(stage: StageModule, each_s: float) -> None:
    """Make a stage sleep after its last layer."""
    layer = stage.causal.model.layers[stage.layers[-1]]
    forward = layer.forward

    def slept(*args: Any, **kwargs: Any) -> Any:
        found = forward(*args, **kwargs)
        return _Sleep.apply(found, stage, each_s) if torch.is_grad_enabled() else found

    layer.forward = slept


def main() -> int:
    each_s, words = float(sys.argv[1]), sys.argv[2:]
    keep_less, build = stages.keep_less, WeightGradients.build

    def kept(stage: StageModule, *rest: Any) -> None:
        keep_less(stage, *rest)
        sleeping(stage, each_s)

    def built(gradients: WeightGradients) -> Callable[[], None]:
        compute, defers = build(gradients), gradients.are_deferred

        def slept() -> None:
            compute()
            time.sleep(each_s if defers else 0.0)

        return slept

    with patch.object(stages, "keep_less", kept), patch.object(WeightGradients, "build", built):
        return train(words)


if __name__ == "__main__":
    sys.exit(main())
