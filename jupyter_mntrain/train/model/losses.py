"""Losses: cross-entropy of a microbatch, from all logits at once or in chunks.

With a vocabulary of 128k, the logits of 4096 tokens take 2 GB in float32, and cross-entropy holds
them three times. In chunks, the last stage returns hidden states instead; the loss projects a few
tokens at a time, and recomputes that in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

from jupyter_mntrain.recipe.devices.choices import loss_for
from jupyter_mntrain.recipe.sections import LossKind, Recipe
from jupyter_mntrain.train.data.sequences import NOT_COUNTED
from jupyter_mntrain.train.model.chunked import ChunkedLoss
from jupyter_mntrain.train.model.logits import PLAIN, Shaping
from jupyter_mntrain.train.own_tools import own_seat

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The last stage's output, (b, T, d) or (b, T, V), and labels (b, T) → summed loss, a scalar."""


def choose_loss(recipe: Recipe, vocabulary_size: int, device: torch.device) -> LossKind:
    """The recipe's loss; ``auto``, which jobs settle before, is resolved for this device."""
    if recipe.memory.loss != "auto":
        return recipe.memory.loss
    return loss_for(recipe, vocabulary_size, [own_seat(device)])


def make_loss(
    kind: LossKind,
    head: nn.Module,
    chunk_tokens: int,
    *,
    shaping: Shaping = PLAIN,
    is_compiled: bool = False,
    splits_backward: bool = False,
) -> Loss:
    """Make a function that sums the loss over all tokens that count, in float32.

    Args:
        head: the output projection; its weight is read in each call, since FSDP replaces it.
        chunk_tokens: number of tokens whose logits ``chunked`` holds at once.
        shaping: of its logits; what ``plain`` is given has it already.
        is_compiled: compile what ``chunked`` does with a chunk.
        splits_backward: the schedule asks for the gradients of activations and weights one after
            the other: only autograd's own functions compute one without the other.
    """
    if kind == "plain":
        return from_logits
    if kind == "liger":
        return _liger(head, shaping)
    if not splits_backward:
        return ChunkedLoss(head, chunk_tokens, shaping=shaping, is_compiled=is_compiled)

    def chunked(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        total, weight = hidden.new_zeros((), dtype=torch.float32), _weight(head)
        parts = zip(
            torch.split(hidden.flatten(0, 1), chunk_tokens),
            torch.split(labels.flatten(), chunk_tokens),
            strict=True,
        )
        for tokens, theirs in parts:
            total = total + checkpoint(
                *(_project, tokens, weight, theirs, shaping),
                use_reentrant=False,
                preserve_rng_state=False,
            )
        return total

    return chunked


def from_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum the cross-entropy of (..., V) logits over the labels that count."""
    flat = logits.flatten(0, -2).float()
    return cross_entropy(flat, labels.flatten(), ignore_index=NOT_COUNTED, reduction="sum")


def _project(
    tokens: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, shaping: Shaping
) -> torch.Tensor:
    return from_logits(shaping(linear(tokens, weight)), labels)


def _weight(head: nn.Module) -> torch.Tensor:
    weight: torch.Tensor = head.weight  # type: ignore[assignment]
    return weight


def _liger(head: nn.Module, shaping: Shaping) -> Loss:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    cap = {} if shaping.cap is None else {"softcap": shaping.cap}
    fused = LigerFusedLinearCrossEntropyLoss(ignore_index=NOT_COUNTED, reduction="sum", **cap)

    def loss(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if shaping.times != shaping.over:
            hidden = hidden * (shaping.times / shaping.over)
        found: torch.Tensor = fused(_weight(head), hidden.flatten(0, 1), labels.flatten())
        return found

    return loss
