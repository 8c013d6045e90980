"""Algorithms: the optimizers of torch, torchao and our own, and their state per parameter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.linalg import vector_norm

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.memory import quantized_block, shard_shape
from jupyter_mntrain.recipe.sections import OptimizerKind, OptimizerSection

# Split parameters: each of the ranks that share them has some of their rows, and its state.


_FLAT = (".codes", ".scale")
"""Parts of torchao's quantized averages, which hold the values of a row one after the other."""


class Split(NamedTuple):
    """How parameters are split among ranks.

    Args:
        group: the ranks that share them.
        rows: begin and end of this rank's rows, by parameter.
        whole: all rows, by parameter.
    """

    group: dist.ProcessGroup
    rows: Mapping[str, tuple[int, int]]
    whole: Mapping[str, int]

    def largest(self, name: str, part: torch.Tensor) -> int:
        """Return the number of values in the largest part of a parameter.

        It is the same on all ranks, even on one that has no rows of it.
        """
        whole = (self.whole[name], *part.shape[1:])
        return math.prod(shard_shape(whole, self.group.size()))

    def add_up(self, parts: Sequence[torch.Tensor]) -> None:
        """Replace tensors by their sums over the ranks. Collective."""
        flat = torch.cat([one.reshape(-1).float() for one in parts])
        dist.all_reduce(flat, group=self.group)
        sums = torch.split(flat, [one.numel() for one in parts])
        for one, total in zip(parts, sums, strict=True):
            one.copy_(total.view_as(one))


def rows_of_state(
    state: str, tensor: torch.Tensor, parameter: torch.Tensor, rows: tuple[int, int]
) -> tuple[int, int] | None:
    """Return the rows of an optimizer's whole state tensor that a rank has; ``None`` if it has all.

    Args:
        state: its kind, such as ``exp_avg`` or ``exp_avg.scale``.
        parameter: the rank's part, of these rows.
    """
    begin, end = rows
    if state.endswith(_FLAT) and tensor.shape != parameter.shape:
        each = len(tensor) // max(1, end - begin)
        return begin * each, end * each
    if state.endswith("col_var"):
        return rows if tensor.ndim > 2 else None
    is_split = state.endswith("row_var") or tensor.shape == parameter.shape
    return rows if is_split else None


# Adafactor that never makes the host wait for the device (arXiv 1804.04235).


class Adafactor(torch.optim.Adafactor):
    """torch's Adafactor, without waiting for the device to read norms.

    torch's own reads two norms of each parameter on the host, in every step, and makes the whole
    estimate of the second moment; here the gradient is scaled in place by its rows and columns.
    ``step`` in the state is on the parameter's device. Gradients are used up.

    Args:
        split: how the parameters are split over ranks: what is of a whole one is added up, for all
            of them together, twice in a step. All ranks have gradients of the same ones.
        names: of the parameters, where they are split.
    """

    def __init__(
        self,
        params: Any,
        *,
        split: Split | None = None,
        names: Mapping[torch.Tensor, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(params, **options)
        self._split = split
        self._names = names or {}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient.

        Raises:
            ValueError: there is a closure.
        """
        if closure is not None:
            raise ValueError("Adafactor.step() takes no closure here")
        with torch.no_grad():
            updates = (
                _update(one, one.grad, self.state[one], group, self._rows(one))
                for group in self.param_groups
                for one in group["params"]
                if one.grad is not None
            )
            if self._split is None:
                for update in updates:
                    for _ in update:
                        pass
                return
            for sums in zip(*updates, strict=True):
                self._split.add_up([one for some in sums for one in some])

    def _rows(self, parameter: torch.Tensor) -> int:
        """Return the number of rows of the whole parameter."""
        return len(parameter) if self._split is None else self._split.whole[self._names[parameter]]


def _update(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    state: dict[str, Any],
    group: dict[str, Any],
    all_rows: int,
) -> Iterator[list[torch.Tensor]]:
    """Update a parameter, or some rows of it.

    Args:
        all_rows: of the whole one.

    Yields:
        Twice, what is to be added up in place over all ranks that have rows of it.
    """
    step, rate, (floor, least) = state["step"], group["lr"], group["eps"]
    is_matrix = gradient.ndim == 2
    step += 1
    fresh = (step ** group["beta2_decay"]).to(parameter.dtype)
    root = math.sqrt(all_rows * math.prod(parameter.shape[1:]))
    square = vector_norm(parameter, dtype=torch.float32).square_()
    sums = [square]
    if gradient.ndim > 1:
        rows, columns = state["row_var"], state["col_var"]
        # As means of squares, without a tensor of the gradient's size.
        norm = vector_norm(gradient, dim=-1, keepdim=True)
        rows.lerp_(norm.square_().div_(gradient.shape[-1]), fresh)
        new = vector_norm(gradient, dim=-2, keepdim=True).square_()
        mean = rows.sum(dim=-2, keepdim=True)
        if is_matrix:
            sums += [new, mean]
    yield sums
    alpha = (square.sqrt() / root).clamp(min=least) * step.rsqrt().clamp(max=rate)
    parameter.mul_(1 - rate * group["weight_decay"])
    if gradient.ndim > 1:
        height = all_rows if is_matrix else gradient.shape[-2]
        columns.lerp_(new.div_(height), fresh)
        mean.div_(height).clamp_(min=floor)
        gradient.mul_((rows / mean).clamp_(min=floor**2).rsqrt_())
        gradient.mul_(columns.clamp(min=floor**2).rsqrt_())
    else:
        known = state["variance"].lerp_(gradient.square(), fresh)
        gradient.mul_(known.clamp(min=floor**2).rsqrt_())
    square = vector_norm(gradient, dtype=torch.float32).square_()
    yield [square]
    norm = square.sqrt() / (root * group["d"])
    parameter.sub_(gradient.mul_(alpha / norm.clamp(min=1)))


# Optimizer algorithms: torch's and torchao's, and the state each keeps per parameter.


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
    """Make the initial optimizer state of one parameter.

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
