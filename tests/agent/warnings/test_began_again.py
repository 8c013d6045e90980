"""Began again: a restarted script that starts from the beginning."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.agent.warnings.watch import began_again
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import TRAINER, Earlier, JobSpec
from jupyter_mntrain.model.records.metrics import RankStep
from tests.wording import says

SCRIPT = JobSpec(entry=("train.py",), participants=())
CAME_FAR = Earlier(world_size=2, step=400, attempt=1)
RESUMED = Earlier(world_size=2, step=400)


def step(number: int) -> RankStep:
    return RankStep(time_s=5.0, rank=Rank(1), step=number, step_s=0.1)


@pytest.mark.parametrize(
    ("number", "earlier"),
    [
        (1, None),
        (1, Earlier(world_size=2)),
        (1, Earlier(world_size=2, step=1, attempt=1)),
        (301, CAME_FAR),
        (2, CAME_FAR),
    ],
    ids=["first attempt", "nothing done before", "one step", "resumed", "its second step"],
)
def test_no_warning(number: int, earlier: Earlier | None) -> None:
    assert began_again(step(number), earlier, SCRIPT) is None


@pytest.mark.parametrize(
    ("spec", "saved_step", "fix"),
    [
        (SCRIPT, None, "save checkpoints to $MNTRAIN_CHECKPOINT_DIR"),
        (SCRIPT, 300, "load the checkpoint of step 300 from $MNTRAIN_CHECKPOINT_DIR"),
        (JobSpec(entry=("-m", TRAINER), participants=()), None, "set checkpoint.interval_steps"),
    ],
    ids=["never saved", "saved", "trainer"],
)
def test_the_first_step_again_is_told_with_what_is_lost(
    spec: JobSpec, saved_step: int | None, fix: str
) -> None:
    earlier = Earlier(world_size=2, step=400, attempt=1, saved_step=saved_step)
    problem = began_again(step(1), earlier, spec)
    assert problem is not None
    assert (problem.kind, problem.rank, problem.time_s) == (Kind.BEGAN_AGAIN, 1, 5.0)
    assert says("began at step 1 again: attempt 1 had reached step 400", problem.cause)
    assert says(fix, problem.fix)


def test_a_resumed_script_that_starts_over_is_told_too() -> None:
    problem = began_again(step(1), RESUMED, SCRIPT)
    assert problem is not None
    assert says("an earlier job of this run had reached step 400", problem.cause)


def test_a_script_that_does_not_say_its_steps_is_believed_if_there_is_a_checkpoint() -> None:
    """The Recorder counts from 1 in a script that goes on at step 301, too."""
    counted = msgspec.structs.replace(step(1), is_counted=True)
    assert began_again(counted, CAME_FAR, SCRIPT, has_checkpoints=True) is None
    told = msgspec.structs.replace(CAME_FAR, saved_step=300)
    assert began_again(counted, told, SCRIPT) is None
    lost = began_again(counted, CAME_FAR, SCRIPT)
    assert lost is not None
    assert says("recorder.step(step=…)", lost.fix)
    assert began_again(step(1), CAME_FAR, SCRIPT, has_checkpoints=True) is not None
