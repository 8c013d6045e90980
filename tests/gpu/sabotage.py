"""Sabotage: faults of a trainer that the acceptance must report, each with its reason.

Only where ``NVIDIA_TF32_OVERRIDE`` is set: not in what check 1 compares with.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any


def wrong_loss() -> None:
    """Weights that are not those of the seed."""
    _in_first_step(_changed)


def exception() -> None:
    _in_first_step(_raise)


def hang() -> None:
    _in_first_step(_sleep)


def death() -> None:
    _in_first_step(_leave)


def _in_first_step(act: Callable[[Any], None]) -> None:
    if "NVIDIA_TF32_OVERRIDE" not in os.environ:
        return
    from jupyter_mntrain.train.loop import Trainer

    begin = Trainer.begin

    def sabotaged(trainer: Any, number: int, *more: Any) -> Any:
        if number == 0:
            act(trainer)
        return begin(trainer, number, *more)

    Trainer.begin = sabotaged  # type: ignore[method-assign]


def _changed(trainer: Any) -> None:
    import torch

    with torch.no_grad():
        for one in trainer.pipeline.parameters().values():
            one.mul_(1.5)


def _raise(trainer: Any) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _sleep(trainer: Any) -> None:
    time.sleep(3600)


def _leave(trainer: Any) -> None:
    print("Segmentation fault", flush=True)
    os._exit(139)
