"""Changing: applies new settings while the job runs, after the same step on all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Protocol

from msgspec.structs import replace

from jupyter_mntrain.model.environment import JOB_VARIABLE
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.model.records.job import RunningChange
from jupyter_mntrain.recipe.changes.running import changed_values, changed_while_running
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.controls import ControlReader
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.world import World, gathered


class HasRecipe(Protocol):
    """An object that reads the recipe at every step."""

    recipe: Recipe


@dataclass
class SettingChanges:
    """Changes of settings that were requested while the job runs.

    Rank 0's wish for one travels with the all-reduce of every step, as that for a checkpoint does;
    the change itself follows once all ranks know of it.

    Args:
        users: of the recipe, all of which read it again at every step.
        say: prints a line to the job's log.
    """

    world: World
    recorder: Recorder
    users: Sequence[HasRecipe]
    say: Callable[[str], None]
    wishes: ControlReader = field(default_factory=ControlReader)

    def __post_init__(self) -> None:
        self.is_wanted = False
        """Whether :meth:`take` has something to take, by the votes counted so far."""

    def vote(self) -> int:
        """Return this rank's vote in the step's all-reduce."""
        # Only rank 0 relays requests: they reach one node's agent only.
        return int(self.world.is_head and bool(self.wishes.settings()))

    def count(self, votes: float) -> None:
        """Take the sum of all ranks' :meth:`vote`."""
        self.is_wanted = votes > 0

    def take(self, step: int) -> None:
        """Apply the requested changes for the steps after ``step``. Collective if one is wanted."""
        if not self.is_wanted:
            return
        self.is_wanted = False
        asked = self.wishes.settings() if self.world.is_head else ()
        # Rank 0's clock, too: all nodes report the same change.
        asked, now_s = gathered(self.world, (asked, time()))[0]
        if self.world.is_head:
            self.wishes.took_settings(len(asked))
        for request in asked:
            change = RunningChange(key=request.key, step=step, time_s=now_s, by=request.by)
            recipe = self._taken(request, self.users[0].recipe, change)
            for user in self.users:
                user.recipe = recipe

    def _taken(self, request: SettingsRequest, recipe: Recipe, change: RunningChange) -> Recipe:
        """Return the recipe with the requested changes, or unchanged if all ranks refuse them."""
        job_id, settings = os.environ.get(JOB_VARIABLE, "JOB"), request.settings
        try:
            changed = changed_while_running(recipe, settings, step=change.step, job_id=job_id)
        except MntrainError as error:  # it was checked before, but the job has gone on since
            self._tell(replace(change, refused=error.problem), str(error))
            return recipe
        values = changed_values(recipe, changed, settings)
        change = replace(change, values=values, total_steps=changed.train.steps)
        self._tell(change, str(change))
        return changed

    def _tell(self, change: RunningChange, said: str) -> None:
        """Report a change to every node's agent, which stores it with the job."""
        if self.world.local_rank == 0:
            self.recorder.changed(change)
        if self.world.is_head:
            self.say(f"settings after step {change.step}, by {change.by or 'unknown'}: {said}")
