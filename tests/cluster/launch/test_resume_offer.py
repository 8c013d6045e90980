"""Resume offer: what an ended job can go on from, or what is in the way, as data."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.checkpoint import HeldCheckpoint, Manifest, NodeCheckpoints
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Participant
from tests.cluster.conftest import wait_for
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.wording import says

RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 1000\n'


class Run:
    """A run of two nodes that has ended, and what they have of it."""

    def __init__(self, near: Cluster, two: list[FakeAgent], elsewhere: Elsewhere) -> None:
        self._near, self._two, self._elsewhere = near, two, elsewhere

    def ended(self, *, script: bool = False) -> Job:
        entry = ("own.py",) if script else ("-m", TRAINER, "recipe.toml")
        files = {"own.py": "pass"} if script else {"recipe.toml": RECIPE}
        nodes = tuple(Participant(node=name) for name in ("node1", "node2"))
        job = self._near.launch(JobSpec(entry=entry, files=files, participants=nodes))
        self.end(job)
        return job

    def end(self, job: Job) -> None:
        for agent in self._two:
            self._elsewhere.do(agent.finish, job.id)
        wait_for(lambda: job.state == "succeeded")

    def has(self, job: Job, *shards: tuple[int, tuple[int, ...]]) -> None:
        """Each node has these of two ranks' shards of checkpoints."""
        run = job.view().run
        for number, agent in enumerate(self._two):
            held = tuple(
                HeldCheckpoint(
                    Manifest(step, 1, (10, 20), hosts=("node1", "node2")),
                    tuple(rank for rank in ranks if rank == number),
                    5.0,
                )
                for step, ranks in shards
            )
            kept = NodeCheckpoints(run=run, directory="/c", checkpoints=held)
            self._elsewhere.do(agent.checkpoints.__setitem__, run, kept)


@pytest.fixture
def run(near: Cluster, two: list[FakeAgent], elsewhere: Elsewhere) -> Run:
    return Run(near, two, elsewhere)


def test_the_newest_whole_one_is_offered_with_equal_losses(run: Run) -> None:
    job = run.ended()
    run.has(job, (200, (0, 1)), (400, (0, 1)))
    offer = job.resume_offer()
    assert (offer.obstacle, offer.step, offer.steps) == (None, 400, 1000)
    assert (offer.losses, offer.changes) == ("equal", ())
    assert (offer.run, offer.newest_job) == (job.id, job.id)
    assert [one.step for one in offer.checkpoints.checkpoints] == [400, 200]


def test_a_change_is_named_and_decides_about_the_losses(run: Run, near: Cluster) -> None:
    job = run.ended()
    run.has(job, (400, (0, 1)))

    def after(*settings: str) -> Any:
        """The first job's offer, compared with a newer job of the run."""
        newer = near.resume(job.id, settings=settings)
        run.end(newer)
        offer = job.resume_offer()
        assert offer.newest_job == newer.id
        return offer.losses, len(offer.changes), offer.obstacle

    assert after() == ("equal", 0, None)
    assert after("optimizer.learning_rate=1e-5") == ("other", 1, None)
    assert after("train.tf32=false") == ("rounding", 1, None)


@pytest.mark.parametrize(
    ("shards", "obstacle"),
    [
        ((), "nothing-saved"),
        (((200, (0, 1)), (400, (0,))), "not-whole"),
        (((1000, (0, 1)),), "finished"),
    ],
)
def test_what_is_in_the_way_is_told_as_data(run: Run, shards: Any, obstacle: str) -> None:
    job = run.ended()
    run.has(job, *shards)
    offer = job.resume_offer()
    assert offer.obstacle == obstacle
    assert offer.problem is not None


def test_a_job_of_the_run_that_goes_on_already_is_named(run: Run, near: Cluster) -> None:
    job = run.ended()
    run.has(job, (400, (0, 1)))
    newer = near.resume(job.id)
    offer = job.resume_offer()
    assert (offer.obstacle, offer.running_job) == ("running", newer.id)
    assert offer.problem is not None
    assert offer.problem.kind is Kind.STILL_RUNNING


def test_a_script_goes_on_by_itself_if_it_left_anything(
    run: Run, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    job = run.ended(script=True)
    assert job.resume_offer().obstacle == "nothing-saved"
    left = NodeCheckpoints(run=job.id, directory="/c", other_bytes=7)
    elsewhere.do(two[0].checkpoints.__setitem__, job.id, left)
    offer = job.resume_offer()
    assert (offer.obstacle, offer.losses, offer.step) == (None, "by-script", None)


def test_a_silent_node_is_named(run: Run, two: list[FakeAgent], elsewhere: Elsewhere) -> None:
    job = run.ended()
    run.has(job, (400, (0, 1)))
    elsewhere.do(two[1].die)
    offer = job.resume_offer()
    assert offer.obstacle == "not-whole"
    assert offer.checkpoints.silent == ("node2",)
    assert says("node2", offer.problem.cause if offer.problem else "")
