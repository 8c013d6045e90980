"""Combinations: refuses fields of a recipe that exclude each other, or the GPUs it would run on.

Pure; imports no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import Recipe

MOST_PROMPTS = 8
"""More would be too many samples to read during training."""

BFLOAT16_CAPABILITY = (8, 0)
"""Compute capability of the first NVIDIA GPUs with bfloat16 tensor cores, Ampere."""


def check_cards(recipe: Recipe, chosen: Iterable[tuple[NodeInfo, Collection[int]]]) -> None:
    """Refuse GPUs that lack what the recipe needs.

    Args:
        chosen: each node, with the indices of its GPUs that would be used.

    Raises:
        RecipeError: naming the first such node and GPU, and what to change.
    """
    if recipe.train.device == "cpu":
        return
    for node, indices in chosen:
        for gpu in node.inventory.gpus:
            if gpu.index in indices:
                card = f"GPU {gpu.index}, {gpu.name},"
                check_dtype(recipe.model.dtype, card, gpu.compute_capability, node=node.name)


def check_dtype(
    dtype: str, card: str, capability: tuple[int, ...] | None, *, node: str | None = None
) -> None:
    """Refuse a dtype that a GPU lacks: torch would only emulate bfloat16.

    Args:
        card: the GPU, for people.
        capability: its compute capability; what is unknown is not refused.

    Raises:
        RecipeError: naming node, GPU and what to change.
    """
    if dtype != "bfloat16" or capability is None or capability >= BFLOAT16_CAPABILITY:
        return
    own, least = (".".join(map(str, one)) for one in (capability, BFLOAT16_CAPABILITY))
    cause = f'model.dtype = "bfloat16": {card} has no bfloat16 (compute capability {own}, and '
    cause += f"{least} is needed)"
    raise RecipeError(cause, fix='use dtype = "float32", or leave this node out', node=node)


def check_prompts(recipe: Recipe) -> None:
    """Refuse prompts that are empty, too many, or never run.

    Raises:
        RecipeError: naming the field and what to change.
    """
    section, length = recipe.evaluation, recipe.data.sequence_length
    count = len(section.prompts)
    if not count:
        return
    for number, prompt in enumerate(section.prompts):
        if not prompt.strip():
            cause = f"evaluation.prompts[{number}]: the prompt is empty"
            raise RecipeError(cause, fix='set one, like "Once upon a time", or omit it')
    if count > MOST_PROMPTS:
        cause = f"evaluation.prompts: {count} prompts, and every evaluation runs all of them"
        raise RecipeError(cause, fix=f"keep at most {MOST_PROMPTS}")
    if not section.interval_steps:
        cause = "evaluation.prompts: prompts run at evaluations, but no evaluations are scheduled"
        raise RecipeError(cause, fix="set evaluation.interval_steps, for example to 100")
    if section.prompt_tokens >= length:
        cause = f"evaluation.prompt_tokens = {section.prompt_tokens}: with the prompt"
        cause = f"{cause} exceeds data.sequence_length = {length}"
        raise RecipeError(cause, fix=f"use less than {length} or longer sequences")


def check_attention(recipe: Recipe) -> None:
    """Refuse packed documents that would attend to each other.

    transformers tells documents apart for flash attention only in a batch of one sequence
    (``_is_packed_sequence`` in ``modeling_flash_attention_utils.py``).

    Raises:
        RecipeError: naming the field and what to change.
    """
    size, given = recipe.microbatch_size, recipe.model.attention
    if given != "flash_attention_2" or not recipe.data.is_packed or size <= 1:
        return
    cause = f'model.attention = "{given}": in microbatches of {size} sequences, it lets packed '
    cause += "documents attend to each other"
    count = recipe.pipeline.microbatches * size
    fix = f'use "sdpa", or pipeline.microbatches = {count} for one sequence in each'
    raise RecipeError(cause, fix=fix)


def check_memory(recipe: Recipe) -> None:
    """Refuse memory settings that exclude each other, whatever the model and number of ranks.

    Raises:
        RecipeError: naming the field and what to change.
    """
    section = recipe.memory
    if section.compile and section.checkpointing == "selective":
        cause = 'memory.checkpointing = "selective": a compiled layer chooses what to keep itself'
        raise RecipeError(cause, fix='use "none" or "full", or compile = false')
    if section.offload_activations and recipe.train.device == "cpu":
        cause = "memory.offload_activations = true: activations on a CPU are in host memory already"
        raise RecipeError(cause, fix='leave it out or use train.device = "auto"')
    if section.loss == "liger" and recipe.train.device == "cpu":
        raise RecipeError('memory.loss = "liger": requires CUDA', fix='use "chunked"')
    if section.fused_backward and recipe.optimizer.clip_norm:
        cause = (
            f"memory.fused_backward = true: optimizer.clip_norm = {recipe.optimizer.clip_norm:g} "
            "needs all gradients before the first update"
        )
        raise RecipeError(cause, fix="use clip_norm = 0 or fused_backward = false")
    if section.fused_backward and recipe.data_parallel.width > 1:
        cause = "memory.fused_backward = true: with several pipelines a gradient is complete only "
        cause += "after the backward pass"
        raise RecipeError(cause, fix="leave data_parallel out or use fused_backward = false")
    if recipe.data_parallel.shards > 1:
        _check_shards(recipe)
    if KINDS[recipe.pipeline.schedule].splits_backward:
        _check_split_backward(recipe)


def _check_shards(recipe: Recipe) -> None:
    """Refuse what does not work with sharded weights."""
    given = f"data_parallel.shards = {recipe.data_parallel.shards}"
    if recipe.optimizer.kind != "adamw":
        cause = f"{given}: {recipe.optimizer.kind} requires unsharded weights"
        raise RecipeError(cause, fix='use kind = "adamw" or data_parallel.replicas')
    for field in ("compile", "offload_activations"):
        if getattr(recipe.memory, field):
            cause = f"{given}: memory.{field} = true does not work with sharded weights"
            raise RecipeError(cause, fix=f"leave {field} out or use data_parallel.replicas")


def check_tied(recipe: Recipe, stages: int, *, is_tied: bool) -> None:
    """Refuse ``fused_backward`` with a tied embedding, whose gradients are summed too late."""
    if recipe.memory.fused_backward and is_tied and stages > 1:
        cause = (
            "memory.fused_backward = true: the embedding is tied, and its gradient is complete "
            "only after the backward pass"
        )
        raise RecipeError(cause, fix="use model.tie_embeddings = false or fused_backward = false")


def _check_split_backward(recipe: Recipe) -> None:
    """Refuse what does not work with a split backward pass."""
    section, name = recipe.memory, recipe.pipeline.schedule
    reasons = {
        "compile = true": section.compile and "a compiled layer has one backward pass, not two",
        "fused_backward = true": section.fused_backward
        and "its gradients accumulate outside of autograd",
        'loss = "liger"': section.loss == "liger" and "Liger has one backward pass, not two",
        'checkpointing = "selective"': section.checkpointing == "selective"
        and "kept activations can be used only once",
    }
    for field, reason in reasons.items():
        if reason:
            cause = f"memory.{field}: {name} splits the backward pass, and {reason}"
            raise RecipeError(cause, fix=f'use schedule = "interleaved-1f1b" or leave {field} out')
