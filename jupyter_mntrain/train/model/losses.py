"""Losses: the cross-entropy of a microbatch, from all logits at once or in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

from jupyter_mntrain.families import Family
from jupyter_mntrain.recipe.devices import loss_for
from jupyter_mntrain.recipe.sections import LossKind, Recipe
from jupyter_mntrain.train.data.sequences import NOT_COUNTED
from jupyter_mntrain.train.own_tools import own_seat

# Logits: what a family does with the output projection's result: scales it, then caps it.


@dataclass(frozen=True)
class Shaping:
    """Scales and caps logits: ``cap * tanh(logits * times / over / cap)``, or without the cap."""

    times: float = 1.0
    over: float = 1.0
    cap: float | None = None

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply it in the dtype of the logits, step by step as transformers does."""
        if self.times != 1:
            logits = logits * self.times
        if self.over != 1:
            logits = logits / self.over
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def slope(self, shaped: torch.Tensor) -> torch.Tensor | float:
        """Return the derivative, given the result."""
        factor = self.times / self.over
        return factor if self.cap is None else (1 - (shaped / self.cap).square()) * factor

    @property
    def is_plain(self) -> bool:
        return self == PLAIN


PLAIN = Shaping()


def shaping_of(family: Family, config: Any) -> Shaping:
    """Return the shaping of a model's logits, by its transformers config."""

    def value(field: str | None) -> float | None:
        found = None if field is None else getattr(config, field)
        return None if found is None else float(found)

    times, over = value(family.logits_times), value(family.logits_over)
    return Shaping(
        times=1.0 if times is None else times,
        over=1.0 if over is None else over,
        cap=value(family.logits_cap),
    )


# Chunked cross-entropy: projects a few tokens at a time, and again in the backward pass.
#
# Of the forward pass only one number per token is kept, the logarithm of its logits' sum. All
# chunks of a microbatch add to one gradient of the output projection: left to autograd, each would
# make one of its own, 0.5 GB for a vocabulary of 128k and a hidden size of 2048.


class ChunkedLoss:
    """Sums the cross-entropy of hidden states (b, T, d) and labels (b, T), in float32.

    Args:
        head: the output projection; its weight is read in each call, since FSDP replaces it.
        chunk_tokens: number of tokens whose logits are held at once.
        shaping: of the logits.
        is_compiled: compile what is done with a chunk, so that its logits are written once and are
            not copied to float32.
    """

    def __init__(
        self,
        head: nn.Module,
        chunk_tokens: int,
        *,
        shaping: Shaping = PLAIN,
        is_compiled: bool = False,
    ) -> None:
        self._head = head
        self._shaping = shaping
        self._chunk_tokens = chunk_tokens
        self._forward: Callable[..., Any] = _sum_of_chunk
        self._backward: Callable[..., Any] = _gradients_of_chunk
        if is_compiled:
            # A microbatch has one shape of chunk, and perhaps a shorter one at the end.
            self._forward = torch.compile(_sum_of_chunk, dynamic=False)
            self._backward = torch.compile(_gradients_of_chunk, dynamic=False)

    def __call__(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        arguments = (hidden.flatten(0, 1), self._head.weight, labels.flatten(), self)
        total: torch.Tensor = _InChunks.apply(*arguments)  # type: ignore[no-untyped-call]
        return total

    def forward(
        self, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum over all tokens, and the log-sum-exp of each token."""
        total, logarithms = hidden.new_zeros((), dtype=torch.float32), []
        for tokens, theirs in self._chunks(hidden, labels):
            part, logarithm = self._forward(tokens, weight, theirs, self._shaping)
            total += part
            logarithms.append(logarithm)
        return total, torch.cat(logarithms)

    def backward(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        logarithms: torch.Tensor,
        scale: torch.Tensor,
        *,
        is_trained: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the gradients of the hidden states and of the weight, multiplied by ``scale``.

        Args:
            is_trained: whether the weight has a gradient.
        """
        of_hidden = torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight) if is_trained else None
        parts = self._chunks(hidden, labels, logarithms, of_hidden)
        for tokens, theirs, logarithm, found in parts:
            of_tokens, of_logits = self._backward(
                tokens, weight, theirs, logarithm, scale, self._shaping
            )
            found.copy_(of_tokens)
            if of_weight is not None:
                of_weight.addmm_(of_logits.T, tokens)
        return of_hidden, of_weight

    def _chunks(self, *tensors: torch.Tensor) -> Any:
        return zip(*(torch.split(one, self._chunk_tokens) for one in tensors), strict=True)


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        loss: ChunkedLoss,
    ) -> torch.Tensor:
        total, logarithms = loss.forward(hidden.detach(), weight.detach(), labels)
        context.save_for_backward(hidden, weight, labels, logarithms)
        context.loss = loss
        return total

    @staticmethod
    @once_differentiable
    def backward(
        context: Any, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, None, None]:
        saved = (one.detach() for one in context.saved_tensors)
        is_trained = context.needs_input_grad[1]
        return (*context.loss.backward(*saved, scale, is_trained=is_trained), None, None)


def _sum_of_chunk(
    tokens: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, shaping: Shaping
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = shaping(linear(tokens, weight)).float()
    logarithm = logits.logsumexp(-1)
    right = logits.gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    lost = torch.where(labels == NOT_COUNTED, 0.0, logarithm - right)
    return lost.sum(), logarithm


def _gradients_of_chunk(
    tokens: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    logarithm: torch.Tensor,
    scale: torch.Tensor,
    shaping: Shaping,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of the tokens and of their logits: softmax minus 1 at the label."""
    logits = shaping(linear(tokens, weight)).float()
    slope = None if shaping.is_plain else shaping.slope(logits)
    gradient = logits.sub_(logarithm.unsqueeze(-1)).exp_()
    # Compared rather than written by index: this becomes part of the same kernel.
    is_right = torch.arange(len(weight), device=weight.device) == labels.unsqueeze(-1)
    gradient.add_(is_right, alpha=-1)
    gradient.mul_(torch.where(labels == NOT_COUNTED, 0.0, scale).unsqueeze(-1))
    if slope is not None:
        gradient.mul_(slope)
    of_logits = gradient.to(weight.dtype)
    return of_logits @ weight, of_logits


# Losses: cross-entropy of a microbatch, from all logits at once or in chunks.
#
# With a vocabulary of 128k, the logits of 4096 tokens take 2 GB in float32, and cross-entropy holds
# them three times. In chunks, the last stage returns hidden states instead; the loss projects a few
# tokens at a time, and recomputes that in the backward pass.


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The last stage's output, (b, T, d) or (b, T, V), and labels (b, T) → summed loss, a scalar."""


def choose_loss(recipe: Recipe, vocabulary_size: int, device: torch.device) -> LossKind:
    """Return the recipe's loss; an ``auto`` that no launch has resolved is resolved for this
    device.
    """
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
