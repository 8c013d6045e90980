"""Spikes: steps far above the usual ones leave the weights as they are."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path

import pytest
import torch

from jupyter_mntrain.model.errors import NotFiniteError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.recipe.sections import TrainSection
from jupyter_mntrain.train.optimizer import spikes
from jupyter_mntrain.train.optimizer.spikes import COUNTS, FEWEST, HISTORY, Spikes
from tests.train.checkpoint.saved import forget, run
from tests.train.test_command import write_text
from tests.wording import says


def quiet(_: str) -> None:
    pass


def after(count: int, times: float = 3.0) -> Spikes:
    """After so many steps with a loss of 2 and a norm of 1."""
    state = {
        HISTORY: torch.tensor([(2.0, 1.0)] * count, dtype=torch.float64),
        COUNTS: torch.tensor([0, 0, 0]),
    }
    made = Spikes(TrainSection(skip_spikes=times), quiet)
    made.restore(state)
    return made


@pytest.mark.parametrize(
    ("steps", "loss", "norm", "told"),
    [
        (FEWEST, 5.9, 2.9, None),
        (FEWEST, 6.1, 1.0, "the loss 6.1 is more than 3 times the median 2 of 16 steps"),
        (FEWEST, 2.0, 3.1, "the gradient norm 3.1 is more than 3 times the median 1 of 16 steps"),
        (FEWEST - 1, 600.0, 300.0, None),
        (1, nan, 1.0, "the loss is NaN"),
        (1, 2.0, inf, "the gradient norm is infinite"),
    ],
)
def test_a_spike_is_told_with_its_value(
    steps: int, loss: float, norm: float, told: str | None
) -> None:
    why = after(steps).judge(loss, norm)
    assert (why is None) == (told is None)
    assert told is None or (why is not None and says(told, why))


def test_its_state_is_that_of_a_checkpoint() -> None:
    begun = Spikes(TrainSection(skip_spikes=3.0), quiet)
    assert begun.state() == {}
    first, second = after(20), after(20)
    first.skipped, first.last_step = 2, 7
    second.restore(first.state())
    assert second.fields == {"skipped": 2, "skipped_step": 7}
    assert len(second.state()[HISTORY]) == 40


@pytest.fixture
def spiky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 4 and 7 have a loss that is NaN, as rank 0 sees them."""
    applies = Spikes.applies

    def spoiled(self: Spikes, step: int, loss: torch.Tensor, norm: torch.Tensor) -> bool:
        return applies(self, step, loss * nan if step in {4, 7} else loss, norm)

    monkeypatch.setattr(spikes.Spikes, "applies", spoiled)


@pytest.mark.usefixtures("spiky")
def test_skipped_steps_are_counted_and_a_resumed_run_goes_on_with_the_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, kept = write_text(tmp_path / "text"), tmp_path / "kept"
    whole = run(text, kept, "train.skip_spikes=3")
    said = capsys.readouterr().out
    assert says("step 4 skipped: the loss is NaN; 1 skipped so far", said)
    assert says("step 7 skipped: the loss is NaN; 2 skipped so far", said)
    assert len(whole.losses) == 9
    forget(kept, 9)
    again = run(text, kept, "train.skip_spikes=3")
    assert again.losses == whole.losses[6:]
    assert says("step 7 skipped: the loss is NaN; 2 skipped so far", capsys.readouterr().out)


@pytest.mark.usefixtures("spiky")
def test_as_many_in_a_row_as_are_allowed_end_the_job(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text")
    with pytest.raises(NotFiniteError) as caught:
        run(text, tmp_path / "kept", "train.skip_spikes=3", "train.skip_limit=1")
    problem = caught.value.problem
    assert (problem.kind, problem.step) == (Kind.LOSS_DIVERGED, 4)
    assert says("1 steps in a row were skipped as spikes, since step 4", problem.cause)
    assert says("the checkpoint of step 3 is", problem.fix)
