"""Optimizer algorithms: torch's and torchao's, and the state each keeps per parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.optimizer.optimizer_memory import quantized_block
from jupyter_mntrain.recipe.sections import OptimizerKind, OptimizerSection
from jupyter_mntrain.train.optimizer.adafactor import Adafactor
from jupyter_mntrain.train.optimizer.split import Split

ADAFACTOR_EPSILON = (1e-15, 1e-3)
"""torch squares the first one: these are the 1e-30 and 1e-3 of arXiv 1804.04235."""


def refuse_missing_grad_dtype(section: OptimizerSection) -> None:
    """Check that this node's torch can sum gradients in another dtype than the weights'.

    Raises:
        RecipeError: it is older than 2.10.
    """
    if section.grad_dtype == "float32" and not hasattr(torch.Tensor, "grad_dtype"):
        cause = f'optimizer.grad_dtype = "float32": torch {torch.__version__} cannot do that'
        raise RecipeError(cause, fix="install torch 2.10 or newer on every node, or leave it out")


def make_optimizer(
    section: OptimizerSection, named: Mapping[str, nn.Parameter], split: Split | None = None
) -> torch.optim.Optimizer:
    """Make the recipe's optimizer; it decays matrices only, not norms and biases."""
    parameters = [*named.values()]
    groups: list[dict[str, Any]] = [
        {"params": members, "weight_decay": decay}
        for members, decay in (
            ([p for p in parameters if p.ndim > 1], section.weight_decay),
            ([p for p in parameters if p.ndim <= 1], 0.0),
        )
        if members
    ]
    rate = section.learning_rate
    if section.kind == "adafactor":
        names: dict[torch.Tensor, str] = {one: name for name, one in named.items()}
        return Adafactor(groups, lr=rate, eps=ADAFACTOR_EPSILON, split=split, names=names)
    adam: dict[str, Any] = {"lr": rate, "betas": section.betas, "eps": section.epsilon}
    if section.kind == "adamw":
        return torch.optim.AdamW(groups, **adam, fused=True)
    from torchao.optim import AdamW4bit, AdamW8bit

    quantized: torch.optim.Optimizer = (
        AdamW8bit(groups, **adam) if section.kind == "adamw-8bit" else AdamW4bit(groups, **adam)
    )
    return quantized


def first_state(
    kind: OptimizerKind,
    target: torch.Tensor,
    averages: torch.dtype,
    *,
    all_rows: int | None = None,
) -> dict[str, torch.Tensor]:
    """Make an optimizer's initial state for one parameter.

    Optimizers make it themselves in the first step, which is too late for a run that resumes and
    must know which tensors to load.

    Args:
        target: the parameter, or the copy of it that is updated.
        averages: dtype of AdamW's averages, unless they are quantized.
        all_rows: of the whole parameter, where the target is some of them.
    """
    match kind:
        case "adafactor":
            return _adafactor_state(target)
        case "adamw":
            step = torch.zeros((), device=target.device)
            zeros = (torch.zeros_like(target, dtype=averages) for _ in range(2))
        case _:
            step = torch.zeros(())
            zeros = (
                _quantized_zeros(kind, target, all_rows, is_signed=signed)
                for signed in (True, False)
            )
    return {"step": step, "exp_avg": next(zeros), "exp_avg_sq": next(zeros)}


def _adafactor_state(target: torch.Tensor) -> dict[str, torch.Tensor]:
    state = {"step": torch.zeros((), device=target.device)}
    if target.ndim <= 1:
        return state | {"variance": torch.zeros_like(target)}
    *others, rows, columns = target.shape
    return state | {
        "row_var": target.new_zeros((*others, rows, 1)),
        "col_var": target.new_zeros((*others, 1, columns)),
    }


def _quantized_zeros(
    kind: OptimizerKind, target: torch.Tensor, all_rows: int | None, *, is_signed: bool
) -> torch.Tensor:
    from torchao.optim.subclass_4bit import OptimState4bit
    from torchao.optim.subclass_8bit import OptimState8bit

    per_row = math.prod(target.shape[1:])
    block = (
        quantized_block(kind, target.numel())
        if all_rows is None
        else quantized_block(kind, all_rows * per_row, per_row)
    )
    if block is None or not target.numel():
        return torch.zeros_like(target)
    quantized = OptimState8bit if kind == "adamw-8bit" else OptimState4bit
    zeros: torch.Tensor = quantized.zeros(
        target.shape, is_signed, block, target.device, dtype=target.dtype
    )
    return zeros
