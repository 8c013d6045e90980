"""Combinations: refuses recipe fields that exclude each other.

Pure; imports no torch.
"""

from __future__ import annotations

import math

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.metrics import MOST_PROMPTS
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import PYTHON_LIBRARY, OptimizerSection, Recipe


def check_stop_after(recipe: Recipe) -> None:
    """Refuse to stop by evaluations in a recipe without evaluations.

    Raises:
        RecipeError: naming the field and what to change.
    """
    if recipe.evaluation.stop_after:
        _need_evaluations(recipe, f"evaluation.stop_after = {recipe.evaluation.stop_after}: ")


def check_skipping(recipe: Recipe) -> None:
    """Refuse to skip spikes with settings that would skip normal steps or update weights too early.

    Raises:
        RecipeError: naming the field and what to change.
    """
    times = recipe.train.skip_spikes
    if not times:
        return
    given = f"train.skip_spikes = {times:g}"
    if times <= 1:
        cause = f"{given}: half of all steps are above their median"
        raise RecipeError(cause, fix="use a multiple above 1, for example 3, or 0 to skip none")
    if recipe.memory.fused_backward:
        cause = f"{given}: fused_backward updates weights before the whole gradient is known"
        raise RecipeError(cause, fix="use fused_backward = false or skip_spikes = 0")


def check_keep_best(recipe: Recipe) -> None:
    """Refuse to keep the best checkpoints without an evaluation loss to compare.

    Raises:
        RecipeError: naming the field and what to change.
    """
    if not recipe.checkpoint.keep_best:
        return
    given = f"checkpoint.keep_best = {recipe.checkpoint.keep_best}: "
    _need_evaluations(recipe, given)
    if recipe.checkpoint.counts_time:
        cause = f"{given}checkpoints that are scheduled by time are mostly not evaluated"
        fix = "use interval_steps, without interval_minutes and failure_hours"
        raise RecipeError(cause, fix=fix)
    saves, evaluates = recipe.checkpoint.interval_steps, recipe.evaluation.interval_steps
    fix = f"set checkpoint.interval_steps to a multiple of {evaluates}"
    if not saves:
        raise RecipeError(f"{given}the only checkpoint is the one at the end", fix=fix)
    if saves % evaluates:
        cause = f"{given}a checkpoint every {saves} steps and an evaluation every {evaluates}: "
        raise RecipeError(f"{cause}not every checkpoint is evaluated", fix=fix)


