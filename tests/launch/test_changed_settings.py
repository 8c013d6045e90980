"""torchrun command of a job whose settings were changed while an earlier attempt ran."""

from __future__ import annotations

from jupyter_mntrain.model.records.job import TRAINER, ChangedValue, Earlier, RunningChange
from tests.launch.test_torchrun import placement, render, spec


def test_another_attempt_goes_on_with_what_was_changed_while_the_one_before_it_ran() -> None:
    value = ChangedValue("train.steps", "100", "200")
    change = RunningChange("a", 7, 70.0, values=(value,))
    trainer = spec(entry=("-m", TRAINER, "recipe.toml"), chosen={"memory.loss": "plain"})
    earlier = Earlier(world_size=2, changes=(change,))
    argv = render(trainer, placement(0), earlier=earlier).argv
    assert argv[-5:] == ("recipe.toml", "--set", "train.steps=200", "--auto", "memory.loss=plain")
