"""Resume, through real launches on two real nodes: every ending, other ranks, the same losses."""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec, JobView
from jupyter_mntrain.recipe.stored import with_settings
from jupyter_mntrain.workload.workload import from_path
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.waiting import until
from tests.wording import says

pytestmark = pytest.mark.slow

STEPS = 100
EVERY = 5
ENDED_S = 240.0

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "{text}"
vocabulary_size = 300
sequence_length = 16
[pipeline]
microbatches = 4
[optimizer]
min_ratio = 1
warmup_steps = 10
[train]
steps = {steps}
batch_size = 4
timeout_s = 60
[checkpoint]
interval_steps = {every}
[output]
at_end = false
[report]
to = []
"""
"""The learning rate is constant, so a run that is given more steps is one that had them at once."""


class Runs:
    """Launches and resumes, and compares losses with those of a run that was never broken."""

    def __init__(self, cluster: Cluster, text: Path, unbroken: dict[int, float]) -> None:
        self.cluster = cluster
        self._recipe = text.parent / "recipe.toml"
        self._recipe.write_text(RECIPE.format(text=text, steps=STEPS, every=EVERY))
        self.unbroken = unbroken

    def launch(self, *settings: str, members: tuple[str, ...] = ("node1:1", "node2:1")) -> Job:
        made = from_path(self._recipe)
        participants = self.cluster.participants(members)
        spec = JobSpec(entry=made.entry, files=made.files, participants=participants)
        return self.cluster.launch(with_settings(spec, settings))

    def on(self, job: Job, *members: str) -> JobSpec:
        """The job's spec on other nodes."""
        participants = self.cluster.participants(members)
        return msgspec.structs.replace(job.spec(), participants=participants)

    def ended(self, job: Job) -> dict[int, float]:
        """Wait for the end. Its losses by step, which are those of the unbroken run."""
        view = job.wait(ENDED_S)
        history = job.wait_for_history(ENDED_S)
        last = max(history.ranks)
        found = {one.step: one.loss for one in history.ranks[last].steps}
        assert found == {step: self.unbroken.get(step) for step in found}, view
        return found  # type: ignore[return-value]

    def reach(self, job: Job, step: int) -> None:
        """Wait until the ranks have made a step."""

        def has_come_so_far() -> bool:
            ranks = job.history().ranks.values()
            return bool(ranks) and all(one.steps and one.steps[-1].step >= step for one in ranks)

        until(has_come_so_far, f"step {step}", ENDED_S)


@pytest.fixture(scope="module")
def once() -> dict[int, float]:
    return {}


@pytest.fixture
def runs(cluster: Cluster, text: Path, once: dict[int, float]) -> Runs:
    made = Runs(cluster, text, once)
    if not once:
        job = made.launch(members=("node1:1",))
        assert job.wait(ENDED_S).state == "succeeded", job.logs()
        steps = job.wait_for_history(ENDED_S).ranks[0].steps  # type: ignore[index]
        once.update({one.step: one.loss for one in steps if one.loss is not None})
    assert len(once) == STEPS
    return made


def assert_goes_on(job: Job, run: str, step: int, found: dict[int, float]) -> None:
    """What the ranks confirm, and what the record says, is the step after that checkpoint."""
    view = job.view()
    assert (view.run, view.resumed_step) == (run, step)
    assert min(found) == step + 1


