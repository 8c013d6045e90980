"""Running changes: new settings for a running job, and their effect on its learning rate. Pure.

Nodes, ranks and drivers check a change by the same rules.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from jupyter_mntrain.launch.settings import setting_of
from jupyter_mntrain.model.errors import RecipeError, SpecError
from jupyter_mntrain.model.records.job import ChangedValue
from jupyter_mntrain.recipe.changes.exactness import changed_settings, effect_of
from jupyter_mntrain.recipe.changes.settings import fields_of, resolved_fields
from jupyter_mntrain.recipe.combinations import check_duration
from jupyter_mntrain.recipe.learning_rate import ratio_at
from jupyter_mntrain.recipe.parse import recipe_from
from jupyter_mntrain.recipe.sections import CHANGEABLE, Recipe, why_fixed

_INTERVAL = "evaluation.interval_steps"


def _refuse_fixed(
    before: Recipe, after: Recipe, settings: Sequence[str], *, step: int, job_id: str
) -> None:
    """Refuse fields that cannot change while a job runs, all in one error."""
    fixed = {setting_of(one): one for one in settings if setting_of(one) not in CHANGEABLE}
    if not fixed:
        return
    reasons = [f"{one} does not change while a job runs: {why_fixed(one)}" for one in fixed]
    cause = "; ".join(reasons)
    effects = {one.name: one.effect for one in changed_settings(before, after, step=step)}
    if any("refused" in {effect_of(name), effects.get(name)} for name in fixed):
        raise SpecError(cause, fix="leave it as it is, or launch another job with it")
    again = " ".join(f"--set {one}" for one in fixed.values())
    fix = f"stop and resume it: mntrain stop {job_id} --save, then mntrain resume {job_id} {again}"
    raise SpecError(cause, fix=fix)


def changed_while_running(
    recipe: Recipe, settings: Sequence[str], *, step: int, job_id: str = "JOB"
) -> Recipe:
    """Return the recipe with new settings for the steps after ``step``.

    Args:
        settings: ``section.field=value``; of several of one field the last counts.
        job_id: for what to do instead.

    Raises:
        RecipeError: there is no such field or value, or it does not go with the others.
        SpecError: a field does not change while a job runs, or none of them changes.
    """
    changed = _changed(recipe, settings)
    _refuse_fixed(recipe, changed, settings, step=step, job_id=job_id)
    if changed == recipe:
        same = ", ".join(settings)
        raise SpecError(f"{same}: that is how it runs already", fix="give another value")
    steps = changed.train.steps
    if steps is not None and steps <= step and steps != recipe.train.steps:
        raise RecipeError(
            f"train.steps = {steps}: step {step} is finished already",
            fix=f"give a larger number, or end it now: mntrain stop {job_id} --save",
        )
    _refuse_other_evaluations(recipe.evaluation.interval_steps, changed)
    return changed


def _changed(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Return the recipe with new settings; its epochs still take as many steps as were counted."""
    raw = msgspec.to_builtins(recipe)
    if recipe.train.epochs is None:
        return recipe_from(raw, settings)
    raw["train"].pop("steps", None)
    changed = recipe_from(raw, settings)
    if changed.train.epochs is not None and recipe.train.steps is not None:
        train = replace(changed.train, steps=recipe.train.steps)
        changed = replace(changed, train=train)
        check_duration(changed)
    return changed


def _refuse_other_evaluations(before: int, changed: Recipe) -> None:
    """Refuse to turn evaluations on or off: a restart would hold out other data."""
    after = changed.evaluation.interval_steps
    if bool(before) == bool(after):
        return
    cause = f"{_INTERVAL} = {after}: {why_fixed('evaluation')}"
    if after:
        raise RecipeError(cause, fix=f"launch another job with --set {_INTERVAL}={after}")
    raise RecipeError(cause, fix="use as many as all steps, to evaluate at the end only")


def changed_values(
    before: Recipe, after: Recipe, settings: Sequence[str]
) -> tuple[ChangedValue, ...]:
    """Return the values that settings change in a recipe, for storing with the job."""
    old, new, meant = dict(fields_of(before)), dict(fields_of(after)), dict(resolved_fields(before))
    return tuple(
        ChangedValue(name, _word(meant.get(name, old[name])), _word(new[name]))
        for name in dict.fromkeys(map(setting_of, settings))
        if old[name] != new[name]
    )


def rate_notes(before: Recipe, after: Recipe, *, step: int) -> tuple[str, ...]:
    """Return lines about how a change after ``step`` affects the learning rate.

    They are empty if it does not, or if the number of steps is not known yet.
    """
    if before.train.steps is None or after.train.steps is None:
        return ()
    rates = [one.optimizer.learning_rate * ratio_at(one, step) for one in (before, after)]
    notes = []
    if rates[0] != rates[1]:
        notes.append(f"learning rate of step {step + 1:,}: {rates[0]:.3g} → {rates[1]:.3g}")
    decays = [_decay(before), _decay(after)]
    if decays[0] != decays[1]:
        notes.append(f"then: {decays[0]} → {decays[1]}")
    warmups = [before.warmup_steps, after.warmup_steps]
    if warmups[0] != warmups[1] and after.optimizer.warmup_steps is None:
        notes.append(f"optimizer.warmup_steps {warmups[0]} → {warmups[1]} (auto)")
    return tuple(notes)


def _decay(recipe: Recipe) -> str:
    section, last = recipe.optimizer, recipe.steps
    if section.schedule == "constant":
        return f"constant at {section.learning_rate:.3g}"
    least = section.learning_rate * section.min_ratio
    begin = f" from step {last - recipe.decay_steps:,}" if section.schedule == "wsd" else ""
    return f"{section.schedule}{begin} to {least:.3g} at step {last:,}"


def _word(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
