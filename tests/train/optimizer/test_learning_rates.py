"""Learning rates of a whole training, next to those of transformers' schedules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import get_scheduler

from jupyter_mntrain.recipe.learning_rate import ratio_at
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.optimizer.optimizer import Optimizer

STEPS = 101
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "cosine": ("cosine", {}),
    "cosine to a tenth": ("cosine_with_min_lr", {"min_lr_rate": 0.1}),
    "linear": ("linear", {}),
    "linear to a tenth": ("polynomial", {"lr_end": 0.1, "power": 1.0}),
    "constant": ("constant_with_warmup", {}),
    "polynomial": ("polynomial", {"lr_end": 0.0, "power": 2.0}),
    "polynomial to a tenth": ("polynomial", {"lr_end": 0.1, "power": 0.5}),
    "wsd": ("warmup_stable_decay", {"num_decay_steps": 20, "decay_type": "linear"}),
}
"""What is compared, and its name and settings in transformers."""


def theirs(name: str, settings: dict[str, Any], warmup_steps: int) -> list[float]:
    """Of steps 0 to STEPS. The last step here is the one after the last there: theirs is asked for
    one step less, so that the lowest rate is that of a step which is made.
    """
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_scheduler(name, sgd, warmup_steps, STEPS - 1, dict(settings))
    rates = []
    for _ in range(STEPS + 1):
        rates.append(sgd.param_groups[0]["lr"])
        sgd.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("warmup_steps", [0, 1, 13])
@pytest.mark.parametrize("case", THEIRS)
def test_every_step_has_the_learning_rate_of_transformers(case: str, warmup_steps: int) -> None:
    name, settings = THEIRS[case]
    kind = case.partition(" ")[0]
    fields = [f"optimizer.schedule={kind}", f"optimizer.warmup_steps={warmup_steps}"]
    fields += [f"optimizer.min_ratio={0.1 if case.endswith('a tenth') else 0}"]
    fields += [f"train.steps={STEPS}"]
    if kind == "polynomial":
        fields.append(f"optimizer.power={settings['power']}")
    recipe = parse_recipe("", fields)
    expected = theirs(name, settings, warmup_steps)
    for step in range(STEPS):
        # Their first step has the rate 0, and learns nothing: the warm-up here is a step ahead.
        other = expected[step + 1] if step < warmup_steps else expected[step]
        assert ratio_at(recipe, step) == pytest.approx(other, abs=1e-12), step


def test_a_run_that_goes_on_has_the_rates_of_one_that_never_ended() -> None:
    fields = ("optimizer.schedule=wsd", "train.steps=50", "optimizer.decay_share=0.3")
    recipe = parse_recipe("", fields)

    def made() -> Optimizer:
        parameters = {"a.weight": nn.Parameter(torch.ones(2))}
        return Optimizer(recipe, parameters, parameters)

    unbroken, resumed = made(), made()
    for _ in range(40):
        unbroken.update(torch.tensor(0.0))
    resumed.resume_after(40)
    assert resumed.learning_rate == unbroken.learning_rate < recipe.optimizer.learning_rate