def kill_a_rank(view: JobView, victim: int) -> None:
    pid = [rank.pid for part in view.parts for rank in part.ranks][victim]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_after_stop_crash_and_kills_and_on_other_ranks_losses_are_those_of_an_unbroken_run(
    runs: Runs, agents: list[LiveAgent], tmp_path: Path
) -> None:
    chance = random.Random(5)
    shared = tmp_path / "shared"

    # Stopped after saving.
    first = runs.launch(f"checkpoint.directory={shared}")
    runs.reach(first, chance.randrange(1, EVERY))
    with pytest.raises(RefusedError) as caught:
        runs.cluster.resume(first.id)
    assert caught.value.kind is Kind.STILL_RUNNING
    first.save(is_last=True)
    runs.ended(first)
    saved = first.view().saved_step or 0

    # Then on one rank, which is killed at a random moment: the job fails.
    second = runs.cluster.resume(first.id, spec=runs.on(first, "node1:1"))
    runs.reach(second, saved + chance.randrange(1, 2 * EVERY))
    kill_a_rank(second.view(), 0)
    found = runs.ended(second)
    assert second.state == "failed"
    assert_goes_on(second, first.id, saved, found)

    # Then on three ranks, until both nodes crash.
    saved = second.checkpoints().checkpoints[0].step
    third = runs.cluster.resume(second.id, spec=runs.on(first, "node2:1", "node1:2"))
    runs.reach(third, saved + chance.randrange(1, 2 * EVERY))
    for agent in agents:
        agent.kill()
        for attempt in agent.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))
    for agent in agents:
        agent.start()
    wait_for(lambda: third.state == "failed")
    wait_for(lambda: [node.liveness for node in runs.cluster.nodes()] == ["up", "up"])
    found = runs.ended(third)
    assert_goes_on(third, first.id, saved, found)

    # And to the end.
    saved = third.checkpoints().checkpoints[0].step
    last = runs.cluster.resume(third.id, spec=runs.on(first, "node1:1", "node2:1"))
    found = runs.ended(last)
    assert last.state == "succeeded"
    assert_goes_on(last, first.id, saved, found)
    assert max(found) == STEPS
    listed = last.checkpoints()
    assert listed.checkpoints[0].step == STEPS
    assert all(one.is_whole for one in listed.checkpoints)
    attempts = [one.attempt for one in listed.checkpoints]
    assert attempts == sorted(attempts, reverse=True)
    assert attempts[0] >= 4


def test_a_run_that_succeeded_makes_more_steps_and_begets_another(
    runs: Runs, agents: list[LiveAgent], capsys: pytest.CaptureFixture[str]
) -> None:
    half = STEPS // 2
    first = runs.launch(f"train.steps={half}")
    assert max(runs.ended(first)) == half
    with pytest.raises(SpecError) as caught:
        runs.cluster.resume(first.id)
    assert says(f"is to make {half} steps", caught.value.cause)
    with pytest.raises(RefusedError) as refused:
        runs.cluster.resume(first.id, steps=STEPS, spec=runs.on(first, "node1:2"))
    assert refused.value.kind is Kind.NO_CHECKPOINT
    assert "node2" in refused.value.cause
    assert "--member node2:1" in refused.value.fix

    words = ["resume", first.id, "--steps", str(STEPS), "--wait"]
    words += [word for agent in agents for word in ("--agent", agent.where)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert says(f"from step {half}", said)
    assert says(f"train.steps {half} → {STEPS}", said)
    assert says(f"resumed after step {half}", said)
    second = runs.cluster.job(runs.cluster.jobs()[0].job_id)
    found = runs.ended(second)
    assert_goes_on(second, first.id, half, found)
    assert max(found) == STEPS

    # A branch begins with an older checkpoint, and takes nothing from the run that has it.
    before = [one.step for one in second.checkpoints().checkpoints]
    older = before[-1]
    assert older < STEPS
    branch = runs.cluster.resume(second.id, begin=older)
    found = runs.ended(branch)
    assert_goes_on(branch, branch.id, older, found)
    assert [one.step for one in second.checkpoints().checkpoints] == before
    own = CheckpointDirectory(agents[0].state / "runs" / branch.id / "checkpoints")
    assert max(own.manifests()) == STEPS


SCRIPT = """
import os, sys
from pathlib import Path
from jupyter_mntrain.telemetry import Recorder

kept = Path(os.environ["MNTRAIN_CHECKPOINT_DIR"])
kept.mkdir(exist_ok=True)
first = int((kept / "step").read_text()) if (kept / "step").exists() else 0
told = os.environ.get("MNTRAIN_RESUME_STEP"), os.environ.get("MNTRAIN_SAVED_STEP")
assert told == ((str(first),) * 2 if first else (None, None)), told
with Recorder() as recorder:
    recorder.start(resumed_step=first or None)
    for step in range(first + 1, first + 4):
        recorder.step(step=step, tokens=1, loss=1 / step)
    (kept / "step").write_text(str(step))
    recorder.saved(step)
    sys.exit(step < 6)
"""


def test_a_script_finds_its_own_checkpoints_again(cluster: Cluster) -> None:
    participants = cluster.participants(["node1:1"])
    spec = JobSpec(entry=("own.py",), files={"own.py": SCRIPT}, participants=participants)
    first = cluster.launch(spec)
    assert first.wait(ENDED_S).state == "failed", first.logs()
    second = cluster.resume(first.id)
    view = second.wait(ENDED_S)
    assert view.state == "succeeded", second.logs()
    assert (view.run, view.resumed_step, view.saved_step) == (first.id, 3, 6)
    with pytest.raises(SpecError):
        cluster.resume(second.id, steps=9)
