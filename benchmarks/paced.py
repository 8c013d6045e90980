"""The built-in trainer, with stages that take a set time: many ranks of unlike speed on few cores.

    torchrun … -m benchmarks.paced SECONDS[,SECONDS…] RECIPE

``SECONDS`` are those of each layer's forward pass of a microbatch; the gradients of its inputs take
as long, and so do those of its weights, more by what halving a backward pass costs. A stage
computes, then sleeps for what is left of its time, so that a busy machine hardly changes it.
Everything else is real: the model, which should be tiny, the schedule, and what is sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any
from unittest.mock import patch

from torch.distributed.pipelining import PipelineStage, schedules

from jupyter_mntrain.plan.prediction.step import DEFERRED_COST, TORCH_SPLIT
from jupyter_mntrain.train.__main__ import main as train


def _forward(stage: Any, *, full_backward: bool) -> float:  # noqa: ARG001 - as the others
    return 1.0


def _backward(stage: Any, *, full_backward: bool) -> float:
    if full_backward:
        return 2.0
    if stage.dw_builder is not None:
        return 1.0
    return 0.0 if _leaves_all(stage) else TORCH_SPLIT


def _weights(stage: Any, *, full_backward: bool) -> float:  # noqa: ARG001 - as the others
    if stage.dw_builder is not None:
        return DEFERRED_COST
    return 2.0 if _leaves_all(stage) else TORCH_SPLIT


_Schedule: Any = vars(schedules)["_PipelineSchedule"]
_compute_loss = vars(_Schedule)["_maybe_compute_loss"]


def _leaves_all(stage: Any) -> bool:
    """Whether torch computes all of a halved backward pass in its second half, as it does on the
    first stage: nobody waits for the gradients of its inputs.
    """
    return bool(stage.is_first and stage.dw_builder is None)


SHARES: dict[str, Callable[..., float]] = {
    "forward_one_chunk": _forward,
    "backward_one_chunk": _backward,
    "backward_weight_one_chunk": _weights,
}
"""Methods of a stage that compute a microbatch, and their share of its time."""


def paced(
    method: Callable[..., Any], share: Callable[..., float], layers_s: Sequence[float]
) -> Any:
    """Make a stage's method take its time."""

    @wraps(method)
    def run(stage: Any, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        found = method(stage, *args, **kwargs)
        each = share(stage, full_backward=kwargs.get("full_backward", True))
        stage.paced_until_s = begun + each * sum(layers_s[one] for one in stage.submod.layers)
        if not (stage.is_last and method.__name__ == "forward_one_chunk"):
            _sleep_until(stage.paced_until_s)
        return found

    return run


def paced_loss(schedule: Any, stage: Any, *args: Any, **kwargs: Any) -> None:
    """Compute the loss, too, within the last stage's time."""
    _compute_loss(schedule, stage, *args, **kwargs)
    if stage.is_last:
        _sleep_until(stage.paced_until_s)


def _sleep_until(when_s: float) -> None:
    time.sleep(max(0.0, when_s - time.perf_counter()))


def main() -> int:
    given = [float(one) for one in sys.argv[1].split(",")]
    layers_s = given * 1000 if len(given) == 1 else given
    for name, share in SHARES.items():
        made = paced(getattr(PipelineStage, name), share, layers_s)
        patch.object(PipelineStage, name, made).start()
    patch.object(_Schedule, "_maybe_compute_loss", paced_loss).start()
    return train(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
