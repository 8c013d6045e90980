"""Syncs of replicas: when they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.changes.running import changed_while_running
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train.optimizer.diloco import OuterSyncs, UnderWay
from tests.wording import says, wording


class Noted(OuterSyncs):
    """Notes after which steps it meets; what that does is compared by tests/train/syncs.py."""

    def __init__(self, recipe: Recipe) -> None:
        groups: Any = SimpleNamespace(replicas="those with the same weights")
        optimizer: Any = SimpleNamespace(kept=dict)
        pipeline: Any = SimpleNamespace(counted_once=tuple)
        meter: Any = None
        super().__init__(recipe, groups, pipeline, optimizer, meter, unwatched)
        self.held: list[str] = []
        self._now = 0

    @property
    def steps(self) -> list[int]:
        return [int(one.rpartition(" ")[2]) for one in self.held]

    def after(self, step: int) -> None:
        self._now = step
        super().after(step)

    def _average(self, fragment: int) -> None:
        self.held.append(f"meets {fragment} after {self._now}")

    def _send(self, fragment: int, step: int) -> None:
        self.held.append(f"sends {fragment} after {step}")
        self._under_way = UnderWay(fragment, step)

    def _take(self) -> None:
        if self._under_way is not None:
            self.held.append(f"takes {self._under_way.fragment} after {self._now}")
            self._under_way = None


def made(*settings: str) -> Noted:
    rarely = ("data_parallel.replicas=2", "data_parallel.sync_every=3", "train.steps=7")
    return Noted(parse_recipe("", [*rarely, *settings]))


def test_replicas_meet_after_so_many_steps_and_after_the_last() -> None:
    syncs = made()
    for step in range(1, 8):
        syncs.after(step)
    syncs.conclude(7)
    assert syncs.steps == [3, 6, 7], "once after the last step, whoever asks"


def test_a_changed_number_of_steps_moves_the_last_sync() -> None:
    for steps, expected in ((8, [3, 6, 8]), (6, [3, 6])):
        syncs = made()
        for step in range(1, steps + 1):
            syncs.after(step)
            if step == 5:
                setting = f"train.steps={steps}"
                syncs.recipe = changed_while_running(syncs.recipe, [setting], step=step)
        assert syncs.steps == expected


def test_a_run_that_ends_between_two_syncs_syncs_before_its_model_is_written() -> None:
    syncs = made()
    for step in range(1, 6):
        syncs.after(step)
    assert not syncs.is_over(5)
    syncs.conclude(5)
    assert syncs.is_over(5)
    assert len(syncs.steps) == 2


def test_without_rare_syncs_there_are_none() -> None:
    syncs = made("data_parallel.sync_every=0")
    for step in range(1, 8):
        syncs.after(step)
        assert syncs.is_over(step)
    assert syncs.steps == []


def test_fragments_meet_in_turn_and_all_that_have_not_yet_after_the_last_step() -> None:
    syncs = made("data_parallel.sync_every=4", "data_parallel.sync_fragments=2")
    for step in range(1, 8):
        syncs.after(step)
        assert syncs.is_over(step) == (step == 7)
    held = [f"meets {one} after {step}" for step, one in ((2, 0), (4, 1), (6, 0), (7, 0), (7, 1))]
    assert syncs.held == held


def test_a_fragment_that_has_just_met_does_not_meet_again_when_a_run_ends() -> None:
    syncs = made("data_parallel.sync_every=4", "data_parallel.sync_fragments=2")
    for step in range(1, 5):
        syncs.after(step)
    syncs.end(4, is_written=True)
    assert syncs.held[2:] == ["meets 0 after 4"]
    assert syncs.is_over(4)


def test_an_average_is_taken_some_steps_later_and_before_the_last_sync() -> None:
    rarely = ("data_parallel.sync_every=6", "data_parallel.sync_fragments=2")
    syncs = made(*rarely, "data_parallel.sync_delay=2")
    for step in range(1, 8):
        syncs.after(step)
    assert syncs.held == [
        *("sends 0 after 3", "takes 0 after 5", "sends 1 after 6"),
        *("takes 1 after 7", "meets 0 after 7", "meets 1 after 7"),
    ]


@pytest.mark.parametrize(
    ("settings", "cause", "fix"),
    [
        (
            ["sync_every=4", "sync_fragments=3"],
            "is not a multiple of it",
            "use 2 fragments, or sync",
        ),
        (["sync_every=4", "sync_delay=4"], "the next fragment syncs 4 steps later", "most 3"),
        (["sync_every=4", "sync_fragments=4", "sync_delay=1"], "1 step later", "at most 0"),
        (["sync_fragments=2"], "gradients in every step", "set sync_every"),
    ],
)
def test_fragments_that_cannot_meet_are_refused(settings: list[str], cause: str, fix: str) -> None:
    rarely = ["data_parallel.replicas=2", *(f"data_parallel.{one}" for one in settings)]
    with pytest.raises(RecipeError, match=wording(cause)) as caught:
        parse_recipe("", rarely)
    assert says(fix, caught.value.problem.fix)
