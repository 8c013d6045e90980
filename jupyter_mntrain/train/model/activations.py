"""Activation checkpointing: stores fewer activations and recomputes the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from jupyter_mntrain.recipe.sections import MemorySection
from jupyter_mntrain.train.model.decoder import StageModule
from jupyter_mntrain.train.model.offloading import Offload

_KEPT = frozenset(
    getattr(torch.ops.aten, name).default
    for name in (
        *("mm", "addmm", "bmm", "_scaled_dot_product_flash_attention"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_cudnn_attention"),
        *(
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        ),
    )
)
"""Operations that are most expensive to recompute: matrix products and attention."""


def keep_less(stage: StageModule, section: MemorySection, device: torch.device) -> None:
    """Apply the recipe's checkpointing, compilation and offloading to each layer of a stage."""
    for index in stage.layers:
        layer = stage.causal.model.layers[index]
        if section.checkpointing != "none":
            _compute_again(layer, is_selective=section.checkpointing == "selective")
        if section.compile:
            layer.compile()
    if section.offload_activations and device.type == "cuda":
        stage.keeping = Offload(stage.weights().values(), device)


def _compute_again(layer: nn.Module, *, is_selective: bool) -> None:
    forward = layer.forward
    contexts: dict[str, Any] = {}
    if is_selective:
        contexts["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **contexts, **kwargs)

    layer.forward = checkpointed


def _policy(_context: Any, operation: Callable[..., Any], *_: Any, **__: Any) -> CheckpointPolicy:
    kept = operation in _KEPT
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
