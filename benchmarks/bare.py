"""Bare training loop: the minimal code that trains a transformers model."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from jupyter_mntrain.train.data.batches import Batch


def step(
    model: Any, optimizer: torch.optim.Optimizer, batch: Batch, microbatches: int, clip_norm: float
) -> float:
    """Run one optimizer step and wait for the device; the mean loss per token.

    Args:
        batch: on the model's device, every label counts.
    """
    total = torch.zeros((), device=batch.inputs.device)
    for part in batch.parts(len(batch) // microbatches):
        logits = model(input_ids=part.inputs, use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1).float(), part.labels.flatten()) / microbatches
        loss.backward()
        total += loss.detach()
    clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return total.item()
