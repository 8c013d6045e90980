"""Meetings of replicas: when they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_mntrain.recipe.changes.running import changed_while_running
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train.optimizer.meetings import Meetings


class Noted(Meetings):
    """Notes after which steps it meets; what that does is compared by tests/train/meetings.py."""

    def __init__(self, recipe: Recipe) -> None:
        groups: Any = SimpleNamespace(replicas="those with the same weights")
        optimizer: Any = SimpleNamespace(kept=dict)
        nothing: Any = None
        super().__init__(recipe, groups, nothing, optimizer, nothing, unwatched)
        self.steps: list[int] = []
        self._now = 0

    def after(self, step: int) -> None:
        self._now = step
        super().after(step)

    def _meet(self) -> None:
        self.steps.append(self._now)


def made(*settings: str) -> Noted:
    rarely = ("data_parallel.replicas=2", "data_parallel.sync_every=3", "train.steps=7")
    return Noted(parse_recipe("", [*rarely, *settings]))


def test_replicas_meet_after_so_many_steps_and_after_the_last() -> None:
    meetings = made()
    for step in range(1, 8):
        meetings.after(step)
    meetings.conclude(7)
    assert meetings.steps == [3, 6, 7], "once after the last step, whoever asks"


def test_a_changed_number_of_steps_moves_the_last_meeting() -> None:
    for steps, expected in ((8, [3, 6, 8]), (6, [3, 6])):
        meetings = made()
        for step in range(1, steps + 1):
            meetings.after(step)
            if step == 5:
                setting = f"train.steps={steps}"
                meetings.recipe = changed_while_running(meetings.recipe, [setting], step=step)
        assert meetings.steps == expected


def test_a_run_that_ends_between_two_meetings_meets_before_its_model_is_written() -> None:
    meetings = made()
    for step in range(1, 6):
        meetings.after(step)
    assert not meetings.is_over(5)
    meetings.conclude(5)
    assert meetings.is_over(5)
    assert len(meetings.steps) == 2


def test_without_rare_meetings_there_are_none() -> None:
    meetings = made("data_parallel.sync_every=0")
    for step in range(1, 8):
        meetings.after(step)
        assert meetings.is_over(step)
    assert meetings.steps == []
