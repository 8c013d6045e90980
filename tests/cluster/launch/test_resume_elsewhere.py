"""``resume --from PATH``: planned with the settings that the checkpoint there was saved with."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.checkpoint import HeldCheckpoint, Manifest, NodeCheckpoints
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Participant
from tests.cluster.conftest import wait_for
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.wording import says

RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 1000\nbatch_size = 32\n'
KEPT = "/kept/run"


@pytest.fixture
def ended(near: Cluster, two: list[FakeAgent], elsewhere: Elsewhere) -> Any:
    """A job of both nodes that has ended, of a recipe or a script."""

    def end(entry: tuple[str, ...], files: dict[str, str]) -> Job:
        nodes = tuple(Participant(node=name) for name in ("node1", "node2"))
        job = near.launch(JobSpec(entry=entry, files=files, participants=nodes))
        for agent in two:
            elsewhere.do(agent.finish, job.id)
        wait_for(lambda: job.state == "succeeded")
        return job

    return end


@pytest.fixture
def job(ended: Any) -> Job:
    made: Job = ended(("-m", TRAINER, "recipe.toml"), {"recipe.toml": RECIPE})
    return made


def keep(two: list[FakeAgent], elsewhere: Elsewhere, step: int, **train: int) -> None:
    """On node1 both shards of a checkpoint that another recipe saved on two ranks."""
    recipe = {"model": {"preset": "llama-tiny"}, "train": {"steps": 1000, **train}}
    manifest = Manifest(step, 1, (10, 20), hosts=("x", "y"), recipe=recipe)
    held = HeldCheckpoint(manifest, (0, 1), 5.0)
    found = NodeCheckpoints(run=JobId(""), directory=KEPT, checkpoints=(held,))
    elsewhere.do(two[0].kept.__setitem__, KEPT, found)


def test_what_fits_the_checkpoint_there_need_not_fit_the_jobs_own_recipe(
    job: Job, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    keep(two, elsewhere, 400, batch_size=8)
    spec = program_of(job.spec()).with_settings(["train.batch_size=8", "train.log_interval=7"])
    plan = job.plan_resume(spec, begin=KEPT)
    assert list(map(str, plan.changes)) == ["train.log_interval 10 → 7"]
    assert plan.path == KEPT
    assert (plan.step, plan.ranks, plan.losses) == (400, (2, 2), "equal")
    origin = plan.spec.origin
    assert origin is not None
    assert (origin.job, origin.run, origin.is_branch) == (job.id, job.id, True)
    assert (origin.place, origin.world_size, origin.reached) == (f"{KEPT}/step-00000400", 2, 400)
    assert "checkpoints" not in {route for agent in two for _, route in agent.requests}


def test_what_fits_only_the_jobs_own_recipe_is_refused(
    job: Job, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    keep(two, elsewhere, 400, batch_size=8)
    with pytest.raises(SpecError) as caught:
        job.plan_resume(begin=KEPT)
    assert says("train.batch_size 8 → 32", caught.value.cause)
    assert says(KEPT, caught.value.cause)


def test_the_best_of_the_run_is_the_one_with_the_lowest_evaluation_loss(
    job: Job, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    with pytest.raises(RefusedError) as caught:
        job.plan_resume(begin="best")
    assert caught.value.kind is Kind.NO_CHECKPOINT
    held = tuple(
        HeldCheckpoint(Manifest(step, 1, (10, 20), evaluation_loss=loss), (0, 1), 5.0)
        for step, loss in {200: 1.5, 400: 1.75}.items()
    )
    for agent in two:
        found = NodeCheckpoints(run=job.id, directory="/kept", checkpoints=held)
        elsewhere.do(agent.checkpoints.__setitem__, job.id, found)
    origin = job.plan_resume(begin="best").spec.origin
    assert origin is not None
    assert (origin.run, origin.step, origin.is_branch) == (job.id, 200, True)


def test_a_directory_without_the_step_that_is_named_is_refused(
    job: Job, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    keep(two, elsewhere, 400, batch_size=32)
    with pytest.raises(RefusedError) as caught:
        job.plan_resume(begin=f"{KEPT}/step-00000200")
    assert caught.value.kind is Kind.NO_CHECKPOINT
    assert says("400", caught.value.fix)


def test_a_script_gets_the_very_directory_that_was_named(
    ended: Any, near: Cluster, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    keep(two, elsewhere, 400)
    job = ended(("own.py",), {"own.py": "pass"})
    named = f"{KEPT}/step-00000400"
    for spec in (
        job.plan_resume(begin=named).spec,
        near.plan_launch(job.spec(), named).spec,
    ):
        assert spec.origin is not None
        assert spec.origin.place == named


@pytest.mark.parametrize("begin", ["kept", "step-00000400", 1.5])
def test_what_is_no_path_from_the_root_is_refused(job: Job, begin: Any) -> None:
    with pytest.raises(SpecError) as caught:
        job.plan_resume(begin=begin)
    assert says("from / or ~", caught.value.fix)
