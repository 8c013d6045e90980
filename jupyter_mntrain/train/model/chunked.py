"""Chunked cross-entropy: projects a few tokens at a time, and again in the backward pass.

Of the forward pass only one number per token is kept, the logarithm of its logits' sum. All chunks
of a microbatch add to one gradient of the output projection: left to autograd, each would make one
of its own, 0.5 GB for a vocabulary of 128k and a hidden size of 2048.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from jupyter_mntrain.train.data.sequences import NOT_COUNTED
from jupyter_mntrain.train.model.logits import PLAIN, Shaping


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
        """Return the sum over all tokens, and the logarithm of each one's sum of exponentials."""
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
        """Return the gradients of the hidden states and of the weight, times ``scale``.

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
    """Gradients of the tokens and of what is projected: softmax less 1 at the label."""
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
