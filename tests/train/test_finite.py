"""NaN: the trainer ends on all ranks, before it saves what is spoiled."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest
import torch

from jupyter_mntrain.model.errors import NotFiniteError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.finite import FiniteCheck, _Own, _problem, chosen
from jupyter_mntrain.train.world import join_world
from tests.train.checkpoint.saved import run, saves
from tests.train.test_command import write_text
from tests.wording import says

OVERFLOWS = (
    *("optimizer.learning_rate=10", "optimizer.weight_decay=10", "optimizer.min_ratio=1"),
    *("optimizer.warmup_steps=0", "train.steps=60", "checkpoint.interval_steps=3"),
)
"""Each step multiplies all weights by -99, until float32 overflows."""

PATIENCE_S = 60.0

GOOD = _Own(host="a", is_loss_finite=True, is_gradient_finite=True)
NO_LOSS = _Own(host="b", is_loss_finite=False, is_gradient_finite=False)
NO_GRADIENT = _Own(host="c", is_loss_finite=True, is_gradient_finite=False)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


@pytest.mark.slow
def test_it_ends_at_the_first_nan_with_the_checkpoints_from_before_it(
    text: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotFiniteError) as caught:
        run(text, tmp_path / "kept", *OVERFLOWS)
    problem = caught.value.problem
    assert (problem.kind, problem.rank) == (Kind.LOSS_NAN, 0)
    assert problem.step is not None
    last = (problem.step - 1) // 3 * 3
    assert 3 <= last < 57
    assert saves(tmp_path / "kept")[-1] == f"step-{last:08d}", "and none of that step or later"
    assert says(f"the checkpoint of step {last} is", problem.fix)


def test_at_the_first_step_the_models_own_files_may_be_why() -> None:
    with join_world("cpu", PATIENCE_S) as world:
        check = FiniteCheck(world, "stop", print, "/models/some")
        check.note(torch.tensor(nan))
        sums = {"loss": nan, "grad_norm": 0.0}
        fixes = [check.error("loss", step, sums, None).problem.fix for step in (1, 2)]
    assert says("copy config.json and weights of /models/some again", fixes[0])
    assert "/models/some" not in fixes[1]


@pytest.mark.slow
def test_it_goes_on_if_the_recipe_says_so(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(text, tmp_path / "kept", *OVERFLOWS, "train.on_nan=report")
    assert len(result.losses) == 60
    assert capsys.readouterr().out.count("train.on_nan") == 1


@pytest.mark.parametrize(
    ("recipe", "launch", "choice"),
    [
        ("", "", "stop"),
        ('[train]\non_nan = "report"', "", "report"),
        ('[train]\non_nan = "report"', "stop", "stop"),
        ("", "report", "report"),
    ],
)
def test_the_launch_overrides_the_recipe(recipe: str, launch: str, choice: str) -> None:
    environment = {"MNTRAIN_ON_NAN": launch} if launch else {}
    assert chosen(parse_recipe(recipe), environment) == choice


@pytest.mark.parametrize(
    ("ranks", "loss", "norm", "rank", "cause"),
    [
        ([GOOD, NO_LOSS], float("nan"), 1.0, 1, "the loss became NaN at step 7"),
        ([NO_GRADIENT, NO_LOSS, GOOD], float("inf"), 1.0, 1, "the loss became infinite"),
        ([NO_GRADIENT, NO_GRADIENT, GOOD], 2.0, float("nan"), 1, "the gradient became NaN"),
        ([GOOD, GOOD], 2.0, float("inf"), 0, "the gradient became infinite"),
    ],
    ids=["loss", "infinite loss", "gradient", "only together"],
)
def test_the_rank_that_had_it_first_is_named(
    ranks: list[_Own], loss: float, norm: float, rank: int, cause: str
) -> None:
    problem = _problem("loss", 7, {"loss": loss, "grad_norm": norm}, ranks)
    assert (problem.rank, problem.node, problem.step) == (rank, ranks[rank].host, 7)
    assert says(cause, problem.cause)
