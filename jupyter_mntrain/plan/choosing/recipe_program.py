"""Recipe program: answers the control plane's questions about a job of the built-in trainer.

What prices a recipe is imported by the questions that need it: an agent asks for directories only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from jupyter_mntrain.model.api import LeaseGrant
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.running_changes import SET
from jupyter_mntrain.model.program import Program
from jupyter_mntrain.model.records.doctor.machine import AskedPath
from jupyter_mntrain.model.records.job import JobSpec, Placement
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import AchievedRate, DeviceMeasurement, Plan, StepSpans
from jupyter_mntrain.model.records.setting import Setting, SettingChange
from jupyter_mntrain.recipe.parse import refuse_both_durations
from jupyter_mntrain.recipe.sections import CHANGEABLE, Recipe
from jupyter_mntrain.recipe.stored import (
    RECIPE_FILE,
    chosen_words,
    durable_directory,
    named_directory,
    overrides_of,
    recipe_of,
    written_recipe,
)


def program_of(spec: JobSpec) -> RecipeProgram | None:
    """Return the program of a job with a recipe; ``None`` if it has no recipe."""
    return None if overrides_of(spec) is None else RecipeProgram(spec)


class RecipeProgram(Program):
    """The program of a job that the built-in trainer runs by a recipe.

    Args:
        recipe: by which it trains; by default that of the spec. Reading that raises RecipeError if
            it is not valid.
    """

    is_script = False
    own_files = frozenset({RECIPE_FILE})
    changeable = frozenset(CHANGEABLE)

    def __init__(self, spec: JobSpec, recipe: Recipe | None = None) -> None:
        super().__init__(spec)
        self._given = recipe

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe, with the settings that were chosen for the job."""
        return self._given or cast("Recipe", recipe_of(self.spec))

    @cached_property
    def written(self) -> Recipe:
        """The recipe as it was written, with ``auto`` kept."""
        return self._given or cast("Recipe", written_recipe(self.spec))

    def settings(self) -> tuple[Setting, ...]:
        from jupyter_mntrain.recipe.changes.settings import settings_of_recipe

        spec = self.spec
        return settings_of_recipe(
            spec.files[RECIPE_FILE],
            overrides_of(spec) or (),
            set_in=spec.set_in,
            chosen=spec.chosen,
        )

    def with_settings(self, settings: Sequence[str]) -> JobSpec:
        if isinstance(settings, str) or not settings:
            return super().with_settings(settings)
        refuse_both_durations(settings)
        words = (word for one in settings for word in (SET, one))
        changed = msgspec.structs.replace(self.spec, entry=(*self.spec.entry, *words))
        recipe_of(changed)
        return changed

    def changed(
        self, settings: Sequence[str], *, step: int, job_id: JobId, told_steps: int | None = None
    ) -> tuple[Program, Program]:
        from jupyter_mntrain.recipe.changes.running import changed_while_running

        train = replace(self.recipe.train, steps=self.total_steps(self, told_steps))
        before = replace(self.recipe, train=train)
        after = changed_while_running(before, settings, step=step, job_id=job_id)
        return RecipeProgram(self.spec, before), RecipeProgram(self.spec, after)

    def rate_notes(self, after: Program, *, step: int) -> tuple[str, ...]:
        from jupyter_mntrain.recipe.changes.running import rate_notes

        if not isinstance(after, RecipeProgram):
            return ()
        return rate_notes(self.recipe, after.recipe, step=step)

    def planned(self, infos: Sequence[NodeInfo]) -> tuple[JobSpec, Plan | None]:
        from jupyter_mntrain.plan.choosing.job_plan import planned_spec
        from jupyter_mntrain.recipe.fitting import fitted

        return planned_spec(fitted(self.spec, infos), infos)

    def chosen_as_for(self, other: JobSpec) -> JobSpec:
        # What depends on devices, or on how fast they and their links are just now, is not chosen
        # again: another schedule adds up in another order, and the losses differ by rounding.
        entry = (*self.spec.entry[:3], *chosen_words(other), *self.spec.entry[3:])
        return msgspec.structs.replace(self.spec, entry=entry)

    def refuse_leased(
        self, placements: Sequence[Placement], grants: Sequence[LeaseGrant], *, is_resumed: bool
    ) -> None:
        from jupyter_mntrain.recipe.fitting import refuse_leased

        refuse_leased(self.spec, placements, grants, is_resumed=is_resumed)

    def spans(self, plan: Plan) -> StepSpans | None:
        from jupyter_mntrain.plan.choosing.job_plan import spans_as_planned

        return spans_as_planned(self.spec, plan)

    def achieved(
        self,
        job_id: JobId,
        world_size: int,
        info: NodeInfo,
        placement: Placement,
        steps: Mapping[int, Sequence[RankStep]],
    ) -> Iterator[tuple[DeviceMeasurement, AchievedRate]]:
        from jupyter_mntrain.plan.prediction.achieved import achieved_rates
        from jupyter_mntrain.recipe.changes.fewer_ranks import on_fewer_ranks
        from jupyter_mntrain.recipe.memory import model_config

        config = model_config(self.recipe)
        if config is None:
            return iter(())
        recipe = on_fewer_ranks(self.recipe, world_size, self.spec.world_size)
        return achieved_rates(recipe, config, world_size, job_id, info, placement, steps)

    def asked_paths(self) -> tuple[AskedPath, ...]:
        from jupyter_mntrain.recipe.asked_paths import asked_paths

        return asked_paths(self.written)

    def model(self) -> str | None:
        return self.written.model.path

    def needs_tokenizer(self) -> bool:
        return self.written.data.tokenizer == "auto"

    def arguments(self) -> tuple[str, ...]:
        return (RECIPE_FILE, *chosen_words(self.spec), *self.spec.entry[3:])

    def named_directories(self) -> tuple[str | None, str | None]:
        section = self.recipe.checkpoint
        return section.directory, section.copy_to

    def checkpoint_directory(self, run: str) -> Path | None:
        return named_directory(self.recipe, run)

    def copies_directory(self, run: str) -> Path | None:
        return durable_directory(self.recipe, run)

    def saved_by(self, settings: Mapping[str, Any]) -> RecipeProgram | None:
        try:
            return RecipeProgram(self.spec, msgspec.convert(settings, Recipe))
        except msgspec.ValidationError:  # another version's settings
            return None

    def going_on_from(self, before: Program) -> tuple[Program, Program]:
        from jupyter_mntrain.recipe.fitting import keeping

        if not isinstance(before, RecipeProgram):
            return self, before
        spec, trained = keeping(self.spec, before.recipe)
        return RecipeProgram(spec), RecipeProgram(before.spec, trained)

    def changes_since(self, before: Program, *, step: int) -> tuple[SettingChange, ...]:
        from jupyter_mntrain.recipe.changes.exactness import changed_settings

        if not isinstance(before, RecipeProgram):
            return ()
        return changed_settings(before.recipe, self.recipe, step=step)

    def total_steps(
        self, before: Program | None = None, told_steps: int | None = None
    ) -> int | None:
        train = self.recipe.train
        if train.epochs is None:
            return train.steps
        if not isinstance(before, RecipeProgram) or before.recipe.train.epochs != train.epochs:
            return None
        return before.recipe.train.steps if told_steps is None else told_steps