def check_prompts(recipe: Recipe) -> None:
    """Refuse prompts that are empty, too many, or never used.

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
    cause = "evaluation.prompts: prompts run at evaluations, but "
    _need_evaluations(recipe, cause)
    if section.prompt_tokens >= length:
        cause = f"evaluation.prompt_tokens = {section.prompt_tokens}: with the prompt"
        cause = f"{cause} exceeds data.sequence_length = {length}"
        raise RecipeError(cause, fix=f"use less than {length} or longer sequences")


def check_data(recipe: Recipe) -> None:
    """Refuse data settings that exclude each other or have no effect.

    Raises:
        RecipeError: naming the field and what to change.
    """
    section, added = recipe.data, recipe.tokens.add
    twice = next((one for one in added if added.count(one) > 1), None)
    if twice is not None:
        raise RecipeError(f"tokens.add: {twice} is listed twice", fix="name each token once")
    whole = {*recipe.adapters.train_whole}
    if added and recipe.trains_adapters and whole != {"embedding", "head"}:
        cause = "tokens.add: with adapters, the rows of added tokens would not be trained"
        fix = (
            'set adapters.train_whole = ["embedding", "head"], or use a model that has these tokens'
        )
        raise RecipeError(cause, fix=fix)
    if section.sources and section.source != PYTHON_LIBRARY:
        cause = "data.source and data.sources are both given"
        raise RecipeError(cause, fix="remove source, and list its path in sources")
    if section.evaluation_path is not None:
        _need_evaluations(recipe, "data.evaluation_path: ")
    if section.too_long == "cut":
        return
    given = f'data.too_long = "{section.too_long}"'
    if section.is_wrapped:
        cause = f"{given}: wrapped sequences are cut from one long text, where nothing is too long"
        raise RecipeError(cause, fix='use packing = "best-fit" or "none", or leave too_long out')
    if section.too_long == "split" and section.format != "chat":
        cause = f"{given}: only conversations have turns to split between"
        raise RecipeError(cause, fix='use "cut", "truncate" or "drop", or data.format = "chat"')


def _need_evaluations(recipe: Recipe, what: str) -> None:
    if not recipe.evaluation.interval_steps:
        cause = f"{what}no evaluations are scheduled"
        raise RecipeError(cause, fix="set evaluation.interval_steps, for example to 100")


def check_attention(recipe: Recipe) -> None:
    """Refuse an attention kernel that does not support the recipe's dtype.

    Raises:
        RecipeError: naming the field and what to change.
    """
    kind = recipe.model.attention
    if kind in {"flash_attention_2", "varlen"} and recipe.model.dtype == "float32":
        cause = f'model.attention = "{kind}": flash attention does not compute in float32'
        raise RecipeError(cause, fix='use dtype = "bfloat16", or attention = "auto"')


def check_memory(recipe: Recipe) -> None:
    """Refuse memory settings that exclude each other, whatever the model and number of ranks.

    Raises:
        RecipeError: naming the field and what to change.
    """
    section = recipe.memory
    check_compile(recipe)
    if section.checkpointing == "none" and section.checkpointing_every > 1:
        cause = (
            f"memory.checkpointing_every = {section.checkpointing_every}: no layer is recomputed, "
        )
        cause += 'because memory.checkpointing is "none"'
        raise RecipeError(cause, fix='use checkpointing = "full", or leave checkpointing_every out')
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
    if section.fused_backward and recipe.data_parallel.sums_gradients:
        cause = "memory.fused_backward = true: with several pipelines a gradient is complete only "
        cause += "after the backward pass"
        raise RecipeError(cause, fix="leave data_parallel out or use fused_backward = false")
    if recipe.optimizer.grad_dtype == "float32":
        _check_float32_gradients(recipe)
    _check_parallelism(recipe)


def check_compile(recipe: Recipe) -> None:
    """Refuse settings that do not work with compiled layers.

    Raises:
        RecipeError: naming the field and what to change.
    """
    if not recipe.compiles:
        return
    if KINDS[recipe.schedule].defers:
        cause = f"memory.compile = true: {recipe.schedule} defers gradients of weights, "
        cause += "and a compiled layer computes them with its backward pass"
        raise RecipeError(cause, fix='use schedule = "eager-1f1b" or compile = false')
    _check_parallelism(recipe)


def _check_parallelism(recipe: Recipe) -> None:
    if recipe.data_parallel.shards > 1:
        _check_shards(recipe)
    if KINDS[recipe.schedule].splits_backward:
        _check_split_backward(recipe)


def check_schedule(recipe: Recipe) -> None:
    """Refuse fields that belong to another learning-rate schedule.

    Raises:
        RecipeError: naming the field and what to change.
    """
    section, usual = recipe.optimizer, OptimizerSection()
    for field, whose in (("decay_share", "wsd"), ("power", "polynomial")):
        if section.schedule != whose and getattr(section, field) != getattr(usual, field):
            cause = f'optimizer.{field}: schedule = "{section.schedule}" does not use it'
            raise RecipeError(cause, fix=f'leave {field} out or use schedule = "{whose}"')


def check_duration(recipe: Recipe) -> None:
    """Refuse a warm-up that is longer than the run, and a decay that starts during the warm-up.

    Args:
        recipe: with a known number of steps.

    Raises:
        RecipeError: naming the field and what to change.
    """
    section, epochs = recipe.optimizer, recipe.train.epochs
    if recipe.warmup_steps > recipe.steps:
        what = "train.steps" if epochs is None else f"the steps of {epochs:g} epochs"
        cause = f"optimizer.warmup_steps = {recipe.warmup_steps}: more than {what}"
        raise RecipeError(cause, fix=f"use at most {recipe.steps}")
    most = recipe.steps - recipe.warmup_steps
    if section.schedule == "wsd" and recipe.decay_steps > max(1, most):
        cause = f"optimizer.decay_share = {section.decay_share:g}: the decay takes "
        cause += f"{recipe.decay_steps} steps, and the warm-up of {recipe.warmup_steps} "
        cause += f"leaves {most}"
        share = math.floor(100 * most / recipe.steps) / 100
        fix = f"use at most {share:g}" if share else "use fewer warmup_steps"
        raise RecipeError(cause, fix=f"{fix}, or more steps")


def check_overfitting(recipe: Recipe) -> None:
    """Refuse epochs for a run that trains on its first batch only.

    Raises:
        RecipeError: naming the field and what to change.
    """
    if recipe.train.epochs is not None and recipe.train.overfit_batch:
        cause = f"train.epochs = {recipe.train.epochs:g}: with overfit_batch every step trains on "
        raise RecipeError(f"{cause}the first batch", fix="use steps, or leave overfit_batch out")


def check_precision(recipe: Recipe) -> None:
    """Refuse a rounding mode for updates if weights are in float32 anyway.

    Raises:
        RecipeError: naming the field and what to change.
    """
    given = recipe.optimizer.precision
    if given not in {"auto", "plain"} and recipe.model.dtype == "float32":
        cause = f'optimizer.precision = "{given}": the weights are float32 already'
        raise RecipeError(cause, fix='leave it out or set model.dtype = "bfloat16"')


def _check_shards(recipe: Recipe) -> None:
    """Refuse settings that do not work with sharded weights."""
    given = f"data_parallel.shards = {recipe.data_parallel.shards}"
    if recipe.adapters.quantizes:
        cause = f"{given}: weights in 4 bits (adapters.quantize_base) are not sharded"
        raise RecipeError(cause, fix="use data_parallel.replicas, or leave quantize_base out")


def check_resharding(recipe: Recipe, ranks: int) -> None:
    """Refuse resharding after forward without sharded weights, or in a pipeline.

    Args:
        ranks: of a pipeline.

    Raises:
        RecipeError: naming the field and what to change.
    """
    if not recipe.data_parallel.reshard_after_forward:
        return
    given = "data_parallel.reshard_after_forward = true"
    if recipe.data_parallel.shards == 1:
        cause = f"{given}: no weights are sharded"
        raise RecipeError(cause, fix="set data_parallel.shards, or leave it out")
    if ranks > 1:
        cause = f"{given}: with a pipeline of {ranks} ranks, each of its many microbatches would "
        cause += "gather all weights again"
        width = recipe.data_parallel.replicas * ranks
        fix = f"leave it out, or let shards x replicas be the ranks, for example shards = {width}"
        raise RecipeError(cause, fix=fix)


def _check_float32_gradients(recipe: Recipe) -> None:
    """Refuse settings that do not work with gradients summed in float32."""
    given, name = 'optimizer.grad_dtype = "float32"', recipe.schedule
    if recipe.data_parallel.shards > 1:
        cause = f"{given}: sharded gradients have the dtype of the weights"
        raise RecipeError(cause, fix="leave grad_dtype out or use data_parallel.replicas")
    if KINDS[name].splits_backward:
        cause = f"{given}: {name} splits the backward pass, and torch then sums gradients in the "
        cause += "dtype of the weights"
        raise RecipeError(cause, fix='use schedule = "interleaved-1f1b" or leave grad_dtype out')


def check_tied(recipe: Recipe, stages: int, *, is_tied: bool) -> None:
    """Refuse ``fused_backward`` with a tied embedding, whose gradients are summed too late."""
    if recipe.memory.fused_backward and is_tied and recipe.trains_tied and stages > 1:
        cause = (
            "memory.fused_backward = true: the embedding is tied, and its gradient is complete "
            "only after the backward pass"
        )
        raise RecipeError(cause, fix="use model.tie_embeddings = false or fused_backward = false")


def _check_split_backward(recipe: Recipe) -> None:
    """Refuse settings that do not work with a split backward pass."""
    section, name = recipe.memory, recipe.schedule
    reasons = {
        "compile = true": recipe.compiles and "a compiled layer has one backward pass, not two",
        "fused_backward = true": section.fused_backward
        and "its gradients accumulate outside of autograd",
        'loss = "liger"': section.loss == "liger" and "Liger has one backward pass, not two",
        'checkpointing = "selective"': recipe.checkpointing == "selective"
        and "kept activations can be used only once",
    }
    for field, reason in reasons.items():
        if reason:
            cause = f"memory.{field}: {name} splits the backward pass, and {reason}"
            raise RecipeError(cause, fix=f'use schedule = "interleaved-1f1b" or leave {field} out')
