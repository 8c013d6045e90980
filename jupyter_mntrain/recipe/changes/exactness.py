"""Exactness: which settings a resumed run may change, and how that affects its losses. Pure.

With none changed a resumed run has the losses of an unbroken one, on any number of ranks.
"""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.model.records.setting import Effect, SettingChange
from jupyter_mntrain.recipe.changes.settings import fields_of, resolved_fields
from jupyter_mntrain.recipe.learning_rate import as_written, ratio_at
from jupyter_mntrain.recipe.sections import MOST_WARMUP_STEPS, Recipe

EFFECTS: Final[dict[str, Effect]] = {
    "model": "refused",
    "model.path": "checked",
    "model.attention": "rounding",
    "data": "checked",
    "data.sequence_length": "refused",
    "data.seed": "refused",
    "tokens": "refused",
    "pipeline": "rounding",
    "pipeline.split": "none",
    "pipeline.in_flight": "none",
    "pipeline.deferred": "none",
    "pipeline.transfer": "other",
    "data_parallel": "rounding",
    "data_parallel.sync_every": "other",
    "data_parallel.outer_learning_rate": "other",
    "data_parallel.outer_momentum": "other",
    "data_parallel.sync_dtype": "other",
    "data_parallel.sync_fragments": "other",
    "data_parallel.sync_delay": "other",
    "optimizer": "other",
    "optimizer.kind": "refused",
    "optimizer.precision": "refused",
    "optimizer.grad_dtype": "rounding",
    "adapters": "refused",
    "adapters.dropout": "other",
    "adapters.quantize_base": "other",
    "memory": "rounding",
    "memory.offload_activations": "none",
    "train.steps": "other",
    "train.epochs": "other",
    "train.batch_size": "refused",
    "train.accumulation": "rounding",
    "train.seed": "other",
    "train.device": "rounding",
    "train.tf32": "rounding",
    "train.overfit_batch": "other",
    "train.skip_spikes": "other",
    "train.deterministic": "rounding",
    "train": "none",
    "evaluation.interval_steps": "refused",
    "evaluation.share": "refused",
    "evaluation": "none",
    "checkpoint": "none",
    "output": "none",
    "report": "none",
}
"""Effects by section, or by section and field, which wins."""

_OF_SCHEDULE = ("schedule", "warmup_steps", "min_ratio", "decay_share", "power")
_DURATION = ("train.steps", "train.epochs")
_SCHEDULE = frozenset({*_DURATION, *(f"optimizer.{field}" for field in _OF_SCHEDULE)})
_COMPARED_STEPS = 1000
"""Most steps at which two learning rates are compared."""


def changed_settings(before: Recipe, after: Recipe, *, step: int) -> tuple[SettingChange, ...]:
    """Return the differences between two recipes, in the order of the sections.

    ``auto`` settings that change as a result come last, if they are known.

    Args:
        step: finished steps of the checkpoint.
    """
    last = before.train.steps
    # The steps that epochs take follow from the data, and a checkpoint tells them, too.
    before, after = as_written(before), as_written(after)
    meant, means = dict(resolved_fields(before)), dict(resolved_fields(after))
    changes = (
        SettingChange(
            name=name,
            before=meant.get(name, old),
            after=means.get(name, new),
            effect=_effect(name, before, after, step, last),
            is_automatic=old == new,
        )
        for (name, old), (_, new) in zip(fields_of(before), fields_of(after), strict=True)
        if meant.get(name, old) != means.get(name, new)
        # Of another preset the name says enough.
        if old != new or not name.startswith("model.")
    )
    return tuple(sorted(changes, key=lambda one: one.is_automatic))


def effect_of(name: str) -> Effect:
    """Return the strongest effect that changing a setting can have."""
    return EFFECTS.get(name) or EFFECTS[name.partition(".")[0]]


def _effect(name: str, before: Recipe, after: Recipe, step: int, last: int | None) -> Effect:
    """Return the effect of a change on a run that is resumed after ``step``.

    Args:
        last: step of the run before; ``None`` if nobody knows how many its epochs take.
    """
    both = (before, after)
    every = before.data_parallel.sync_every
    if every and name == "data_parallel.replicas":
        return "other"  # a checkpoint has the weights of each
    if name == "data_parallel.sync_every" and not after.data_parallel.sync_every:
        return "refused" if after.data_parallel.replicas > 1 else "other"
    if every and name in _DURATION and step % every and last in {None, step}:
        return "other"  # replicas have synced after the last step, or may have
    if name in _SCHEDULE and _has_same_rates(before, after, step):
        return "none"
    if name == "train.seed" and before.trains_adapters and before.model.path is None:
        return "refused"  # the frozen weights would be others
    if any(_is_compressed(one) for one in both) and _rounds_otherwise(name, before, after):
        return "other"
    if name == "train.seed" and before.precision != "stochastic-rounding":
        return "none"  # the weights, and the state of the random numbers, come from the checkpoint
    evaluates = [one.evaluation.interval_steps > 0 for one in both]
    if name == "evaluation.interval_steps" and evaluates[0] == evaluates[1]:
        return "none"
    if name == "evaluation.share" and not any(evaluates):
        return "none"  # nothing is held out
    return effect_of(name)


def _is_compressed(recipe: Recipe) -> bool:
    """Whether stages may send to each other in fewer bits."""
    given = recipe.transfer
    return any(one != "none" for one in ((given,) if isinstance(given, str) else given))


def _rounds_otherwise(name: str, before: Recipe, after: Recipe) -> bool:
    """Whether a change has other values rounded, or otherwise, where stages send in fewer bits.

    What rounding in the last digits changes is then rounded to other numbers of few bits.
    """
    if name == "pipeline.schedule":
        return before.stages_per_rank != after.stages_per_rank
    return name in {"pipeline.split", "train.seed"} or effect_of(name) == "rounding"


def _has_same_rates(before: Recipe, after: Recipe, step: int) -> bool:
    if before.train.steps is None or after.train.steps is None:
        return all(_is_constant(one, step) for one in (before, after))
    last = min(before.train.steps, after.train.steps)
    stride = max(1, (last - step) // _COMPARED_STEPS)
    compared = {*range(step, last, stride), max(step, last - 1)}
    return all(ratio_at(before, one) == ratio_at(after, one) for one in compared)


def _is_constant(recipe: Recipe, step: int) -> bool:
    """Whether the learning rate is constant from ``step`` on, however many steps there are."""
    section = recipe.optimizer
    warmup = MOST_WARMUP_STEPS if section.warmup_steps is None else section.warmup_steps
    return step >= warmup and (section.schedule == "constant" or section.min_ratio == 1.0)
