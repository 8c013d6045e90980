"""Survival: the built-in trainer on two real nodes, interrupted anywhere, gives the same result."""

from __future__ import annotations

import os
import random
import re
import secrets
import signal
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.errors import RecipeError, RefusedError, SpecError
from jupyter_mntrain.model.lifecycle.running_changes import changes_of
from jupyter_mntrain.model.records.job import JobSpec, JobView
from jupyter_mntrain.workload.workload import from_path
from tests.cluster.conftest import wait_for
from tests.waiting import until
from tests.wording import wording

pytestmark = pytest.mark.slow

STEPS = 60
EVERY = 5
ENDED_S = 240.0
"""For two attempts, each with torch and transformers imported anew by five processes."""

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "{text}"
vocabulary_size = 300
sequence_length = 32
[pipeline]
microbatches = 2
[train]
steps = {steps}
batch_size = 8
timeout_s = 60
[checkpoint]
interval_steps = {every}
"""


@pytest.fixture(scope="module")
def once() -> dict[int, float]:
    """What an unbroken run comes to, by step: one is enough for all tests."""
    return {}


def launch(
    cluster: Cluster, text: Path, *, steps: int = STEPS, every: int = EVERY, **policy: object
) -> Job:
    recipe = text.parent / f"recipe-{secrets.token_hex(4)}.toml"
    recipe.write_text(RECIPE.format(text=text, steps=steps, every=every))
    workload = from_path(recipe)
    spec = JobSpec(
        entry=workload.entry,
        files=workload.files,
        participants=cluster.participants(["node1:1", "node2:1"]),
        **policy,  # type: ignore[arg-type]
    )
    return cluster.launch(spec)


def losses(job: Job) -> dict[int, float]:
    """By step, of every attempt that was seen: a step done twice must have been the same."""
    found: dict[int, float] = {}
    history = job.wait_for_history(ENDED_S)
    for step in history.ranks[1].steps:  # type: ignore[index]
        assert step.loss is not None
        found[step.step] = step.loss
    return found


def ended(job: Job) -> JobView:
    view = job.wait(ENDED_S)
    assert view.state in ("succeeded", "failed", "canceled"), view
    return view


@pytest.fixture
def unbroken(cluster: Cluster, text: Path, once: dict[int, float]) -> dict[int, float]:
    if not once:
        job = launch(cluster, text)
        assert ended(job).state == "succeeded"
        once.update(losses(job))
    assert len(once) == STEPS
    return once


def test_killed_at_a_random_step_it_has_the_losses_of_one_that_was_not(
    cluster: Cluster, text: Path, unbroken: dict[int, float]
) -> None:
    """Ten more, without agents: ``tests/train/checkpoint/test_kills.py``."""
    chance = random.Random(1)
    step, victim = chance.randrange(EVERY + 1, STEPS - EVERY), chance.randrange(2)
    job = launch(cluster, text, max_restarts=1)
    until(lambda: job.state == "running", "its ranks", ENDED_S)
    changed = job.set(["train.log_interval=3"], timeout_s=ENDED_S)
    assert changed.change is not None
    seen: dict[int, float] = {}

    def has_come_so_far() -> bool:
        rank = job.history().ranks.get(victim)  # type: ignore[call-overload]
        return bool(rank and rank.steps and rank.steps[-1].step >= step)

    until(has_come_so_far, "the step", ENDED_S)
    seen |= {one.step: one.loss for one in job.history().ranks[1].steps}  # type: ignore[index, misc]
    pid = job.view().parts[victim].ranks[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    view = ended(job)
    assert (view.state, view.attempt.number) == ("succeeded", 2)
    again = losses(job)
    first = min(again)
    assert first > 1, "it went on from a checkpoint"
    assert first >= step - 2 * EVERY, "no more than an interval and what was being saved is lost"
    assert max(again) == STEPS
    assert {number: unbroken[number] for number in again} == again
    assert {number: unbroken[number] for number in seen} == seen
    assert changes_of(view) == (changed.change,), "the next attempt knows it"
    (kept,) = (one for one in job.settings() if one.name == "train.log_interval")
    assert (kept.value, kept.origin) == (3, "--set")
    said = [line.text for line in job.logs(rank=0) if re.search(r"\bstep (\d+)/", line.text)]
    assert {int(line.split("/")[0].split()[-1]) % 3 for line in said[1:]} == {0}, said


def test_it_saves_when_asked_and_ends_when_asked(cluster: Cluster, text: Path) -> None:
    job = launch(cluster, text, steps=100_000, every=0)
    until(lambda: job.view().parts[0].saves and job.state == "running", "steps", ENDED_S)
    job.save()
    saved = job.wait_for_save(after=None, timeout_s=ENDED_S)
    assert saved
    changed = job.set(["train.steps=50_000", "optimizer.learning_rate=1e-4"], timeout_s=ENDED_S)
    assert changed.change is not None
    assert changed.change.step > saved
    assert {part.changes for part in job.view().parts if part.changes} == {(changed.change,)}
    with pytest.raises(RecipeError):
        job.set(["train.steps=1"])
    with pytest.raises(SpecError):
        job.set(["train.batch_size=16"])
    job.save(is_last=True, reason="enough, after saving")
    view = ended(job)
    assert view.state == "canceled"
    assert view.parts[0].stop_reason == "enough, after saving"
    last = {part.saved_step for part in view.parts}
    assert len(last) == 1, "all ranks ended after the same step"
    assert (last.pop() or 0) > saved
    steps = {rank.step for part in view.parts for rank in part.ranks}
    assert steps == {view.parts[0].saved_step}
    with pytest.raises(RefusedError, match=wording("is over")):
        job.save()
    with pytest.raises(RefusedError, match="canceled"):
        job.set(["train.log_interval=3"])


def test_a_job_that_is_not_there_yet_cannot_save(cluster: Cluster) -> None:
    participants = cluster.participants(["node1:1"])
    files = {"a.py": "import time; time.sleep(600)"}
    job = cluster.launch(JobSpec(entry=("a.py",), files=files, participants=participants))
    wait_for(lambda: job.state == "running")
    with pytest.raises(RefusedError, match=wording(r"do not save on request.*ControlReader")):
        job.save()
    with pytest.raises(SpecError, match=wording("runs a.py, not a recipe")):
        job.set(["train.steps=5"])
    job.kill()
    ended(job)
