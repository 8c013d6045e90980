"""Combinations: fields that have no effect without others."""

from __future__ import annotations

import pytest

from jupyter_mntrain.recipe.parse import parse_recipe
from tests.recipe.test_parse import refusal
from tests.wording import says

BEST = "[checkpoint]\nkeep_best = 2\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BEST, "checkpoint.keep_best = 2: no evaluations are scheduled. Fix: set evaluation.int"),
        (
            f"{BEST}interval_steps = 30\n[evaluation]\ninterval_steps = 20",
            "not every checkpoint is evaluated. Fix: set checkpoint.interval_steps to a mult",
        ),
        (
            f"{BEST}interval_steps = 0\n[evaluation]\ninterval_steps = 20",
            "the only checkpoint is the one at the end. Fix: set checkpoint.interval_steps to a ",
        ),
        (
            f"{BEST}interval_minutes = 10\n[evaluation]\ninterval_steps = 20",
            "checkpoints that are scheduled by time are mostly not evaluated. Fix: use interval",
        ),
        (
            f"{BEST}failure_hours = 24\n[evaluation]\ninterval_steps = 20",
            "checkpoints that are scheduled by time are mostly not evaluated. Fix: use interval",
        ),
    ],
)
def test_the_best_need_a_loss_of_each_checkpoint(text: str, told: str) -> None:
    assert says(told, refusal(text))


def test_the_best_may_be_kept_of_checkpoints_that_are_rarer_than_evaluations() -> None:
    recipe = parse_recipe(f"{BEST}interval_steps = 60\n[evaluation]\ninterval_steps = 20")
    assert recipe.checkpoint.keep_best == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[train]\nskip_spikes = 0.5",
            "train.skip_spikes = 0.5: half of all steps are above their median. Fix: use a mult",
        ),
        (
            "[train]\nskip_spikes = 3\n[memory]\nfused_backward = true\n[optimizer]\nclip_norm = 0",
            "fused_backward updates weights before the whole gradient is known. Fix: use fused",
        ),
    ],
)
def test_only_steps_that_are_not_applied_yet_can_be_skipped(text: str, told: str) -> None:
    assert says(told, refusal(text))
